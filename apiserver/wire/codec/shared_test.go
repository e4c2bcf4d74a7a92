package codec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"unsafe"

	"github.com/klauspost/compress/gzip"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"sigs.k8s.io/yaml"
)

// pieces is a connection that notes what it is given, as it is given.
type pieces struct {
	httptest.ResponseRecorder
	given [][]byte
	fails int // the write that fails, counted from 1
}

func newPieces() *pieces { return &pieces{ResponseRecorder: *httptest.NewRecorder()} }

var errCut = errors.New("cut")

func (p *pieces) Write(b []byte) (int, error) {
	p.given = append(p.given, b)
	if len(p.given) == p.fails {
		return 0, errCut
	}
	return p.ResponseRecorder.Write(b)
}

// within reports whether part is memory of whole.
func within(part, whole []byte) bool {
	at, start := uintptr(unsafe.Pointer(unsafe.SliceData(part))), uintptr(unsafe.Pointer(unsafe.SliceData(whole)))
	return at >= start && at+uintptr(len(part)) <= start+uintptr(len(whole))
}

// random is a version whose value has about so many bytes.
func random(t testing.TB, res *kinds.Resource, bytes int) *mvcc.Version {
	text := make([]byte, bytes)
	for i := range text {
		text[i] = byte('a' + rand.N(26))
	}
	return stored(t, res, `{"metadata":{"name":"random","namespace":"default"},"data":{"k":"`+string(text)+`"}}`, 42)
}

// TestSharedEvents: an event is the same to the byte however large it is, and of a large one the connection is
// given the bytes that are shared.
func TestSharedEvents(t *testing.T) {
	for _, size := range []int{sharedAbove - 500, sharedAbove, 200 << 10, 1 << 20} {
		for _, media := range []string{JSON, Protobuf} {
			t.Run(fmt.Sprint(media, size), func(t *testing.T) {
				v := random(t, configMaps, size)
				var want []byte // from messages, which are collected
				m, err := NewMessageWriter(func(b []byte) error { want = append(want, b...); return nil }, Format{MediaType: media}, configMaps)
				must.OK(t, err)
				w := newPieces()
				e, err := NewEventWriter(w, Format{MediaType: media}, configMaps)
				must.OK(t, err)
				for _, rev := range []proto.Revision{42, 42, 43} { // the last one is put together
					for _, to := range []*EventWriter{m, e} {
						must.OK(t, to.Event("MODIFIED", v, rev))
					}
				}
				must.OK(t, errors.Join(e.Bookmark(44, false), m.Bookmark(44, false), e.Flush()))
				got := w.Body.Bytes()
				if media == Protobuf {
					got = unframed(t, got)
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%d bytes, want %d", len(got), len(want))
				}
				whole := v.Value()
				if media == Protobuf {
					if whole, err = objectMessage(configMaps, v, 42); err != nil {
						t.Fatal(err)
					}
				}
				if shares := len(whole) >= sharedAbove; within(w.given[1], whole) != shares {
					t.Errorf("pieces of shared bytes: %v, want %v", !shares, shares)
				}
			})
		}
	}
}

// TestSharedEventCut: behind a write that failed, no buffer of the watch is used again.
func TestSharedEventCut(t *testing.T) {
	v := random(t, configMaps, 200<<10)
	for fails := 1; fails <= 2; fails++ {
		w := newPieces()
		w.fails = fails
		e, err := NewEventWriter(w, Format{MediaType: JSON}, configMaps)
		must.OK(t, err)
		if err := e.Event("ADDED", v, 42); !errors.Is(err, errCut) {
			t.Errorf("write %d: %v", fails, err)
		}
		if e.buf != nil || len(w.given) != fails {
			t.Errorf("write %d: %d writes, buffer kept: %v", fails, len(w.given), e.buf != nil)
		}
	}
}

