package raftstore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/planted"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Watcher is a position in the history of one table. It survives that the state
// is replaced by a snapshot: the history is part of the state. For one
// goroutine at a time.
type Watcher struct {
	hub    *hub
	table  string
	state  *mvcc.State // the cursor's
	cursor *mvcc.Cursor
	after  proto.Revision
	wake   chan struct{}
}

// Next fills buf with the versions that follow, without waiting. progress is the
// revision up to which everything has been read. Errors: mvcc.ErrCompacted.
func (w *Watcher) Next(buf []*mvcc.Version) (n int, progress proto.Revision, err error) {
	state := w.hub.current()
	// First the mark, then the table: a table that does not exist after the mark
	// was read has no version at or below it.
	applied := state.Applied()
	if w.cursor == nil || w.state != state {
		t := state.Table(w.table)
		if t == nil {
			if state.Floor() > w.after {
				return 0, w.after, mvcc.ErrCompacted
			}
			w.after = max(w.after, applied)
			return 0, w.after, nil
		}
		cursor, err := t.Watch(w.after)
		if err != nil {
			return 0, w.after, err
		}
		w.cursor, w.state = cursor, state
	}
	n, err = w.cursor.Next(buf, applied)
	if err != nil {
		return 0, w.after, err
	}
	w.after = w.cursor.After()
	if planted.On(planted.EarlyBookmark) && n < len(buf) {
		time.Sleep(earlier)
		return n, max(w.after, state.Applied()), nil
	}
	return n, w.after, nil
}

// earlier is how far ahead of its events the planted bug lets progress run.
const earlier = 2 * time.Millisecond

// Wake is sent to when there may be more to read. Capacity one.
func (w *Watcher) Wake() <-chan struct{} { return w.wake }

// Close releases the watcher. Its Wake channel is not closed.
func (w *Watcher) Close() { w.hub.remove(w) }

// hub tells watchers that a table has grown. The applying goroutine only marks
// tables and pokes; one goroutine of the hub's own does the waking, so that ten
// thousand watchers cost the apply path nothing.
type hub struct {
	state atomic.Pointer[mvcc.State]
	poke  chan struct{}
	done  chan struct{}
	ended chan struct{}

	mu    sync.Mutex
	grown map[string]struct{} // tables with new versions since the last round
	all   bool                // the state was replaced: wake everybody

	watchersMu sync.Mutex
	watchers   map[string]map[*Watcher]struct{}
	count      atomic.Int64
}

func newHub(state *mvcc.State) *hub {
	h := &hub{
		poke:     make(chan struct{}, 1),
		done:     make(chan struct{}),
		ended:    make(chan struct{}),
		grown:    map[string]struct{}{},
		watchers: map[string]map[*Watcher]struct{}{},
	}
	h.state.Store(state)
	go h.run()
	return h
}

func (h *hub) current() *mvcc.State { return h.state.Load() }

// replace swaps the state, as after a snapshot.
func (h *hub) replace(state *mvcc.State) {
	h.state.Store(state)
	h.mu.Lock()
	h.all = true
	h.mu.Unlock()
	h.wakeUp()
}

// note marks a table as grown; wakeUp lets the hub look. Called after Publish.
func (h *hub) note(table string) {
	h.mu.Lock()
	h.grown[table] = struct{}{}
	h.mu.Unlock()
}

func (h *hub) wakeUp() {
	select {
	case h.poke <- struct{}{}:
	default:
	}
}

func (h *hub) watch(table string, after proto.Revision) (*Watcher, error) {
	if h.current().Floor() > after {
		return nil, mvcc.ErrCompacted
	}
	w := &Watcher{hub: h, table: table, after: after, wake: make(chan struct{}, 1)}
	// What was applied between the caller's read and this call wakes nobody. Filled
	// before the hub knows the watcher: later, its wake could have come first, and
	// this one would wait for a reader that does not exist yet.
	w.wake <- struct{}{}
	h.watchersMu.Lock()
	set := h.watchers[table]
	if set == nil {
		set = map[*Watcher]struct{}{}
		h.watchers[table] = set
	}
	set[w] = struct{}{}
	h.watchersMu.Unlock()
	h.count.Add(1)
	return w, nil
}

func (h *hub) remove(w *Watcher) {
	h.watchersMu.Lock()
	defer h.watchersMu.Unlock()
	set := h.watchers[w.table]
	if _, ok := set[w]; !ok {
		return
	}
	delete(set, w)
	if len(set) == 0 {
		delete(h.watchers, w.table)
	}
	h.count.Add(-1)
}

func (h *hub) run() {
	defer close(h.ended)
	for {
		select {
		case <-h.done:
			return
		case <-h.poke:
		}
		h.mu.Lock()
		grown, all := h.grown, h.all
		h.grown, h.all = make(map[string]struct{}, len(grown)), false
		h.mu.Unlock()
		h.watchersMu.Lock()
		if all {
			for _, set := range h.watchers {
				wake(set)
			}
		} else {
			for table := range grown {
				wake(h.watchers[table])
			}
		}
		h.watchersMu.Unlock()
	}
}

func wake(set map[*Watcher]struct{}) {
	for w := range set {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

func (h *hub) close() {
	close(h.done)
	<-h.ended
}
