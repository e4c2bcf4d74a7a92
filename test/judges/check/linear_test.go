package check

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/judges/history"
)

// TestManyOverlap: the store as a whole is judged without trying all 2^40 subsets of forty
// reads that overlap with two writes, of which the later one was called first.
func TestManyOverlap(t *testing.T) {
	text := strings.Builder{}
	text.WriteString("log a=1@2 b=2@3\n" +
		"op c1 n1 create b=2 0..1000 ok @3\n" +
		"op c2 n1 create a=1 1..1001 ok @2\n")
	for i := range 40 {
		fmt.Fprintf(&text, "op c%d n1 get c MostRecent %d..%d refused 404\n", i+3, i+2, i+1002)
	}
	h, _, err := history.Parse(text.String())
	must.OK(t, err)
	if v := All(h); !v.OK() {
		t.Errorf("broken: %q", v.Checks())
	}
}
