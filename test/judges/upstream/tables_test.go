package upstream

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/types/kinds"
	ours "github.com/quorate/quorate/apiserver/types/printers"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/judges/random"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/printers"
	"k8s.io/kubernetes/pkg/printers/internalversion"
)

// TestTableRows: the columns and the cells of tables are upstream's.
func TestTableRows(t *testing.T) {
	registry, err := kinds.Available()
	must.OK(t, err)
	if testing.Short() {
		*objects = min(*objects, 60)
	}
	generator := printers.NewTableGenerator().With(internalversion.AddHandlers)
	rows := 0
	for _, res := range registry.All() {
		gvk := res.GVK()
		if !legacyscheme.Scheme.Recognizes(gvk) || res.Virtual || res.StorageVersion != "" {
			continue // rows are of the stored version
		}
		if gvk.Kind == "CSIStorageCapacity" {
			continue // upstream's registry does not ask its printer
		}
		printer, err := ours.Of(res)
		must.OK(t, err)
		found := random.Differences{}
		for n := range *objects / 2 {
			obj, err := legacyscheme.Scheme.New(gvk)
			must.OK(t, err)
			random.Filler{}.Fill(*first+int64(n), obj)
			obj.GetObjectKind().SetGroupVersionKind(gvk)
			kept, err := completed(t, random.Tree(t, obj), gvk)
			if err != nil {
				continue
			}
			internal, err := legacyscheme.Scheme.ConvertToVersion(kept, random.Internal(gvk))
			must.OK(t, err)
			table, err := generated(generator, internal)
			if err != nil {
				break // it has the columns of all kinds that have none of their own
			}
			if table == nil {
				continue
			}
			kept.GetObjectKind().SetGroupVersionKind(gvk)
			row, err := printer.Row(random.Tree(t, kept))
			if err != nil {
				found.Add("", "a row", err.Error())
				continue
			}
			rows++
			columns := printer.Columns()
			if len(row) != len(table.ColumnDefinitions) {
				t.Errorf("%s has %d columns, upstream %d", gvk, len(row), len(table.ColumnDefinitions))
				break
			}
			for i, c := range table.ColumnDefinitions {
				if own := columns[i]; n == 0 && (own.Name != c.Name || own.Type != c.Type || own.Format != c.Format || own.Priority != c.Priority) {
					t.Errorf("%s, column %d: %s %s %s %d, upstream %s %s %s %d", gvk, i, own.Name, own.Type, own.Format, own.Priority, c.Name, c.Type, c.Format, c.Priority)
				}
				if got, want := shownCell(t, row[i]), shownCell(t, table.Rows[0].Cells[i]); got != want {
					found.Add(c.Name, want, got)
				}
			}
		}
		for _, path := range slices.Sorted(maps.Keys(found)) {
			t.Errorf("%s, %s: %d times: %s", gvk, path, found[path].Count, found[path].Example)
		}
	}
	t.Logf("%d rows", rows)
}

// generated is upstream's table of an object; nil: it ends with a panic, about an object that is not valid.
func generated(g printers.TableGenerator, obj runtime.Object) (table *metav1.Table, err error) {
	defer func() { _ = recover() }()
	return g.GenerateTable(obj, printers.GenerateOptions{Wide: true})
}

// shownCell is a cell in an answer.
func shownCell(t *testing.T, cell any) string {
	if at, ok := cell.(ours.Ageing); ok {
		cell = at.At(time.Now())
	}
	text, err := json.Marshal(cell)
	must.OK(t, err)
	return fmt.Sprint(string(text))
}
