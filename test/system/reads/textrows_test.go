package reads

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// textRow is a row of a text file of cases: its columns are parted by " | ".
type textRow struct {
	at      string // file:line
	columns []string
}

// textRows reads testdata/name, whose rows have that many columns. Empty lines and
// those that begin with # are none.
func textRows(t *testing.T, name string, columns int) (rows []textRow) {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name)
	must.OK(t, err)
	for i, line := range strings.Split(string(raw), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		row := textRow{fmt.Sprintf("%s:%d", name, i+1), strings.Split(line, " | ")}
		if len(row.columns) != columns {
			t.Fatalf("%s: not a row: %s", row.at, line)
		}
		rows = append(rows, row)
	}
	return rows
}
