package codec

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// cut is a stream that is closed in the middle of a write: what it was given may still
// be on its way out when Write returns.
type cut struct {
	header http.Header
	given  [][]byte
}

func (c *cut) Header() http.Header { return c.header }
func (c *cut) WriteHeader(int)     {}
func (c *cut) Flush()              {}
func (c *cut) Write(b []byte) (int, error) {
	c.given = append(c.given, b)
	return 0, errors.New("stream closed")
}

// TestCutAnswerIsNotReused: the bytes of an answer that was cut never become those of
// another.
func TestCutAnswerIsNotReused(t *testing.T) {
	var items []*mvcc.Version
	for range 600 {
		items = append(items, stored(t, configMaps, readFile(t, "configmap.json"), 42))
	}
	f := Format{MediaType: JSON}
	for _, encoding := range []string{"", "gzip"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept-Encoding", encoding)
		for range 20 {
			w := &cut{header: http.Header{}}
			if err := Respond(w, r, f).List(configMaps, ListMeta{Revision: 42, Remaining: -1}, items); err == nil {
				t.Fatal("no error")
			}
			e, err := NewEventWriter(w, f, configMaps)
			must.OK(t, err)
			must.OK(t, e.Event("ADDED", items[0], 42))
			if e.Flush() == nil {
				t.Fatal("no error")
			}
			var before []string
			for _, b := range w.given {
				before = append(before, string(b))
			}
			for range 4 { // others take what is in the pools
				other := httptest.NewRecorder()
				must.OK(t, Respond(other, r, Format{MediaType: JSON, As: AsMetadata, AsVersion: "v1"}).List(configMaps, ListMeta{Revision: 7, Remaining: -1}, items))
				e, err := NewEventWriter(other, f, configMaps)
				must.OK(t, err)
				must.OK(t, e.Event("DELETED", items[0], 43))
				must.OK(t, e.Flush())
			}
			for i, b := range w.given {
				if string(b) != before[i] {
					t.Fatalf("%q: write %d of the cut answer has other bytes now", encoding, i)
				}
			}
		}
	}
}
