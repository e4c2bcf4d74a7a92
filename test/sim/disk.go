package sim

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/quorate/quorate/raftstore/disk"
)

// drive is a process's data directory with a crash model. Every durable change of
// the store passes commit; crash takes the image that the next start finds:
// everything whose commit had returned, and of a commit under way all, nothing,
// or a part.
type drive struct {
	dir  string
	host *host

	mu  sync.Mutex // held while files change or are copied; never while time passes
	rng *rand.Rand
	// under are the commits that were called and have not changed a file yet.
	under []*pending
	dead  bool
	end   chan struct{} // closed with dead

	base time.Duration // what a sync takes: 0 to base
	slow time.Duration // added: slow to 2*slow
	fail error         // what commits fail with
	once bool          // only the next one
	full bool          // most changes find no room, and are not begun
}

// pending is a commit under way.
type pending struct {
	file   string
	commit func() error
	done   bool
	err    error
}

func newDrive(dir string, h *host, rng *rand.Rand, base time.Duration) *drive {
	return &drive{dir: dir, host: h, rng: rng, base: base, end: make(chan struct{})}
}

// commit is the store's disk.CommitFunc.
func (d *drive) commit(file string, change func() error) error {
	d.mu.Lock()
	if d.dead {
		// The process has ended; what is left of it writes to a doomed directory.
		defer d.mu.Unlock()
		return change()
	}
	p := &pending{file: file, commit: change}
	d.under = append(d.under, p)
	before, after := d.durationLocked()/2, d.durationLocked()/2
	d.mu.Unlock()
	d.wait(before)

	if err := d.change(p); err != nil {
		return err
	}
	// The time in which it is on disk and nobody was told.
	d.wait(after)
	return nil
}

// change makes a commit, or fails it.
func (d *drive) change(p *pending) error {
	d.mu.Lock()
	defer d.mu.Unlock() // also when the commit ends the process
	if d.full && !d.dead && !p.done && d.rng.IntN(10) < 7 {
		d.dropLocked(p)
		path := filepath.Join(d.dir, p.file)
		if p.file == "raft.db" {
			return &os.PathError{Op: "write", Path: path, Err: syscall.ENOSPC}
		}
		return fmt.Errorf("write %s: %w", path, disk.ErrNoRoom)
	}
	if d.fail == nil || d.dead || p.done {
		p.run()
		d.dropLocked(p)
		return p.err
	}
	err := d.fail
	if d.once {
		d.fail = nil
	}
	// A file that changes in place stays under way: nobody knows what a failed
	// sync has left.
	if !inPlace(p.file) {
		d.dropLocked(p)
	}
	return &os.PathError{Op: "sync", Path: filepath.Join(d.dir, p.file), Err: err}
}

func (p *pending) run() {
	if !p.done {
		p.done, p.err = true, p.commit()
	}
}

func (d *drive) dropLocked(p *pending) {
	for i, q := range d.under {
		if q == p {
			d.under = append(d.under[:i], d.under[i+1:]...)
			return
		}
	}
}

func (d *drive) underLocked(file string) (n int) {
	for _, p := range d.under {
		if p.file == file {
			n++
		}
	}
	return n
}

// bolt reports whether a file is a bbolt file that changes in place.
func bolt(file string) bool { return file == "raft.db" || file == "state.db" }

// segment reports whether a file is one of the log's segments, which is appended to, and
// removed.
func segmentFile(file string) bool { return filepath.Dir(file) == "raft-log" }

func inPlace(file string) bool { return bolt(file) || segmentFile(file) }

func (d *drive) durationLocked() time.Duration {
	t := time.Duration(d.rng.Int64N(int64(d.base) + 1))
	if d.slow > 0 {
		t += d.slow + time.Duration(d.rng.Int64N(int64(d.slow)))
	}
	return t
}

// wait lets time pass, and the process be paused, unless it ends.
func (d *drive) wait(t time.Duration) {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-d.end:
		return
	}
	for {
		d.host.net.mu.Lock()
		paused, changed := d.host.paused, d.host.net.changed
		d.host.net.mu.Unlock()
		if !paused {
			return
		}
		select {
		case <-changed:
		case <-d.end:
			return
		}
	}
}

// set changes how the disk behaves.
func (d *drive) set(f func(*drive)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

var errIO, errFull = error(syscall.EIO), error(syscall.ENOSPC)

// crash ends the process's writing and leaves in to what the next start finds.
// The process must not answer anybody any more.
func (d *drive) crash(to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return errKilled
	}
	d.dead = true
	close(d.end)
	torn := map[string][]byte{} // what a file was before a change that is left torn
	for _, p := range d.under {
		switch d.rng.IntN(3) {
		case 0: // none of it
		case 1: // all of it
			p.run()
		case 2:
			// A second commit would write to pages that the first has freed.
			if !inPlace(p.file) || p.done || d.underLocked(p.file) > 1 {
				continue
			}
			before, err := os.ReadFile(filepath.Join(d.dir, p.file))
			if err != nil {
				return err
			}
			torn[p.file] = before
			p.run()
		}
	}
	if err := copyDir(d.dir, to); err != nil {
		return fmt.Errorf("image of %s: %w", d.dir, err)
	}
	for name, before := range torn {
		tear := d.tear
		if segmentFile(name) {
			tear = d.tearSegment
		}
		if err := tear(filepath.Join(to, name), before); err != nil {
			return err
		}
	}
	return nil
}

// page is bbolt's; metaPages are written last, after a sync of all others.
const (
	page      = 4096
	metaPages = 2
)

// tear undoes a bbolt commit in part: some of its data pages are there, its meta
// page is not. bbolt syncs data pages before it writes the meta page, and writes
// only to pages that the meta page before does not refer to.
func (d *drive) tear(path string, before []byte) error {
	after, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	out := make([]byte, max(len(before), len(after)))
	copy(out, before)
	for at := metaPages * page; at+page <= len(after); at += page {
		if d.rng.IntN(2) == 0 {
			copy(out[at:at+page], after[at:])
		}
	}
	return os.WriteFile(path, out, 0o600)
}

// sector is the least that a disk writes as a whole.
const sector = 512

// tearSegment undoes an append in part: some of its sectors are there. A segment that was
// removed is there or not.
func (d *drive) tearSegment(path string, before []byte) error {
	after, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	out := append(before, make([]byte, max(0, len(after)-len(before)))...)
	for at := 0; at < len(after); at += sector {
		if end := min(at+sector, len(after)); d.rng.IntN(2) == 0 {
			copy(out[at:end], after[at:end])
		}
	}
	return os.WriteFile(path, out, 0o600)
}

func copyDir(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := copyDir(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
				return err
			}
			continue
		}
		err := copyFile(filepath.Join(from, e.Name()), filepath.Join(to, e.Name()))
		if err != nil && !errors.Is(err, os.ErrNotExist) { // else it was removed or renamed just now
			return err
		}
	}
	return nil
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
