package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteColumns writes a table for a terminal, its cells at the right of their columns.
func WriteColumns(w io.Writer, head []string, lines [][]string) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	for _, line := range append([][]string{head}, lines...) {
		fmt.Fprintln(t, strings.Join(line, "\t")+"\t")
	}
	return t.Flush()
}
