package raftstore

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quorate/quorate/raftstore/disk"
)

const (
	// firstSnapshotPause follows a snapshot that has found no room on its way; each further one doubles it, up to longestSnapshotPause.
	firstSnapshotPause   = 30 * time.Second
	longestSnapshotPause = 5 * time.Minute
)

// snapshotRoom refuses snapshots for which this node's disk has no room, before their bytes are sent: the leader tries again every few
// seconds.
type snapshotRoom struct {
	mu    sync.Mutex
	free  int64         // when the last one began
	pause time.Duration // 0: that one has found room
	until time.Time

	size    int64     // of the last one
	lacks   bool      // there was no room for that
	refused time.Time // when that was found
}

// lacksAge is how old may be that a snapshot has found no room: the leader offers it every ten seconds for as long as this node needs it.
const lacksAge = 30 * time.Second

// admit returns an error for a snapshot of size bytes, while so many are free. The file needs more than the stream, by a share
// that depends on the objects, so what seems to fit may fail, and is tried again when there is more room or the pause has ended.
func (r *snapshotRoom) admit(now time.Time, size, free int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.size = size
	switch {
	case free < size:
		r.lacks, r.refused = true, now
		return fmt.Errorf("%w: a snapshot has %d bytes, and there is room for %d", disk.ErrNoRoom, size, free)
	case now.Before(r.until) && free < r.free+size/8:
		r.lacks, r.refused = true, now
		return fmt.Errorf("%w: a snapshot has %d bytes, and one has found no room when there was room for %d", disk.ErrNoRoom, size, r.free)
	}
	r.free = free
	return nil
}

// received notes what became of one that was admitted.
func (r *snapshotRoom) received(now time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.pause, r.until, r.lacks = 0, time.Time{}, false
	case errors.Is(err, disk.ErrNoRoom):
		r.pause = min(max(2*r.pause, firstSnapshotPause), longestSnapshotPause)
		r.until = now.Add(r.pause)
		r.lacks, r.refused = true, now
	}
}

// lacking returns the bytes of the snapshot that this node needs and has no room for, or 0.
func (r *snapshotRoom) lacking(now time.Time) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.lacks || now.Sub(r.refused) > lacksAge {
		return 0
	}
	return r.size
}

// admitSnapshot is asked before this node receives a snapshot of size bytes.
func (d *diskSpace) admitSnapshot(size int64) error {
	err := d.snapshot.admit(time.Now(), size, d.freeBytes())
	if err != nil {
		d.often.Warn(d.node.Logger, "this node needs a snapshot of the leader, and its disk has no room for it: make room there", "err", err)
	}
	return err
}
