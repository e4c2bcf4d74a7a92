//go:build linux

package lazyfs

import (
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// faults is what is wrong with a disk besides a lack of current.
type faults struct {
	mu        sync.Mutex
	syncDelay time.Duration
	hang      chan struct{} // syncs wait until it is closed; nil: they do not wait
	syncError bool
	cutIn     int64 // syncs until the current goes; 0: it stays
	cutAfter  bool  // the last of them still succeeds
	cut       chan struct{}

	counts struct{ syncs, writes, full, failed, hung, slow atomic.Uint64 }
}

// Counts is what a disk has done since it was made.
type Counts struct{ Syncs, Writes, Full, Failed, Hung, Slow uint64 }

// Counts returns what the disk has done so far.
func (d *Disk) Counts() Counts {
	c := &d.faults.counts
	return Counts{c.syncs.Load(), c.writes.Load(), c.full.Load(), c.failed.Load(), c.hung.Load(), c.slow.Load()}
}

// SlowSync makes each sync take this much longer.
func (d *Disk) SlowSync(by time.Duration) {
	d.faults.mu.Lock()
	defer d.faults.mu.Unlock()
	d.faults.syncDelay = by
}

// FailSync makes every sync fail with EIO: what was written before it is not
// durable.
func (d *Disk) FailSync(fail bool) {
	d.faults.mu.Lock()
	defer d.faults.mu.Unlock()
	d.faults.syncError = fail
}

// HangSync makes syncs wait until Release is called. The process that waits
// cannot even be killed before, as with a disk that does not answer.
func (d *Disk) HangSync() {
	d.faults.mu.Lock()
	defer d.faults.mu.Unlock()
	if d.faults.hang == nil {
		d.faults.hang = make(chan struct{})
	}
}

// Release lets the syncs go on that hang, and those to come.
func (d *Disk) Release() {
	d.faults.mu.Lock()
	defer d.faults.mu.Unlock()
	if d.faults.hang != nil {
		close(d.faults.hang)
		d.faults.hang = nil
	}
}

// Heal takes every fault away but a lack of current.
func (d *Disk) Heal() {
	d.Release()
	d.faults.clear()
	d.SetQuota(0)
	d.Refuse(0, 0)
}

// CutAtSync takes the current away at the n-th sync from now, before it does
// anything or when it is done; the channel is closed at that moment.
func (d *Disk) CutAtSync(n int, after bool) <-chan struct{} {
	d.faults.mu.Lock()
	defer d.faults.mu.Unlock()
	d.faults.cutIn, d.faults.cutAfter, d.faults.cut = int64(n), after, make(chan struct{})
	return d.faults.cut
}

// clear makes syncs quick and successful, and the current stay.
func (f *faults) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.syncDelay, f.syncError, f.cutIn, f.cut = 0, false, 0, nil
}

// beforeSync waits as long as a sync has to and says how it ends; cutNow and
// cutThen say whether the current goes before or behind it.
func (f *faults) beforeSync() (cutNow, cutThen bool, err error) {
	f.counts.syncs.Add(1)
	f.mu.Lock()
	delay, hang, fail := f.syncDelay, f.hang, f.syncError
	if f.cutIn > 0 {
		if f.cutIn--; f.cutIn == 0 {
			cutNow, cutThen = !f.cutAfter, f.cutAfter
		}
	}
	f.mu.Unlock()
	if delay > 0 {
		f.counts.slow.Add(1)
		time.Sleep(delay)
	}
	if hang != nil {
		f.counts.hung.Add(1)
		<-hang
	}
	if fail {
		f.counts.failed.Add(1)
		err = syscall.EIO
	}
	return cutNow, cutThen, err
}

// syncInode is fsync as a process sees it.
func (d *Disk) syncInode(id uint64) error {
	cutNow, cutThen, err := d.faults.beforeSync()
	d.mu.Lock()
	defer d.mu.Unlock()
	if cutNow {
		d.cutLocked()
	}
	i := d.inodes[id]
	switch {
	case d.off:
		return syscall.EIO
	case err != nil:
		return err
	case i == nil:
		return syscall.ENOENT
	}
	i.sync()
	if cutThen {
		d.cutLocked()
	}
	return nil
}

func (d *Disk) cutLocked() {
	d.off = true
	d.faults.mu.Lock()
	defer d.faults.mu.Unlock()
	if d.faults.cut != nil {
		close(d.faults.cut)
		d.faults.cut = nil
	}
}
