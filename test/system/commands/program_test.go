package commands

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/test/harness/cluster"
)

// programMiB bounds the size of the program. It has 64 MiB; 11 MiB of 81 went when the linker was able
// to drop methods that nothing calls.
const programMiB = 68

// TestProgramIsSmall: the linker drops unused methods as long as nothing reaches text/template, and
// what only measures is in quorate-bench.
func TestProgramIsSmall(t *testing.T) {
	if os.Getenv("QUORATE_BIN") == "" {
		t.Skip("make build makes the program that users have")
	}
	program, err := os.ReadFile(cluster.Binary())
	if err != nil {
		t.Fatal(err)
	}
	if mib := len(program) >> 20; mib > programMiB {
		t.Errorf("the program has %d MiB, allowed are %d", mib, programMiB)
	}
	// Names of functions are in a stripped program, too: tracebacks need them.
	for _, function := range []string{"text/template.(*state)", "/quorate/bench/load."} {
		if bytes.Contains(program, []byte(function)) {
			t.Errorf("the program has functions %s", function)
		}
	}
	if !bytes.Contains(program, []byte("/commands.newCommand")) {
		t.Error("the names of functions are not found this way")
	}
}

// TestBenchIsBeside: `quorate bench` runs the quorate-bench beside it, and says how to get one where
// there is none.
func TestBenchIsBeside(t *testing.T) {
	run := func(program string, args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		return string(out), err
	}
	out, err := run(cluster.Binary(), "bench", "--help")
	if err != nil || !strings.Contains(out, "quorate bench [command]") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = run(cluster.Binary(), "help", "bench", "load")
	if err != nil || !strings.Contains(out, "quorate bench load [flags]") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = run(cluster.Binary(), "help", "bench", "laod")
	if err == nil || !strings.Contains(out, `did you mean "load"?`) {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = run(cluster.Binary(), "__complete", "bench", "comp")
	if err != nil || !strings.HasPrefix(out, "compare\t") {
		t.Errorf("%v\n%s", err, out)
	}
	alone := filepath.Join(t.TempDir(), "quorate")
	if err := os.Link(cluster.Binary(), alone); err != nil {
		b, err := os.ReadFile(cluster.Binary())
		if err == nil {
			err = os.WriteFile(alone, b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	out, err = run(alone, "bench", "load")
	if want := "error: there is no " + alone + "-bench: "; err == nil || !strings.HasPrefix(out, want) {
		t.Errorf("%v\n%s\nwant %s", err, out, want)
	}
}