// TestSharedBodies: so are objects and lists, compressed or not, in all forms.
func TestSharedBodies(t *testing.T) {
	gadgets := &kinds.Resource{Group: "example.com", Version: "v1", Kind: "Gadget", Plural: "gadgets", Namespaced: true, Custom: true}
	for _, res := range []*kinds.Resource{configMaps, gadgets} {
		for _, f := range []Format{{MediaType: JSON}, {MediaType: Protobuf}, {MediaType: JSON, Pretty: true}, {MediaType: YAML}} {
			if res.Custom && f.MediaType == Protobuf {
				continue
			}
			sizes := []int{sharedAbove, gzipAbove - 100, gzipAbove + 1, 1 << 20}
			if f.MediaType == YAML || f.Pretty { // they are collected, whatever their size
				sizes = sizes[2:3]
			}
			for _, size := range sizes {
				small, v := random(t, res, 10), random(t, res, size)
				items := []*mvcc.Version{small, v, v, small}
				for _, zips := range []bool{false, true} {
					t.Run(fmt.Sprint(res.Kind, " ", f.MediaType, f.Pretty, size, zips), func(t *testing.T) {
						checkSharedBody(t, f, zips, objectBody(t, f, res, v), v, func(rs Responder) error { return rs.Object(200, res, v) })
						checkSharedBody(t, f, zips, listBody(t, f, res, items), v, func(rs Responder) error {
							return rs.List(res, ListMeta{Revision: 50, Remaining: -1}, items)
						})
					})
				}
			}
		}
	}
}

// checkSharedBody compares a body, as JSON or protobuf, and reports whether it was written from the bytes of v.
func checkSharedBody(t *testing.T, f Format, zips bool, want []byte, v *mvcc.Version, answer func(Responder) error) {
	t.Helper()
	w, r := newPieces(), request("/")
	if zips {
		r.Header.Set("Accept-Encoding", "gzip")
	}
	must.OK(t, answer(Respond(w, r, f)))
	got := w.Body.Bytes()
	length := w.Header().Get("Content-Length")
	if length != "" && length != strconv.Itoa(len(got)) {
		t.Errorf("Content-Length is %s, of %d bytes", length, len(got))
	}
	zipped := w.Header().Get("Content-Encoding") == "gzip"
	if zipped {
		z, err := gzip.NewReader(w.Body)
		must.OK(t, err)
		if got, err = io.ReadAll(z); err != nil {
			t.Fatal(err)
		}
	}
	if zips != zipped && len(got) > gzipAbove {
		t.Errorf("compressed: %v", zipped)
	}
	var err error
	switch {
	case f.MediaType == YAML:
		got, err = yaml.YAMLToJSON(got)
		want = canonical(t, want)
	case f.Pretty:
		got, want = canonical(t, got), canonical(t, want)
	}
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, want %d (%v)", len(got), len(want), err)
	}
	if f.MediaType == JSON && !f.Pretty && !zips && !slices.ContainsFunc(w.given, func(b []byte) bool {
		return len(b) > 1 && within(b, v.Value())
	}) {
		t.Error("it was copied")
	}
}

// canonical is JSON with sorted fields.
func canonical(t *testing.T, text []byte) []byte {
	t.Helper()
	var tree any
	must.OK(t, json.Unmarshal(text, &tree))
	out, err := json.Marshal(tree)
	must.OK(t, err)
	return out
}

func objectBody(t *testing.T, f Format, res *kinds.Resource, v *mvcc.Version) []byte {
	t.Helper()
	if f.MediaType != Protobuf {
		return append(append(appendType(nil, res.Kind, res.Group, res.Version), v.Value()[1:]...), '\n')
	}
	msg, err := marshaled(res.GVK(), v.Value())
	must.OK(t, err)
	return appendDocument(nil, "v1", res.Kind, msg)
}

func listBody(t *testing.T, f Format, res *kinds.Resource, items []*mvcc.Version) []byte {
	t.Helper()
	b := append(appendType(nil, res.Kind+"List", res.Group, res.Version), `"metadata":{"resourceVersion":"50"},"items":[`...)
	for i, v := range items {
		if i > 0 {
			b = append(b, ',')
		}
		if res.Custom {
			b = append(appendType(b, res.Kind, res.Group, res.Version), v.Value()[1:]...)
		} else {
			b = append(b, v.Value()...)
		}
	}
	b = append(b, "]}\n"...)
	if f.MediaType != Protobuf {
		return b
	}
	msg, err := marshaled(configMaps.GroupVersion().WithKind("ConfigMapList"), b)
	must.OK(t, err)
	return appendDocument(nil, "v1", "ConfigMapList", msg)
}

// unframed is what frames of protobuf have in them.
func unframed(t *testing.T, b []byte) (out []byte) {
	t.Helper()
	for len(b) > 0 {
		n := int(binary.BigEndian.Uint32(b))
		out, b = append(out, b[frameLength:frameLength+n]...), b[frameLength+n:]
	}
	return out
}
