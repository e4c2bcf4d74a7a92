package codec

import (
	"bytes"
	"encoding/binary"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// watched runs f on a writer and returns what arrived.
func watched(t *testing.T, f Format, res *kinds.Resource, run func(*EventWriter)) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	e, err := NewEventWriter(w, f, res)
	must.OK(t, err)
	if w.Flushed {
		t.Error("the headers were sent alone")
	}
	run(e)
	must.OK(t, e.Flush())
	if !w.Flushed {
		t.Error("nothing was sent")
	}
	return w
}

func TestWatchFrames(t *testing.T) {
	v := stored(t, widgets, `{"metadata":{"name":"w"},"spec":{"a":1}}`, 9)
	run := func(e *EventWriter) {
		must.OK(t, e.Event("ADDED", v, 9))
		must.OK(t, e.Event("DELETED", v, 1000))
		must.OK(t, e.Bookmark(12746, true))
		must.OK(t, e.Bookmark(12747, false))
		must.OK(t, e.Error(status.From(status.WatchTooOld(1, 100))))
	}
	const statusFrame = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 1 (100)","reason":"Expired","code":410}}` + "\n"
	table := func(columns string) string {
		return `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"REV"},"columnDefinitions":` + columns + `,"rows":[{"cells":[NAME,"\u003cunknown\u003e"],"object":OBJ}]}}` + "\n"
	}
	row := func(frame, rev, name, obj string) string {
		return strings.NewReplacer("REV", rev, "NAME", name, "OBJ", obj).Replace(frame)
	}
	tt, err := newTable(widgets)
	must.OK(t, err)
	head := string(tt.head(nil, "v1", ListMeta{Remaining: -1}, true))
	columns := head[strings.Index(head, `[{"name"`):strings.Index(head, `,"rows"`)]
	rows := []struct {
		name string
		f    Format
		want string
	}{
		{"object", Format{MediaType: JSON}, `{"type":"ADDED","object":{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"w","resourceVersion":"9"},"spec":{"a":1}}}
{"type":"DELETED","object":{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"w","resourceVersion":"1000"},"spec":{"a":1}}}
{"type":"BOOKMARK","object":{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"resourceVersion":"12746","annotations":{"k8s.io/initial-events-end":"true"}}}}
{"type":"BOOKMARK","object":{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"resourceVersion":"12747"}}}
`},
		{"metadata", Format{MediaType: JSON, As: AsMetadata, AsVersion: "v1"}, `{"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"w","resourceVersion":"9"}}}
{"type":"DELETED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"w","resourceVersion":"1000"}}}
{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"12746","annotations":{"k8s.io/initial-events-end":"true"}}}}
{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"12747"}}}
`},
		{"table", Format{MediaType: JSON, As: AsTable, AsVersion: "v1", IncludeObject: metav1.IncludeNone},
			`{"type":"ADDED","object":` + row(table(columns), "9", `"w"`, "null") +
				`{"type":"DELETED","object":` + row(table("null"), "1000", `"w"`, "null") +
				`{"type":"BOOKMARK","object":` + row(table("null"), "12746", `""`, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"12746","annotations":{"k8s.io/initial-events-end":"true"}}}`) +
				`{"type":"BOOKMARK","object":` + row(table("null"), "12747", `""`, "null")},
	}
	for _, r := range rows {
		w := watched(t, r.f, widgets, run)
		if got := w.Body.String(); got != r.want+statusFrame {
			t.Errorf("%s:\n got %s\nwant %s", r.name, got, r.want+statusFrame)
		}
		if w.Header().Get("Content-Type") != JSON {
			t.Errorf("%s: %v", r.name, w.Header())
		}
	}
}

func TestWatchFramesInProtobuf(t *testing.T) {
	v := stored(t, pods, readFile(t, "pod.json"), 41)
	for _, f := range []Format{{MediaType: Protobuf}, {MediaType: Protobuf, As: AsMetadata, AsVersion: "v1"}} {
		w := watched(t, f, pods, func(e *EventWriter) {
			must.OK(t, e.Event("MODIFIED", v, 41))
			must.OK(t, e.Event("DELETED", v, 77))
			must.OK(t, e.Bookmark(80, true))
			must.OK(t, e.Error(status.From(status.ListTooOld())))
		})
		if got := w.Header().Get("Content-Type"); got != "application/vnd.kubernetes.protobuf;stream=watch" {
			t.Errorf("content type %q", got)
		}
		raw := w.Body.Bytes()
		want := []struct{ event, rev string }{{"MODIFIED", "41"}, {"DELETED", "77"}, {"BOOKMARK", "80"}, {"ERROR", ""}}
		for _, x := range want {
			size := binary.BigEndian.Uint32(raw)
			frame := raw[4 : 4+size]
			raw = raw[4+size:]
			var ev metav1.WatchEvent
			must.OK(t, ev.Unmarshal(frame))
			again, err := ev.Marshal()
			must.OK(t, err)
			if !bytes.Equal(again, frame) {
				t.Errorf("%s: frame %q, upstream %q", x.event, frame, again)
			}
			obj, _, err := protobuf.NewSerializer(scheme, scheme).Decode(ev.Object.Raw, nil, nil)
			must.OK(t, err)
			if ev.Type != x.event {
				t.Errorf("event %s, want %s", ev.Type, x.event)
			}
			if m, is := obj.(metav1.Object); is && m.GetResourceVersion() != x.rev {
				t.Errorf("%s: resourceVersion %q, want %q", x.event, m.GetResourceVersion(), x.rev)
			}
			checkType(t, f, x.event, obj)
		}
		if len(raw) != 0 {
			t.Errorf("%d bytes too many", len(raw))
		}
	}
}

func checkType(t *testing.T, f Format, event string, obj runtime.Object) {
	t.Helper()
	want := "Pod"
	switch {
	case event == "ERROR":
		want = "Status"
	case f.As == AsMetadata:
		want = "PartialObjectMetadata"
	}
	gvks, _, err := scheme.ObjectKinds(obj)
	must.OK(t, err)
	if gvks[0].Kind != want {
		t.Errorf("%s: object is %v, want %s", event, gvks[0], want)
	}
}

func TestMemosStayWithinTheirBudget(t *testing.T) {
	b := budget{max: 1000}
	var all []*mvcc.Version
	for i := range 100 {
		v := &mvcc.Version{Key: "k"}
		v.SetMemo(i)
		b.add(v, 100)
		all = append(all, v)
	}
	kept := 0
	for i, v := range all {
		if v.Memo() != nil {
			kept++
			if i < 90 {
				t.Errorf("memo %d is older than others and was kept", i)
			}
		}
	}
	if kept != 10 || b.used != 1000 {
		t.Errorf("%d memos, %d bytes", kept, b.used)
	}
}

func BenchmarkEvent(b *testing.B) {
	v := stored(b, configMaps, readFile(b, "configmap.json"), 42)
	for _, media := range []string{JSON, Protobuf} {
		b.Run(media, func(b *testing.B) {
			w := httptest.NewRecorder()
			e, err := NewEventWriter(w, Format{MediaType: media}, configMaps)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				w.Body.Reset()
				if err := e.Event("MODIFIED", v, 42); err != nil {
					b.Fatal(err)
				}
				if err := e.Flush(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
