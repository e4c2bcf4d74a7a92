//go:build linux && (amd64 || arm64)

package slowsync

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"golang.org/x/sys/unix"
)

// fileVariable names the file that a process of this test syncs, once for each line that it reads.
const fileVariable = "SLOWSYNC_FILE"

func TestMain(m *testing.M) {
	if file := os.Getenv(fileVariable); file != "" {
		if err := syncer(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// syncer syncs a file in one way and the other, on two threads, and prints what they took together.
func syncer(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		began := time.Now()
		var errs [2]error
		var wg sync.WaitGroup
		wg.Go(func() { errs[0] = f.Sync() })
		wg.Go(func() { errs[1] = unix.Fdatasync(int(f.Fd())) })
		wg.Wait()
		fmt.Println(time.Since(began).Microseconds(), errs[0], errs[1])
	}
	return nil
}

// process is a syncer that runs.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func start(t *testing.T, d *Disk) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), fileVariable+"="+filepath.Join(t.TempDir(), "file"))
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	must.OK(t, err)
	out, err := p.cmd.StdoutPipe()
	must.OK(t, err)
	p.in, p.out = in, bufio.NewReader(out)
	must.OK(t, d.Start(p.cmd))
	t.Cleanup(func() {
		in.Close()
		if err := p.cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *process) begin() {
	if _, err := fmt.Fprintln(p.in); err != nil {
		p.t.Fatal(err)
	}
}

// end is how long the syncs took that begin began.
func (p *process) end() time.Duration {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	must.OK(p.t, err)
	var micros int64
	var first, second string
	if _, err := fmt.Sscan(line, &micros, &first, &second); err != nil || first != "<nil>" || second != "<nil>" {
		p.t.Fatalf("a sync failed: %s (%v)", line, err)
	}
	return time.Duration(micros) * time.Microsecond
}

func (p *process) syncs() time.Duration {
	p.t.Helper()
	p.begin()
	return p.end()
}

func newDisk(t *testing.T) *Disk {
	t.Helper()
	d, err := New()
	must.OK(t, err)
	t.Cleanup(func() { must.Close(t, d) })
	return d
}

// awaitTwo waits until both syncs of a process have asked.
func awaitTwo(t *testing.T, d *Disk) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 10_000 {
		d.mu.Lock()
		n := d.delayed
		d.mu.Unlock()
		if n == 2 {
			return
		}
		<-tick.C
	}
	t.Fatal("the syncs do not wait")
}

// TestDelay: the syncs of the processes on a disk take longer while it says so, those of others
// do not, and what waits when it ends need not wait any more.
func TestDelay(t *testing.T) {
	slow, other := newDisk(t), newDisk(t)
	p, q := start(t, slow), start(t, other)
	p.syncs()
	if n, err := slow.Delay(300 * time.Millisecond); n != 0 || err != nil {
		t.Errorf("%d syncs were delayed before there was a delay (%v)", n, err)
	}
	for range 3 {
		if took := p.syncs(); took < 300*time.Millisecond {
			t.Errorf("syncs that are delayed by 300 ms took %s", took)
		}
	}
	n, err := slow.Delay(time.Hour)
	if n != 6 || err != nil {
		t.Errorf("%d syncs were delayed, want 6 (%v)", n, err)
	}
	if _, err := other.Delay(0); err != nil {
		t.Error(err)
	}
	p.begin()
	awaitTwo(t, slow)
	q.syncs() // or this would take an hour
	if n, err := slow.Delay(0); n != 2 || err != nil {
		t.Errorf("%d syncs wait, want 2 (%v)", n, err)
	}
	p.end()
	if p.syncs(); t.Failed() {
		return
	}
	if n, err := slow.Delay(0); n != 0 || err != nil {
		t.Errorf("%d syncs were delayed without a delay (%v)", n, err)
	}
}

// TestKilled: a process that is killed while it waits is gone at once, and the disk serves the next one.
func TestKilled(t *testing.T) {
	d := newDisk(t)
	p := &process{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), fileVariable+"="+filepath.Join(t.TempDir(), "file"))
	in, err := p.cmd.StdinPipe()
	must.OK(t, err)
	p.in = in
	must.OK(t, d.Start(p.cmd))
	if _, err := d.Delay(time.Hour); err != nil {
		t.Fatal(err)
	}
	p.begin()
	awaitTwo(t, d)
	must.OK(t, p.cmd.Process.Kill())
	if err := p.cmd.Wait(); err == nil {
		t.Error("it has ended by itself")
	}
	if _, err := d.Delay(0); err != nil {
		t.Fatal(err)
	}
	start(t, d).syncs()
}
