package watch

import (
	"sync"
	"sync/atomic"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Hub tells watchers that there is something for them. The applying goroutine only
// marks tables and pokes; one goroutine of the hub's own looks who is interested,
// so that ten thousand watchers cost the apply path nothing, and a change costs no
// watcher anything that it does not concern.
//
// No change can be missed. The hub looks for the watchers of each version after it
// was published, at least once. A watcher that is not among them then registers
// later, and has its first wake from the start: its first read takes an applied
// mark that covers the version.
type Hub struct {
	state atomic.Pointer[mvcc.State]
	// routed is the revision up to which the watchers of all changes were told.
	// Watchers rely on it only for changes after their registration.
	routed atomic.Uint64
	poke   chan struct{}
	done   chan struct{}
	ended  chan struct{}

	mu       sync.Mutex
	grown    map[string]struct{} // tables with new versions since the last round
	applied  proto.Revision      // up to which grown is complete
	replaced bool                // the state was replaced: wake everybody
	times    timeline            // of what was published; written under mu

	watchersMu sync.Mutex
	watchers   map[string]*interests // by table
	listeners  map[chan struct{}]struct{}
	count      atomic.Int64
}

// New returns the hub of a state, with a goroutine that ends with Close.
func New(state *mvcc.State) *Hub {
	h := &Hub{
		poke:      make(chan struct{}, 1),
		done:      make(chan struct{}),
		ended:     make(chan struct{}),
		grown:     map[string]struct{}{},
		watchers:  map[string]*interests{},
		listeners: map[chan struct{}]struct{}{},
	}
	h.state.Store(state)
	h.applied = state.Applied()
	h.routed.Store(uint64(h.applied))
	h.times.init(h.applied, Now())
	go h.run()
	return h
}

// State is the current state.
func (h *Hub) State() *mvcc.State { return h.state.Load() }

// Watchers is how many watchers there are.
func (h *Hub) Watchers() int64 { return h.count.Load() }

// Replace swaps the state, as after a snapshot.
func (h *Hub) Replace(state *mvcc.State) {
	h.state.Store(state)
	h.mu.Lock()
	h.replaced, h.applied = true, state.Applied()
	h.times.note(h.applied, Now())
	h.mu.Unlock()
	h.wakeUp()
}

// Published notes the tables that have new versions since a batch up to at, which came to
// be applied at a moment, and lets the hub look. It must be called after the state's
// Publish: a round in between would find nothing, and the next one would not look again.
// It keeps nothing of tables, which may name one twice.
func (h *Hub) Published(at proto.Revision, tables []string, came Moment) {
	h.mu.Lock()
	h.times.note(at, came)
	for _, name := range tables {
		h.grown[name] = struct{}{}
	}
	h.applied = max(h.applied, at)
	h.mu.Unlock()
	h.wakeUp()
}

func (h *Hub) wakeUp() {
	select {
	case h.poke <- struct{}{}:
	default:
	}
}

// Watch returns a watcher of what concerns an interest in a table, behind revision
// after. The table need not exist. Errors: mvcc.ErrCompacted.
func (h *Hub) Watch(table string, after proto.Revision, only mvcc.Interest) (*Watcher, error) {
	if h.State().Floor() > after {
		return nil, mvcc.ErrCompacted
	}
	w := &Watcher{hub: h, table: table, only: only.Canonical(), after: after, wake: make(chan struct{}, 1)}
	// What was applied between the caller's read and this call wakes nobody: the
	// first read skips nothing. Filled before the hub knows the watcher: later, its
	// wake could have come first, and this one would wait for a reader that does not
	// exist yet.
	w.due.Store(1)
	w.wake <- struct{}{}
	h.watchersMu.Lock()
	t := h.watchers[table]
	if t == nil {
		t = &interests{groups: map[mvcc.Interest]*group{}}
		h.watchers[table] = t
	}
	t.add(w)
	h.watchersMu.Unlock()
	h.count.Add(1)
	return w, nil
}

func (h *Hub) remove(w *Watcher) {
	h.watchersMu.Lock()
	defer h.watchersMu.Unlock()
	t := h.watchers[w.table]
	if t == nil || !t.remove(w) {
		return
	}
	if len(t.groups) == 0 {
		delete(h.watchers, w.table)
	}
	h.count.Add(-1)
}

// Listen returns a channel that is sent to after each round, whatever it was about, and
// what ends it. Capacity one: a wake-up may stand for many entries.
func (h *Hub) Listen() (<-chan struct{}, func()) {
	wake := make(chan struct{}, 1)
	h.watchersMu.Lock()
	defer h.watchersMu.Unlock()
	h.listeners[wake] = struct{}{}
	return wake, func() {
		h.watchersMu.Lock()
		defer h.watchersMu.Unlock()
		delete(h.listeners, wake)
	}
}

func (h *Hub) run() {
	defer close(h.ended)
	for {
		select {
		case <-h.done:
			return
		case <-h.poke:
			h.round()
		}
	}
}

// round tells watchers about everything that was published since the last one.
func (h *Hub) round() {
	h.mu.Lock()
	grown, upTo, replaced := h.grown, h.applied, h.replaced
	if len(grown) > 0 {
		h.grown = make(map[string]struct{}, len(grown))
	} else {
		grown = nil // it is not ours
	}
	h.replaced = false
	h.mu.Unlock()

	h.watchersMu.Lock()
	defer h.watchersMu.Unlock()
	since := proto.Revision(h.routed.Load())
	if replaced {
		// Everybody has been told about what was routed. What came after it is not
		// looked through: the new state may have a part of it only.
		for _, t := range h.watchers {
			t.wakeAll(since + 1)
		}
	} else {
		state := h.State()
		for name := range grown {
			if t := h.watchers[name]; t != nil {
				t.route(state.Table(name), since, upTo)
			}
		}
	}
	h.routed.Store(uint64(max(since, upTo)))
	for wake := range h.listeners {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// Close ends the hub's goroutine: nobody is woken any more.
func (h *Hub) Close() {
	close(h.done)
	<-h.ended
}

// Hold keeps the hub from telling anybody of anything, as if it hung, until release is
// called. It is for tests of what notices that.
func (h *Hub) Hold() (release func()) {
	h.watchersMu.Lock()
	return h.watchersMu.Unlock
}
