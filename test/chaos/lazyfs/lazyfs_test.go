//go:build linux

package lazyfs

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"
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

func write(t *testing.T, path, content string, sync bool) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	if sync {
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
}

func syncDir(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

func content(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "-"
	}
	return string(b)
}

// TestPowerCut says which writes and names survive.
func TestPowerCut(t *testing.T) {
	d := New()
	dir, remount := mounted(t, d)
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("both"), "old", true)
	write(t, at("content"), "old", true)
	write(t, at("nothing"), "old", false)
	syncDir(t, dir)
	write(t, at("noname"), "x", true)
	write(t, at("content"), "new", false)
	if err := os.Rename(at("both"), at("renamed")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(at("content")); err != nil {
		t.Fatal(err)
	}
	remount(0)
	for name, want := range map[string]string{
		"both": "old", "renamed": "-", "content": "old", "nothing": "", "noname": "-",
	} {
		if got := content(at(name)); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	// With everything kept a power cut is only a restart.
	write(t, at("kept"), "yes", false)
	remount(1)
	if got := content(at("kept")); got != "yes" {
		t.Errorf("kept: %q", got)
	}
}

// TestTornPages: of an unsynced write some sectors survive, each whole.
func TestTornPages(t *testing.T) {
	d := New()
	dir, remount := mounted(t, d)
	file := filepath.Join(dir, "f")
	write(t, file, string(bytes.Repeat([]byte{1}, 1<<20)), true)
	syncDir(t, dir)
	write(t, file, string(bytes.Repeat([]byte{2}, 1<<20)), false)
	remount(0.5)
	counts := map[byte]int{}
	b := []byte(content(file))
	for at := 0; at < len(b); at += sectorSize {
		for _, c := range b[at : at+sectorSize] {
			if c != b[at] {
				t.Fatalf("the sector at %d is torn", at)
			}
		}
		counts[b[at]]++
	}
	if len(b) != 1<<20 || counts[1] < 800 || counts[2] < 800 {
		t.Errorf("%d bytes, sectors: %v", len(b), counts)
	}
}

// boltVariable makes the test binary a writer to the database in the directory
// that it names. A page fault on a mapped file stops a thread that Go cannot
// take its processor from, so the process that serves the disk must not have any.
const boltVariable = "LAZYFS_TEST_BOLT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(boltVariable); dir != "" {
		if err := writeBolt(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// writeBolt counts the keys 0, 1, ... that are there, and adds more until it
// fails. It prints what it found and each key that was committed.
func writeBolt(dir string) error {
	db, err := bbolt.Open(filepath.Join(dir, "db"), 0o600, &bbolt.Options{NoFreelistSync: true})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		return err
	}
	found := 0
	if err := db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket([]byte("b")); b != nil {
			for ; b.Get([]byte(fmt.Sprint(found))) != nil; found++ {
			}
		}
		return nil
	}); err != nil {
		return err
	}
	fmt.Println("found", found)
	for k := found; ; k++ {
		if err := db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			if err != nil {
				return err
			}
			return b.Put([]byte(fmt.Sprint(k)), bytes.Repeat([]byte{byte(k)}, 3000))
		}); err != nil {
			return nil
		}
		fmt.Println("committed", k+1)
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
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), boltVariable+"="+dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("round %d: %v\n%s", round, err, out)
		}
		<-cut
		for line := range strings.Lines(string(out)) {
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
	f, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d.SlowSync(50 * time.Millisecond)
	began := time.Now()
	if err := f.Sync(); err != nil || time.Since(began) < 50*time.Millisecond {
		t.Errorf("slow: %v after %s", err, time.Since(began))
	}
	d.SlowSync(0)
	d.FailSync(true)
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("failing: %v", err)
	}
	d.FailSync(false)
	release := d.HangSync()
	done := make(chan error, 1)
	go func() { done <- f.Sync() }()
	select {
	case <-done:
		t.Error("a hung sync returned")
	case <-time.After(50 * time.Millisecond):
	}
	release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	d.SetQuota(d.Used() + 3*pageSize)
	if _, err := f.Write(make([]byte, 2*pageSize)); err != nil {
		t.Error(err)
	}
	if _, err := f.Write(make([]byte, 2*pageSize)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("full: %v", err)
	}
	if err := os.Truncate(f.Name(), 0); err != nil {
		t.Error(err)
	}
	if _, err := f.WriteAt(make([]byte, 2*pageSize), 0); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if c := d.Counts(); c.Slow == 0 || c.Failed == 0 || c.Hung == 0 || c.Full == 0 {
		t.Errorf("%+v", c)
	}
}
