//go:build linux

package lazyfs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
)

// mounted mounts a disk on a new directory; remount cuts the current and mounts
// it again.
func mounted(t *testing.T, d *Disk) (dir string, remount func(kept float64)) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir = t.TempDir()
	here := func(f func() error) error { return f() }
	unmount, err := d.Mount(dir, here)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unmount(); err != nil {
			t.Error(err)
		}
	})
	rng := rand.New(rand.NewPCG(1, 2))
	return dir, func(kept float64) {
		t.Helper()
		if err := unmount(); err != nil {
			t.Fatal(err)
		}
		d.PowerCut(kept, rng)
		if unmount, err = d.Mount(dir, here); err != nil {
			t.Fatal(err)
		}
	}
}

func must(t *testing.T, out string) {
	t.Helper()
	if out != "" {
		t.Fatal(out)
	}
}

// TestPowerCut says which writes and names survive.
func TestPowerCut(t *testing.T) {
	d := New()
	dir, remount := mounted(t, d)
	must(t, used(dir, "write both old", "sync both", "write content old", "sync content", "write nothing old", "sync",
		"write noname x", "sync noname", "write content new", "rename both renamed", "remove content"))
	remount(0)
	for name, want := range map[string]string{
		"both": "old", "renamed": "-", "content": "old", "nothing": "", "noname": "-",
	} {
		if got := used(dir, "cat "+name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	// With everything kept a power cut is only a restart.
	must(t, used(dir, "write kept yes"))
	remount(1)
	if got := used(dir, "cat kept"); got != "yes" {
		t.Errorf("kept: %q", got)
	}
}

// TestTornPages: of an unsynced write some sectors survive, each whole.
func TestTornPages(t *testing.T) {
	d := New()
	dir, remount := mounted(t, d)
	must(t, used(dir, "write f 1 1000000", "sync f", "sync", "write f 2 1000000"))
	remount(0.5)
	b := used(dir, "cat f")
	counts := map[byte]int{}
	for at := 0; at < len(b); at += sectorSize {
		for _, c := range []byte(b[at:min(len(b), at+sectorSize)]) {
			if c != b[at] {
				t.Fatalf("the sector at %d is torn", at)
			}
		}
		counts[b[at]]++
	}
	if len(b) != 1000000 || counts['1'] < 700 || counts['2'] < 700 {
		t.Errorf("%d bytes, sectors: %v", len(b), counts)
	}
}

// TestBolt runs the database that the nodes use on the disk, which maps the file
// into memory while it writes to it, and cuts the current in the middle.
func TestBolt(t *testing.T) {
	d := New()
	dir, remount := mounted(t, d)
	committed := 0
	for round := range 6 {
		cut := d.CutAtSync(60, round%2 == 0)
		out := used(dir, "bolt")
		select {
		case <-cut:
		case <-time.After(10 * time.Second):
			t.Fatalf("round %d: %s", round, out)
		}
		for line := range strings.Lines(out) {
			var n int
			if _, err := fmt.Sscanf(line, "found %d", &n); err == nil && n < committed {
				t.Fatalf("round %d: %d keys are there, %d were committed", round, n, committed)
			}
			if _, err := fmt.Sscanf(line, "committed %d", &n); err == nil {
				committed = n
			}
		}
		remount(float64(round) / 5)
	}
	if committed < 50 {
		t.Errorf("only %d commits", committed)
	}
}

// TestFaults: slow, failing, hung and full.
func TestFaults(t *testing.T) {
	d := New()
	dir, _ := mounted(t, d)
	must(t, used(dir, "write f x"))
	d.SlowSync(50 * time.Millisecond)
	began := time.Now()
	if out := used(dir, "sync f"); out != "" || time.Since(began) < 50*time.Millisecond {
		t.Errorf("slow: %q after %s", out, time.Since(began))
	}
	d.SlowSync(0)
	d.FailSync(true)
	if out := used(dir, "sync f"); !strings.Contains(out, "input/output error") {
		t.Errorf("failing: %q", out)
	}
	d.FailSync(false)
	d.HangSync()
	hung, out := use(dir, "sync f")
	if err := hung.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- hung.Wait() }()
	for d.Counts().Hung == 0 {
		time.Sleep(time.Millisecond)
	}
	select {
	case <-ended:
		t.Error("a hung sync returned")
	case <-time.After(50 * time.Millisecond):
	}
	d.Release()
	if err := <-ended; err != nil {
		t.Error(err, out)
	}
	d.SetQuota(d.Used() + 3*pageSize)
	must(t, used(dir, "write g x 8192"))
	if out := used(dir, "write h x 16384"); !strings.Contains(out, "no space left") {
		t.Errorf("full: %q", out)
	}
	must(t, used(dir, "truncate g", "write f y 8192"))
	if c := d.Counts(); c.Slow == 0 || c.Failed == 0 || c.Hung == 0 || c.Full == 0 {
		t.Errorf("%+v", c)
	}
}
