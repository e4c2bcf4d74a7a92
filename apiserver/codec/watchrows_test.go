package codec

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// countedRows counts how often cells are made.
type countedRows struct {
	rowPrinter
	made *int
}

func (c countedRows) Row(obj map[string]any, now time.Time) ([]any, error) {
	*c.made++
	return c.rowPrinter.Row(obj, now)
}

// TestTableRowsAreShared: the row of an event is made once per second, form and
// revision, however many watch; what it says is the same as if it were not shared.
func TestTableRowsAreShared(t *testing.T) {
	v := stored(t, widgets, `{"metadata":{"name":"w","creationTimestamp":"2026-01-01T00:00:00Z"}}`, 9)
	made := 0
	send := func(f Format, rev int, now time.Time) string {
		t.Helper()
		w := httptest.NewRecorder()
		e, err := NewEventWriter(w, f, widgets)
		ok(t, err)
		e.table.rows = countedRows{e.table.rows, &made}
		e.clock = func() time.Time { return now }
		ok(t, e.Event("MODIFIED", v, v.Revision))
		if rev != 9 {
			ok(t, e.Event("DELETED", v, 10))
		}
		ok(t, e.Flush())
		return w.Body.String()
	}
	f := Format{MediaType: JSON, As: AsTable, AsVersion: "v1", IncludeObject: metav1.IncludeMetadata}
	now := time.Date(2026, 1, 1, 0, 0, 30, 0, time.UTC)
	first := send(f, 9, now)
	if !strings.Contains(first, `"30s"`) && !strings.Contains(first, `2026-01-01`) {
		t.Errorf("no age in %s", first)
	}
	for range 10 {
		if again := send(f, 9, now.Add(500*time.Millisecond)); again != first {
			t.Errorf("got %s, want %s", again, first)
		}
	}
	if made != 1 {
		t.Errorf("11 watchers: the row was made %d times", made)
	}
	send(f, 9, now.Add(time.Second))
	if made != 2 {
		t.Errorf("a second later the row was made %d times in all", made)
	}
	whole := f
	whole.IncludeObject = metav1.IncludeObject
	if got := send(whole, 9, now.Add(time.Second)); !strings.Contains(got, `"kind":"Widget"`) || made != 3 {
		t.Errorf("another form: %d, %s", made, got)
	}
	if got := send(f, 10, now.Add(time.Second)); strings.Count(got, `"resourceVersion":"10"`) != 2 || made != 4 {
		t.Errorf("another revision: %d, %s", made, got)
	}
	n := 0
	for d, _ := v.Memo().(*derived); d != nil; d = d.next {
		n++
	}
	if n != 3 {
		t.Errorf("%d rows are kept, want one per form and revision", n)
	}
}

// BenchmarkSharedEvent is the cost of one event for one more watcher, by form.
func BenchmarkSharedEvent(b *testing.B) {
	v := stored(b, configMaps, readFile(b, "configmap.json"), 42)
	for name, f := range map[string]Format{
		"json": {MediaType: JSON}, "protobuf": {MediaType: Protobuf},
		"metadata":          {MediaType: JSON, As: AsMetadata, AsVersion: "v1"},
		"metadata protobuf": {MediaType: Protobuf, As: AsMetadata, AsVersion: "v1"},
		"table":             {MediaType: JSON, As: AsTable, AsVersion: "v1", IncludeObject: metav1.IncludeMetadata},
	} {
		b.Run(name, func(b *testing.B) {
			w := httptest.NewRecorder()
			e, err := NewEventWriter(w, f, configMaps)
			if err != nil {
				b.Fatal(err)
			}
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
