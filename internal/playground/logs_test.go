package playground

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLogs: the last lines of each node, in the order of their times; lines without one,
// a stack for instance, stay with the line before.
func TestLogs(t *testing.T) {
	dir := t.TempDir()
	node := func(name string, lines ...string) *Node {
		n := &Node{Name: name, Log: filepath.Join(dir, name)}
		if err := os.WriteFile(n.Log, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		return n
	}
	a := node("n1", "time=01 a", "time=03 b", "  of b", "time=05 c", "")
	b := node("n2", `{"time":"02","x":1}`, "time=04 e", "time=06 the end is missing")
	never := &Node{Name: "n3", Log: filepath.Join(dir, "never-started")}
	for _, x := range []struct {
		nodes []*Node
		tail  int
		want  string
	}{
		{[]*Node{a}, -1, "time=01 a|time=03 b|  of b|time=05 c|"},
		{[]*Node{a}, 2, "  of b|time=05 c|"},
		{[]*Node{a}, 4, "time=01 a|time=03 b|  of b|time=05 c|"},
		{[]*Node{a}, 99, "time=01 a|time=03 b|  of b|time=05 c|"},
		{[]*Node{b}, 1, "time=06 the end is missing|"},
		{[]*Node{a}, 0, ""},
		{[]*Node{never}, 5, ""},
		{[]*Node{a, b, never}, -1, `n1 | time=01 a|n2 | {"time":"02","x":1}|n1 | time=03 b|n1 |   of b|n2 | time=04 e|n1 | time=05 c|n2 | time=06 the end is missing|`},
	} {
		var out strings.Builder
		if err := (LogOptions{Tail: x.tail}).run(t.Context(), x.nodes, &out); err != nil {
			t.Fatal(err)
		}
		if got := strings.ReplaceAll(out.String(), "\n", "|"); got != x.want {
			t.Errorf("the last %d of %d logs: %q, want %q", x.tail, len(x.nodes), got, x.want)
		}
	}
}

// TestLongLogs looks for the last lines behind more than one block.
func TestLongLogs(t *testing.T) {
	n := &Node{Log: filepath.Join(t.TempDir(), "log")}
	var all []string
	for i := range 20000 {
		all = append(all, fmt.Sprintf("line %d", i))
	}
	if err := os.WriteFile(n.Log, []byte(strings.Join(all, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tail := range []int{1, 7000, 15000, 19999, 20000, 20001} {
		var out strings.Builder
		if err := (LogOptions{Tail: tail}).run(t.Context(), []*Node{n}, &out); err != nil {
			t.Fatal(err)
		}
		if want := strings.Join(all[max(0, len(all)-tail):], "\n") + "\n"; out.String() != want {
			t.Errorf("the last %d: got %d bytes, want %d", tail, out.Len(), len(want))
		}
	}
}

// TestFollowedLog: what comes in parts is shown in whole lines, and a log that is begun
// again is shown from there.
func TestFollowedLog(t *testing.T) {
	log := &nodeLog{name: "n1", file: filepath.Join(t.TempDir(), "log")}
	for _, x := range []struct{ content, shown string }{
		{"one\ntw", "one\n"},
		{"one\ntwo\nthree\n", "two\nthree\n"},
		{"one\ntwo\nthree\n", ""},
		{"new\n", "new\n"},
	} {
		if err := os.WriteFile(log.file, []byte(x.content), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := showLogs([]*nodeLog{log}, &out, false); err != nil {
			t.Fatal(err)
		}
		if out.String() != x.shown {
			t.Errorf("of %q it shows %q, want %q", x.content, out.String(), x.shown)
		}
	}
}
