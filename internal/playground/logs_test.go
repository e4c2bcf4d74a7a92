package playground

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// TestLogs: the last lines of each node, in the order of their times; lines without one,
// a stack for instance, stay with the line before.
func TestLogs(t *testing.T) {
	dir := t.TempDir()
	node := func(name string, lines ...string) *Node {
		n := &Node{Name: name, Log: filepath.Join(dir, name)}
		must.OK(t, os.WriteFile(n.Log, []byte(strings.Join(lines, "\n")), 0o600))
		return n
	}
	a := node("n1", "time=01 a", "time=03 b", "  of b", "time=05 c", "")
	b := node("n2", `{"time":"02","x":1}`, "time=04 e", "time=06 the end is missing")
	never := &Node{Name: "n3", Log: filepath.Join(dir, "never-started")}
	of := func(nodes []*Node) (logs []*nodeLog) {
		for _, n := range nodes {
			logs = append(logs, &nodeLog{name: n.Name, file: n.Log})
		}
		return logs
	}
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
		must.OK(t, (LogOptions{Tail: x.tail}).run(t.Context(), of(x.nodes), &out))
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
	must.OK(t, os.WriteFile(n.Log, []byte(strings.Join(all, "\n")+"\n"), 0o600))
	for _, tail := range []int{1, 7000, 15000, 19999, 20000, 20001} {
		var out strings.Builder
		must.OK(t, (LogOptions{Tail: tail}).run(t.Context(), []*nodeLog{{file: n.Log}}, &out))
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
		must.OK(t, os.WriteFile(log.file, []byte(x.content), 0o600))
		var out strings.Builder
		must.OK(t, showLogs([]*nodeLog{log}, &out, false))
		if out.String() != x.shown {
			t.Errorf("of %q it shows %q, want %q", x.content, out.String(), x.shown)
		}
	}
}

// TestKlogTime: lines of the control plane's programs have their place among those of nodes.
func TestKlogTime(t *testing.T) {
	zone := time.FixedZone("", 3600)
	for _, x := range []struct{ line, now, want string }{
		{"I1126 02:46:08.123456   12 main.go:1] x", "2026-11-26T03:00:00", "2026-11-26T02:46:08.123+01:00"},
		{"E1231 23:59:59.999999    1 main.go:1] x", "2027-01-01T00:00:01", "2026-12-31T23:59:59.999+01:00"},
	} {
		now, err := time.ParseInLocation("2006-01-02T15:04:05", x.now, zone)
		must.OK(t, err)
		m := klogTime.FindSubmatch([]byte(x.line))
		if m == nil {
			t.Fatalf("%s: no time", x.line)
		}
		if got := string(klogAt(m, now)); got != x.want {
			t.Errorf("%s: %s, want %s", x.line, got, x.want)
		}
	}
	if klogTime.MatchString("I1126 of them") {
		t.Error("a line without a time has one")
	}
}
