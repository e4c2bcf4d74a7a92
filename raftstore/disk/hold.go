package disk

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// holds keep the log for nodes that are being sent a snapshot: what follows the
// snapshot's index is what such a node needs next. Without that, under a load that
// fills the log faster than the snapshot is sent and loaded, the entries are cut
// meanwhile, the node is sent the next snapshot, and so on, for as long as the load
// lasts.
//
// A hold is bounded in time, and in the bytes that the log has grown by since it
// began. When it has ended, the log is cut as usual.
type holds struct {
	grown atomic.Int64  // bytes stored since the log was opened
	from  atomic.Uint64 // see KeepFrom

	mu   sync.Mutex
	list []*hold
}

type hold struct {
	index uint64    // of the snapshot
	began time.Time // and how much the log had grown by then:
	grown int64
	until time.Time // zero as long as the snapshot is being sent
}

// Hold keeps the log from index on, the index of a snapshot that is about to be sent,
// until the returned function is called, and behind that for as long again as it was
// held, or LogOptions.HoldFor, whichever is longer: in that time the node fetches what
// was written meanwhile. It ends early when the log has grown by LogOptions.HoldBytes.
// Only DeleteRange heeds it. Further calls of the function do nothing.
func (l *Log) Hold(index uint64) (release func()) {
	h := &hold{index: index, began: time.Now(), grown: l.holds.grown.Load()}
	l.holds.mu.Lock()
	// Also here: a snapshot that cannot be sent is tried again and again, and while the
	// log is not cut nothing else forgets the attempts.
	l.sweepHolds()
	l.holds.list = append(l.holds.list, h)
	l.holds.mu.Unlock()
	return sync.OnceFunc(func() {
		now := time.Now()
		l.holds.mu.Lock()
		h.until = now.Add(max(l.o.HoldFor, now.Sub(h.began)))
		l.holds.mu.Unlock()
	})
}

// KeepFrom keeps the log from an index on, until the next call. Zero: nothing more than Hold does. DeleteRange and CutFront heed it.
func (l *Log) KeepFrom(index uint64) { l.holds.from.Store(index) }

// CutFront deletes the entries up to an index that a snapshot has, but for what is kept for other nodes, and for the newest one. Raft itself cuts the log only when
// it takes a snapshot, and takes none without a new entry: a full log could then never be cut by more than it was.
func (l *Log) CutFront(upTo uint64) error {
	first, err := l.backend.FirstIndex()
	if err != nil {
		return err
	}
	last, err := l.backend.LastIndex()
	if err != nil {
		return err
	}
	if upTo = l.unheld(upTo); first > 0 && first <= upTo && upTo < last {
		return l.Drop(first, upTo)
	}
	return nil
}

// unheld returns the index up to which the log may be cut, if it was to be cut up to
// an index: the entry at a held snapshot's index stays too, for the leader names its
// term to the node.
func (l *Log) unheld(upTo uint64) uint64 {
	l.holds.mu.Lock()
	defer l.holds.mu.Unlock()
	l.sweepHolds()
	for _, h := range l.holds.list {
		upTo = min(upTo, max(h.index, 1)-1)
	}
	if from := l.holds.from.Load(); from > 0 {
		upTo = min(upTo, from-1)
	}
	return upTo
}

// sweepHolds forgets the holds that have ended. The caller has holds.mu.
func (l *Log) sweepHolds() {
	now, grown := time.Now(), l.holds.grown.Load()
	l.holds.list = slices.DeleteFunc(l.holds.list, func(h *hold) bool {
		if bytes := grown - h.grown; bytes > l.o.HoldBytes {
			l.o.GaveUp(h.index, bytes)
			return true
		}
		return !h.until.IsZero() && now.After(h.until)
	})
}
