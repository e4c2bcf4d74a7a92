package codec

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/types/printers"
	"github.com/quorate/quorate/internal/must"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// countedRows counts how often cells are made.
type countedRows struct {
	rowPrinter
	made *int
}

func (c countedRows) Row(obj map[string]any) ([]any, error) {
	*c.made++
	return c.rowPrinter.Row(obj)
}

// TestTableRowsAreShared: the cells of a version are made once, however many watch
// and list and whenever they do; what a row says is the same as if it were not shared.
func TestTableRowsAreShared(t *testing.T) {
	v := stored(t, widgets, `{"metadata":{"name":"w","creationTimestamp":"2026-01-01T00:00:00Z"}}`, 9)
	made := 0
	printer, err := printers.Of(widgets)
	must.OK(t, err)
	rows := rowPrinter(countedRows{printer, &made})
	now := time.Date(2026, 1, 1, 0, 0, 30, 0, time.UTC)
	send := func(f Format, rev int) string {
		t.Helper()
		w := httptest.NewRecorder()
		e, err := NewEventWriter(w, f, widgets)
		must.OK(t, err)
		e.table.rows = rows
		e.clock = func() time.Time { return now }
		must.OK(t, e.Event("MODIFIED", v, v.Revision))
		if rev != 9 {
			must.OK(t, e.Event("DELETED", v, 10))
		}
		must.OK(t, e.Flush())
		return w.Body.String()
	}
	f := Format{MediaType: JSON, As: AsTable, AsVersion: "v1", IncludeObject: metav1.IncludeMetadata}
	first := send(f, 9)
	if !strings.Contains(first, `"30s"`) {
		t.Errorf("no age in %s", first)
	}
	now = now.Add(time.Minute)
	for range 10 {
		if again := send(f, 9); again != strings.ReplaceAll(first, `"30s"`, `"90s"`) {
			t.Errorf("a minute later: %s, it was %s", again, first)
		}
	}
	whole := f
	whole.IncludeObject = metav1.IncludeObject
	if got := send(whole, 9); !strings.Contains(got, `"kind":"Widget"`) {
		t.Errorf("with the object: %s", got)
	}
	if made != 1 {
		t.Errorf("12 watchers: the cells were made %d times", made)
	}
	if got := send(f, 10); strings.Count(got, `"resourceVersion":"10"`) != 2 || made != 2 {
		t.Errorf("another revision: %d, %s", made, got)
	}
	other := 0
	rows = countedRows{printer, &other}
	if send(f, 9); other != 1 {
		t.Errorf("other columns: the cells were made %d times", other)
	}
}

// TestAges: an age may stand between texts, and these may need escapes.
func TestAges(t *testing.T) {
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tt := &table{rows: fixedRows{"a", printers.Ageing{Since: since}, int64(2), printers.Ageing{Before: `3 "(`, Since: since, After: " ago)\n"}, nil}}
	row, err := tt.cellsOf(nil)
	must.OK(t, err)
	for after, want := range map[time.Duration]string{
		time.Second:   `["a","1s",2,"3 \"(1s ago)\n",null]`,
		3 * time.Hour: `["a","3h",2,"3 \"(3h ago)\n",null]`,
	} {
		if got := string(row.append(nil, since.Add(after))); got != want {
			t.Errorf("after %s: %s, want %s", after, got, want)
		}
	}
}

type fixedRows []any

func (r fixedRows) Row(map[string]any) ([]any, error) { return r, nil }

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
