package watch

import (
	"errors"
	"sync/atomic"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Watcher is a position in the history of one table. It survives that the state
// is replaced by a snapshot: the history is part of the state. For one
// goroutine at a time.
type Watcher struct {
	hub   *Hub
	table string
	only  mvcc.Interest // canonical
	wake  chan struct{}
	// due is the first revision that concerns the watcher and that it may not have
	// read; zero if there is none up to Hub.routed.
	due   atomic.Uint64
	place int // in its group; guarded by Hub.watchersMu

	// Of the reading goroutine:
	state  *mvcc.State // the cursor's
	of     *mvcc.Table
	cursor *mvcc.Cursor
	after  proto.Revision
	more   bool // the last read filled its buffer
	long   bool // the key has changed too often: its history is read instead
}

// Next fills buf with the versions that follow and that the watcher is interested
// in, without waiting. progress is the revision up to which everything has been
// read. Errors: mvcc.ErrCompacted.
func (w *Watcher) Next(buf []*mvcc.Version) (n int, progress proto.Revision, err error) {
	if !w.more {
		// What does not concern the watcher is not looked at, and the floor may pass
		// it. The mark comes first: what concerns the watcher up to it has set due.
		routed := w.hub.routed.Load()
		if due := w.due.Swap(0); due == 0 {
			w.skip(proto.Revision(routed))
		} else {
			w.skip(proto.Revision(due) - 1)
		}
	}
	state := w.hub.State()
	// The mark before the table: a table that does not exist after the mark was read
	// has no version at or below it. And after due: what it stood for is visible.
	applied := state.Applied()
	if n, err = w.read(state, buf, applied); err != nil {
		return 0, w.after, err
	}
	w.more = n == len(buf)
	return n, w.after, nil
}

// skip moves the position on over what the watcher is not interested in.
func (w *Watcher) skip(to proto.Revision) {
	if to > w.after {
		w.after, w.cursor = to, nil
	}
}

// read reads up to applied, or until buf is full.
func (w *Watcher) read(state *mvcc.State, buf []*mvcc.Version, applied proto.Revision) (n int, err error) {
	for {
		got, err := w.readTable(state, buf[n:], applied)
		n += got
		// A table that is dropped while it is read says that it is compacted, whatever was read of it. The next look
		// finds that it is gone, or the one that was made since.
		if !errors.Is(err, mvcc.ErrCompacted) || state.Floor() > w.after {
			return n, err
		}
		w.cursor = nil
	}
}

// readTable does so in the table that there is now. With an error, n versions were read before it.
func (w *Watcher) readTable(state *mvcc.State, buf []*mvcc.Version, applied proto.Revision) (n int, err error) {
	t := state.Table(w.table)
	if t == nil {
		if state.Floor() > w.after {
			return 0, mvcc.ErrCompacted
		}
		w.after, w.cursor = max(w.after, applied), nil
		return 0, nil
	}
	if w.only.Key != "" && !w.long {
		n, w.after, err = t.Changes(w.only.Key, buf, w.after, applied)
		if !errors.Is(err, mvcc.ErrLongChain) {
			return n, err
		}
		w.long = true
	}
	if w.cursor == nil || w.state != state || w.of != t {
		if w.cursor, err = t.Watch(w.after); err != nil {
			return 0, err
		}
		w.state, w.of = state, t
	}
	for {
		room := buf[n:]
		got, err := w.cursor.Next(room, applied)
		if err != nil {
			return n, err
		}
		w.after = w.cursor.After()
		for _, v := range room[:got] {
			if w.only.Concerns(v) {
				buf[n] = v
				n++
			}
		}
		switch {
		case n == len(buf):
			return n, nil
		case got < len(room):
			w.releaseCursor()
			return n, nil
		}
	}
}

// releaseCursor lets go of a cursor at the end of the history. It holds a piece of that, and
// all pieces after it: a watcher that is skipped for long would keep them alive.
func (w *Watcher) releaseCursor() {
	if !w.only.All() {
		w.cursor, w.long = nil, false
	}
}

// Wake is sent to when there may be more to read. Capacity one.
func (w *Watcher) Wake() <-chan struct{} { return w.wake }

// Poke sends to Wake, though there may be nothing to read: who waits for that need wait for nothing else. Safe
// for concurrent use.
func (w *Watcher) Poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Close releases the watcher. Its Wake channel is not closed.
func (w *Watcher) Close() { w.hub.remove(w) }
