package cluster

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// TestMain gives the harness to the child of TestChangedBinary alone: nothing else here needs a program.
func TestMain(m *testing.M) {
	if os.Getenv("QUORATE_TEST_CACHED") != "" {
		os.Exit(Main(m))
	}
	os.Exit(m.Run())
}

// TestChangedBinary shows that the go command repeats a system test when the program that it executes
// has changed, and returns the cached result when it has not. The program must lie in the module, as
// bin/quorate does: the go command does not look at files outside. TestSources has the other case.
func TestChangedBinary(t *testing.T) {
	if os.Getenv("QUORATE_TEST_CACHED") != "" {
		t.Skip("this is the child")
	}
	root, err := Repository()
	must.OK(t, err)
	dir := filepath.Join(root, ".cache")
	must.OK(t, os.MkdirAll(dir, 0o755))
	if dir, err = os.MkdirTemp(dir, "changed-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program := filepath.Join(dir, "quorate")
	write := func(text string, age time.Duration) {
		t.Helper()
		must.OK(t, os.WriteFile(program, []byte("#!/bin/sh\necho "+text+"\n"), 0o755))
		// The go command caches nothing that depends on a file younger than two seconds.
		then := time.Now().Add(-age)
		must.OK(t, os.Chtimes(program, then, then))
	}
	cached := func() bool {
		t.Helper()
		c := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-run", "TestRunsBinary", "./test/harness/cluster")
		c.Dir = root
		// The kubectl of this child is a file that does not change.
		c.Env = append(os.Environ(), "QUORATE_BIN="+program, "KUBECTL="+filepath.Join(root, "go.mod"), "QUORATE_TEST_CACHED="+dir)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("go test: %v\n%s", err, out)
		}
		return bytes.Contains(out, []byte("(cached)"))
	}
	// An input that no test executes, as the sources of a program that the harness builds.
	input := filepath.Join(dir, "input")
	change := func(age time.Duration) {
		t.Helper()
		must.OK(t, os.WriteFile(input, []byte(age.String()), 0o600))
		then := time.Now().Add(-age)
		must.OK(t, os.Chtimes(input, then, then))
	}
	change(time.Hour)
	write("one", time.Hour)
	if cached() {
		t.Fatal("the first run is cached")
	}
	if !cached() {
		t.Error("the second run of the same program is not cached")
	}
	write("two", time.Minute)
	if cached() {
		t.Error("a run with a changed program is cached")
	}
	if !cached() {
		t.Error("the second run of the changed program is not cached")
	}
	change(time.Minute)
	if cached() {
		t.Error("a run with a changed input is cached")
	}
}

// TestSources: the results of a run that builds its own program depend on the files of that program.
func TestSources(t *testing.T) {
	root, err := Repository()
	must.OK(t, err)
	files, err := sourcesOf(root)
	must.OK(t, err)
	for _, want := range []string{"cmd/quorate/main.go", "raftstore/store.go", "apiserver/types/kinds/data/core.yaml", "go.mod"} {
		if !slices.Contains(files, filepath.Join(root, want)) {
			t.Errorf("%s is not one of the %d sources", want, len(files))
		}
	}
}

// TestRunsBinary is the test that TestChangedBinary has the go command run.
func TestRunsBinary(t *testing.T) {
	if os.Getenv("QUORATE_TEST_CACHED") == "" {
		t.Skip("TestChangedBinary runs it")
	}
	theRun.inputs = append(theRun.inputs, filepath.Join(os.Getenv("QUORATE_TEST_CACHED"), "input"))
	if out, err := exec.CommandContext(t.Context(), Binary()).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
