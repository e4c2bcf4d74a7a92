//go:build linux && amd64

// Package clock builds a program with a wall clock that tests can move. Go asks
// the kernel's page for the time and no library, so nothing can be put between
// them from outside; the build replaces the function in the runtime that asks.
// The monotonic clock is left alone: it does not jump on real machines either.
package clock

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Variable names the file with the offset in the environment of a program that
// Build has built: eight bytes, nanoseconds, in the byte order of the machine.
const Variable = "CHAOS_CLOCK"

// Build builds the command pkg, seen from dir, with a movable clock. It keeps the
// changed sources in work.
func Build(dir, pkg, out, work string, flags ...string) error {
	goroot, err := output(dir, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	main, err := output(dir, "go", "list", "-f", "{{.Dir}}", pkg)
	if err != nil {
		return err
	}
	replace := map[string]string{}
	for _, f := range []struct {
		path, change string
		edits        []string
	}{
		{filepath.Join(goroot, "src/runtime/time_linux_amd64.s"), "time.s", []string{"TEXT time·now<ABIInternal>(SB)", "TEXT ·realNow<ABIInternal>(SB)"}},
		{filepath.Join(goroot, "src/runtime/timeasm.go"), "time.go", []string{
			"import _ \"unsafe\"", "import (\n\t\"internal/runtime/atomic\"\n\t_ \"unsafe\"\n)",
			"//go:linkname time_now time.now\nfunc time_now() (sec int64, nsec int32, mono int64)\n", movable,
		}},
		{filepath.Join(main, "movableclock.go"), "main.go", []string{"", reader}},
		// A function without a body needs an assembler file beside it.
		{filepath.Join(main, "movableclock.s"), "main.s", nil},
	} {
		b, err := os.ReadFile(f.path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("movable clock: %w", err)
		}
		text := string(b)
		for i := 0; i+1 < len(f.edits); i += 2 {
			if text != "" && strings.Count(text, f.edits[i]) != 1 {
				return fmt.Errorf("movable clock: %s of %s is not as expected: no %q", f.path, runtime.Version(), f.edits[i])
			}
			text = strings.Replace(text, f.edits[i], f.edits[i+1], 1)
		}
		changed := filepath.Join(work, f.change)
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			return err
		}
		replace[f.path] = changed
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	file := filepath.Join(work, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return err
	}
	_, err = output(dir, append([]string{"go", "build", "-overlay", file, "-o", out}, append(flags, pkg)...)...)
	return err
}

func output(dir string, args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("movable clock: %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// movable replaces the declaration of time.now in the runtime.
const movable = `func realNow() (sec int64, nsec int32, mono int64)

var wallOffset *int64

//go:linkname setWallOffset main.setWallOffset
func setWallOffset(p *int64) { wallOffset = p }

//go:linkname time_now time.now
func time_now() (sec int64, nsec int32, mono int64) {
	sec, nsec, mono = realNow()
	if p := wallOffset; p != nil {
		n := atomic.Loadint64(p) + int64(nsec)
		sec += n / 1e9
		if n %= 1e9; n < 0 {
			sec, n = sec-1, n+1e9
		}
		nsec = int32(n)
	}
	return sec, nsec, mono
}
`

// reader goes into the program's package main.
const reader = `package main

import (
	"os"
	"syscall"
	"unsafe"
)

func setWallOffset(p *int64)

func init() {
	name := os.Getenv("` + Variable + `")
	if name == "" {
		return
	}
	f, err := os.Open(name)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	b, err := syscall.Mmap(int(f.Fd()), 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	setWallOffset((*int64)(unsafe.Pointer(&b[0])))
}
`

// Clock is the offset of one program's clock.
type Clock struct{ file *os.File }

// New makes a clock that is right; the program gets its path in Variable.
func New(path string) (*Clock, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	c := &Clock{f}
	return c, c.Set(0)
}

// Set moves the clock at once: it is then this much ahead.
func (c *Clock) Set(offset time.Duration) error {
	// One write of one aligned word: the program sees the old or the new offset.
	_, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(offset)), 0)
	return err
}

// Path is the file's path.
func (c *Clock) Path() string { return c.file.Name() }

// Close closes the file; the program keeps its last offset.
func (c *Clock) Close() error { return c.file.Close() }
