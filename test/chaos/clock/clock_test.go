//go:build linux && amd64

package clock

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

const program = `package main

import (
	"bufio"
	"fmt"
	"os"
	"time"
)

func main() {
	start := time.Now()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(time.Now().UnixNano(), int64(time.Since(start)))
	}
}
`

// TestMovable builds a program and moves its wall clock there and back; its
// monotonic clock goes on.
func TestMovable(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module clocktest\n\ngo 1.26\n", "main.go": program} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	bin := filepath.Join(dir, "program")
	must.OK(t, Build(dir, ".", bin, t.TempDir()))
	c, err := New(filepath.Join(dir, "offset"))
	must.OK(t, err)
	defer c.Close()
	cmd := exec.CommandContext(t.Context(), bin)
	cmd.Env = append(os.Environ(), Variable+"="+c.Path())
	in, err := cmd.StdinPipe()
	must.OK(t, err)
	out, err := cmd.StdoutPipe()
	must.OK(t, err)
	must.OK(t, cmd.Start())
	lines := bufio.NewReader(out)
	for _, offset := range []time.Duration{0, time.Hour, -time.Hour, 90*time.Minute + 999999999, -1, 0} {
		must.OK(t, c.Set(offset))
		fmt.Fprintln(in)
		var wall, mono int64
		if _, err := fmt.Fscan(lines, &wall, &mono); err != nil {
			t.Fatal(err)
		}
		if off := time.Until(time.Unix(0, wall)) - offset; off.Abs() > time.Second {
			t.Errorf("offset %s: the clock is %s off", offset, off)
		}
		if mono < 0 || mono > int64(10*time.Second) {
			t.Errorf("offset %s: %s on the monotonic clock", offset, time.Duration(mono))
		}
	}
	in.Close()
	must.OK(t, cmd.Wait())
}
