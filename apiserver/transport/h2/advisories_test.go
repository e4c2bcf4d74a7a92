package h2

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestAdvisoriesNameTests: the tests that doc.go names for the advisories exist.
func TestAdvisoriesNameTests(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	must.OK(t, err)
	var sources []byte
	files, err := filepath.Glob("*_test.go")
	must.OK(t, err)
	for _, name := range files {
		b, err := os.ReadFile(name)
		must.OK(t, err)
		sources = append(sources, b...)
	}
	names := regexp.MustCompile(`\b(Test|Fuzz)[A-Z]\w*`).FindAllString(string(doc), -1)
	if len(names) == 0 {
		t.Error("doc.go names no test")
	}
	for _, name := range names {
		if !bytes.Contains(sources, []byte("\nfunc "+name+"(")) {
			t.Errorf("doc.go names %s, which does not exist", name)
		}
	}
}

// TestContinuationFlood: headers that go on behind the most that is taken end the connection, and not only when the client says
// that they have ended (CVE-2023-45288).
func TestContinuationFlood(t *testing.T) {
	const most, size = 10_000, 1000
	s := serve(t, true, http.NotFoundHandler(), func(s *http.Server) { s.MaxHeaderBytes = most })
	c := dial(t, s, 100)
	// A literal that is not indexed: the name "x", and a value of so many bytes.
	field := append([]byte{0x10, 1, 'x', 0x7f, 0xe9, 0x06}, bytes.Repeat([]byte{'a'}, size)...)
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block("GET", "/"), EndStream: true})
	for range 4 * most / size {
		_ = c.WriteContinuation(1, false, field)
	}
	if got := c.outcome(); got != "goaway PROTOCOL_ERROR" {
		t.Error(got)
	}
}

// TestUnknownFrames: frames of types that nobody has defined are ignored (CVE-2026-27141).
func TestUnknownFrames(t *testing.T) {
	s := serve(t, true, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), nil)
	c := dial(t, s, 100)
	c.get(1, "/")
	for kind := int(http2.FrameContinuation) + 1; kind <= 0xff; kind++ {
		if http2.FrameType(kind) == http2.FramePriorityUpdate {
			_ = c.WritePriorityUpdate(1, "u=1, i")
			continue
		}
		for _, id := range []uint32{0, 1, 3} {
			for _, payload := range []string{"", "x", "a payload of this type"} {
				_ = c.WriteRawFrame(http2.FrameType(kind), 0xff, id, []byte(payload))
			}
		}
	}
	if got := c.pinged(); got != "ping" {
		t.Error(got)
	}
}

// TestTrailersAreDropped: what a request says of its trailers, and trailers themselves, reach no handler, so that nothing is kept
// for them (CVE-2026-78659).
func TestTrailersAreDropped(t *testing.T) {
	seen := make(chan string, 1)
	s := serve(t, true, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		seen <- fmt.Sprint(r.Trailer, r.Header)
	}), nil)
	c := dial(t, s, 100)
	many := strings.TrimSuffix(strings.Repeat("a,", 10_000), ",")
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block("POST", "/", "trailer", many, "trailer", "b"), EndHeaders: true})
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: fields("a", "x", "b", "y"), EndStream: true, EndHeaders: true})
	if got := <-seen; got != "map[] map[]" {
		t.Errorf("%.200s", got)
	}
}

// TestWindowIsGivenBackOnce: whatever becomes of a stream and its body, the client has the connection's window again, and no more
// than that (CVE-2026-78663).
func TestWindowIsGivenBackOnce(t *testing.T) {
	const size = 50_000
	read := func(b io.Reader) { _, _ = io.CopyN(io.Discard, b, size/2) }
	for _, q := range []struct {
		name   string
		before func(r *http.Request) // the stream is reset
		reset  bool
		after  func(w http.ResponseWriter, r *http.Request)
	}{
		{"read behind the reset", nil, true, func(_ http.ResponseWriter, r *http.Request) { read(r.Body) }},
		{"read and closed behind the reset", nil, true, func(_ http.ResponseWriter, r *http.Request) { read(r.Body); _ = r.Body.Close() }},
		{"closed behind the reset", nil, true, func(_ http.ResponseWriter, r *http.Request) { _ = r.Body.Close() }},
		{"half read before", func(r *http.Request) { read(r.Body) }, true, func(_ http.ResponseWriter, r *http.Request) { read(r.Body) }},
		{"closed before", func(r *http.Request) { _ = r.Body.Close() }, true, func(_ http.ResponseWriter, r *http.Request) { read(r.Body) }},
		{"not read", nil, true, nil},
		{"not read, and not reset", nil, false, nil},
		{"half read, and not reset", nil, false, func(_ http.ResponseWriter, r *http.Request) { read(r.Body) }},
		{"a deadline", nil, false, func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
			read(r.Body)
		}},
	} {
		t.Run(q.name, func(t *testing.T) {
			had, was := make(chan struct{}), make(chan struct{})
			s, own := serveKnown(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if q.before != nil {
					q.before(r)
				}
				close(had)
				<-was
				if q.after != nil {
					q.after(w, r)
				}
			}), nil)
			client := dial(t, s, 1<<20)
			go client.drain()
			c := own.only(t)
			_ = client.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block("POST", "/"), EndHeaders: true})
			for n := 0; n < size; n += 10_000 {
				_ = client.WriteData(1, false, make([]byte, 10_000))
			}
			<-had
			taken := func() int64 { return receiveWindow - c.received - c.kept }
			await(t, "the body", func() bool {
				return c.look(func() bool {
					st := c.streams[1]
					return st.came == size
				})
			})
			if q.reset {
				_ = client.WriteRSTStream(1, http2.ErrCodeCancel)
				await(t, "the reset", func() bool { return c.look(func() bool { return c.streams[1] == nil }) })
			}
			close(was)
			await(t, "the end of the handler", func() bool { return c.look(func() bool { return c.handlers == 0 }) })
			c.look(func() bool {
				if n := taken(); n != 0 {
					t.Errorf("%d bytes of the connection's window are missing", n)
				}
				return true
			})
		})
	}
}

// TestHeaderTableOfManySizes: the settings of the table of headers come from the reading goroutine, and the answers that use it
// from those of handlers (CVE-2026-97032). All answers can be decoded, and the race detector has nothing to say.
func TestHeaderTableOfManySizes(t *testing.T) {
	const requests = 2000
	s := serve(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Path", r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	}), nil)
	c := dial(t, s, 1<<20)
	open := make(chan struct{}, 100)
	go func() {
		out := c.beside()
		for i := range uint32(requests) {
			open <- struct{}{}
			// The decoder takes two changes between answers only if the table is empty behind the first one.
			_ = out.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: i % 2 * 4096})
			out.get(2*i+1, "/"+string(rune('a'+i%26)))
		}
	}()
	for range requests {
		f, err := c.ReadFrame()
		for err == nil && f.Header().Type != http2.FrameHeaders {
			f, err = c.ReadFrame()
		}
		must.OK(t, err)
		<-open
		h := f.(*http2.MetaHeadersFrame)
		i := slices.IndexFunc(h.Fields, func(f hpack.HeaderField) bool { return f.Name == "x-path" })
		if want := "/" + string(rune('a'+h.StreamID/2%26)); i < 0 || h.Fields[i].Value != want {
			t.Fatalf("stream %d: %v, want %s", h.StreamID, h.Fields, want)
		}
	}
}
