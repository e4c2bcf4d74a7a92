package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/test/harness/cluster"
)

// TestBenchChurn has objects come and go on three nodes for a moment: there is a sample of each, and a drawing.
func TestBenchChurn(t *testing.T) {
	cluster.SkipInShort(t, "it runs what measures")
	dir := t.TempDir()
	csv, svg := filepath.Join(dir, "churn.csv"), filepath.Join(dir, "churn.svg")
	b := startBench(t, "churn", "--writes", "400", "--objects", "50", "--clients", "4", "--every", "200ms", "--rest", "1s", "--csv", csv, "--svg", svg)
	out := b.ends(t, 0)
	for _, want := range []string{"400 writes to 3 nodes by 4 clients", "0 writes failed", "last third", "bytes for each of these"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for file, want := range map[string]string{csv: ",n3,", svg: ">resident memory</text>"} {
		if raw, err := os.ReadFile(file); err != nil || !strings.Contains(string(raw), want) {
			t.Errorf("%v, no %q in\n%s", err, want, raw)
		}
	}
}

// TestBenchChurnRefuses: bad flags start nothing.
func TestBenchChurnRefuses(t *testing.T) {
	cluster.SkipInShort(t, "it runs what measures")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--objects", "8"}, "--objects 8: must be at least one for each of --clients"},
		{[]string{"--largest", "2000000"}, "--largest 2000000: must be at most 1048576"},
		{[]string{"--data-dir", "x", "--voters", "5"}, "--data-dir and --voters exclude each other"},
		{[]string{"more"}, `unexpected argument "more"`},
	} {
		if out := startBench(t, "churn", c.args...).ends(t, 2); !strings.Contains(out, c.want) || strings.Contains(out, "starting") {
			t.Errorf("%v: %s", c.args, out)
		}
	}
}
