package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"

// TestTables compares the table of one object of each kind with
// testdata/kinds/tables.txt, which was printed by upstream's server: the columns
// with type, format and priority, and the cells.
func TestTables(t *testing.T) {
	e := judged(t, nil)
	var b strings.Builder
	b.WriteString("# name | type | format | priority of each column, then the cells of testdata/kinds/samples.yaml.\n")
	for _, s := range samples(t) {
		e.populate(s)
		w, answer := e.do(http.MethodGet, s.path()+"?includeObject=None", http.Header{"Accept": {asTable}}, "")
		if w.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s", s.id(), w.StatusCode, clip(answer))
			continue
		}
		var table metav1.Table
		if err := json.Unmarshal([]byte(answer), &table); err != nil {
			t.Fatalf("%s: %v", s.id(), err)
		}
		writeTable(&b, s.id(), &table)
	}
	got := b.String()
	if *reference != "" {
		got = strings.NewReplacer(differentRows...).Replace(got)
	}
	golden(t, "testdata/kinds/tables.txt", got)
}

// differentRows are what upstream prints and what we do.
var differentRows = []string{
	// Upstream's row has a cell more than the table has columns.
	`"192.0.2.7", "services/default/web", "<age>"`, `"192.0.2.7", "services/default/web"`,
}

func writeTable(b *strings.Builder, title string, table *metav1.Table) {
	fmt.Fprintf(b, "\n%s\n", title)
	for _, c := range table.ColumnDefinitions {
		fmt.Fprintf(b, "  %s | %s | %s | %d\n", c.Name, c.Type, c.Format, c.Priority)
	}
	for _, r := range table.Rows {
		cells := make([]string, len(r.Cells))
		for i, c := range r.Cells {
			text, _ := json.Marshal(c)
			cells[i] = uidCell.ReplaceAllString(ageCell.ReplaceAllString(string(text), `$1<age>$2$3`), "<uid>")
		}
		fmt.Fprintf(b, "  = %s\n", strings.Join(cells, ", "))
	}
}

// ageCell finds what depends on the time: a cell that is an age or a time, and
// ages ago.
var ageCell = regexp.MustCompile(`^(")(?:(?:\d+[ydhms]){1,2}|\d{4}-\d\d-\d\dT[^"]+)(")$|(?:\d+[ydhms]){1,2}( ago)`)

var uidCell = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
