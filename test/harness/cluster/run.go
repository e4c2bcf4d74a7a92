package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// run is what all tests of one `go test` share.
type run struct {
	dir     string // everything of this run lies below it; unique on this machine
	quorate string
	kubectl string
	inputs  []string // files that the results of this run depend on
	noted   sync.Once
}

// RunDir is the directory of this run. What lies below it is removed at the end of the
// run, and processes whose command line names it are ended.
func RunDir() string { return theRun.dir }

// Binary is the path of the quorate under test.
func Binary() string {
	noteInputs()
	return theRun.quorate
}

// KubectlPath is the path of the kubectl; other programs lie beside it.
func KubectlPath() string { return theRun.kubectl }

// noteInputs tells the go command which files the results of this run depend on, so that it returns
// no cached result after they changed. The go command sees the files of the module that a test opens,
// executes or asks the status of. So it sees bin/quorate, but no program that lies elsewhere, and
// nothing that happens before the first test runs.
func noteInputs() {
	theRun.noted.Do(func() {
		for _, file := range theRun.inputs {
			_, _ = os.Stat(file)
		}
	})
}

// theRun is set by Main before the tests and not changed afterwards.
var theRun run

// reaperVariable makes the test binary a reaper for the directory it names.
const reaperVariable = "QUORATE_TEST_REAPER"

// Main runs the tests of a package: it finds or builds the binary under test, starts
// the reaper and returns the exit code.
func Main(m *testing.M) int {
	if dir := os.Getenv(reaperVariable); dir != "" {
		reap(dir)
		return 0
	}
	end, err := begin()
	if err != nil {
		fmt.Fprintln(os.Stderr, "test:", err)
		return 1
	}
	code := m.Run()
	if err := end(); err != nil {
		fmt.Fprintln(os.Stderr, "test:", err)
		code = max(code, 1)
	}
	return code
}

func begin() (end func() error, err error) {
	if theRun.dir, err = os.MkdirTemp("", "quorate-test-"); err != nil {
		return nil, err
	}
	stop, err := startReaper(theRun.dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, stop())
		}
	}()
	root, err := Repository()
	if err != nil {
		return nil, err
	}
	if theRun.kubectl, err = findKubectl(root); err != nil {
		return nil, err
	}
	if theRun.quorate = os.Getenv("QUORATE_BIN"); theRun.quorate != "" {
		if theRun.quorate, err = filepath.Abs(theRun.quorate); err != nil {
			return nil, err
		}
		if _, err := os.Stat(theRun.quorate); err != nil {
			return nil, fmt.Errorf("QUORATE_BIN: %w", err)
		}
		// The program executes it, not a test.
		theRun.inputs = []string{theRun.quorate + "-bench"}
		return stop, nil
	}
	theRun.quorate = filepath.Join(theRun.dir, "quorate")
	for program, dir := range map[string]string{theRun.quorate: "./cmd/quorate", theRun.quorate + "-bench": "./cmd/quorate-bench"} {
		build := exec.Command("go", "build", "-o", program, dir)
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build the binary under test: %w\n%s", err, out)
		}
	}
	theRun.inputs, err = sourcesOf(root)
	return stop, err
}

// sourcesOf returns the files of this module that the program is built from. The program itself lies
// outside the module, where the go command does not look at files.
func sourcesOf(root string) ([]string, error) {
	const files = `{{$dir := .Dir}}{{if and .Module .Module.Main}}{{range .GoFiles}}{{$dir}}/{{.}}
{{end}}{{range .EmbedFiles}}{{$dir}}/{{.}}
{{end}}{{end}}`
	list := exec.Command("go", "list", "-deps", "-f", files, "./cmd/quorate", "./cmd/quorate-bench")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the sources of the binary under test: %w", err)
	}
	return append(strings.Split(strings.TrimSpace(string(out)), "\n"), filepath.Join(root, "go.mod")), nil
}

// Repository is the root of the main module, also for tests in modules of their
// own that use this harness.
func Repository() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/quorate/quorate").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func findKubectl(root string) (string, error) {
	path := os.Getenv("KUBECTL")
	if path == "" {
		path = filepath.Join(root, "bin", "kubectl")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("kubectl: %w: run 'make kubectl' or set KUBECTL", err)
	}
	return path, nil
}

// startReaper starts the reaper. It holds the other end of a pipe that closes
// when this process ends, also by SIGKILL, a panic or the timeout of go test.
func startReaper(dir string) (end func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	reaper := exec.Command(self)
	reaper.Env = append(os.Environ(), reaperVariable+"="+dir)
	reaper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	alive, err := reaper.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := reaper.Start(); err != nil {
		return nil, fmt.Errorf("start the reaper: %w", err)
	}
	return func() error {
		return errors.Join(alive.Close(), reaper.Wait())
	}, nil
}

// reap waits for the end of standard input, kills what is left of the run and
// removes its directory.
func reap(dir string) {
	_, _ = io.Copy(io.Discard, os.Stdin)
	for range 100 {
		left := ProcessesOf(dir)
		if len(left) == 0 {
			break
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if os.Getenv("KEEP") == "" {
		_ = os.RemoveAll(dir)
	}
}

// ProcessesOf returns the live processes whose command line names dir.
func ProcessesOf(dir string) []int {
	var pids []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// A zombie's command line is empty.
		if line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")); err == nil && bytes.Contains(line, []byte(dir)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// SkipInShort skips a test with -short: make test leaves it to make test-all.
func SkipInShort(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("make test-all runs this test: " + why)
	}
}

// Lateness is how long after its deadline a call may still return: this machine may
// be busy. What does not end by its deadline goes on for a minute or more.
const Lateness = 10 * time.Second

// Await polls a condition until it holds, and fails the test when it does not
// hold in time. The condition returns "" when it holds and else what is missing.
func Await(t testing.TB, within time.Duration, what string, missing func() string) {
	t.Helper()
	AwaitEvery(t, 20*time.Millisecond, within, what, missing)
}

// AwaitEvery is Await for a condition that costs something to look at.
func AwaitEvery(t testing.TB, every, within time.Duration, what string, missing func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for {
		why := missing()
		if why == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %s: %s", what, within, why)
		case <-time.After(every):
		}
	}
}
