package apiserver

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/apiserver/transport/delivery"
	"github.com/quorate/quorate/raftstore/watch"
)

// watchSet knows the open watches, so that one goroutine can find the
// connections that nobody reads from. A write deadline per flush would do the
// same, but on HTTP/2 each one costs a message to the connection's goroutine, and
// an expired one ends an idle stream too.
type watchSet struct {
	mu      sync.Mutex
	entries map[*watchEntry]struct{}
	idle    chan struct{} // closed when the last one ends, if anybody waits
	count   atomic.Int64
}

// deadline is what ends a write that waits: a connection, or a response.
type deadline interface{ SetWriteDeadline(time.Time) error }

// watchEntry is what is known of one watch.
type watchEntry struct {
	conn deadline
	// delivery is how long its events take, and since when its client takes none.
	delivery *delivery.Watch
	// cursor is poked when the server ends; guarded by watchSet.mu. nil: the watch does not follow yet.
	cursor *watch.Watcher
}

// follow says that a watch waits for its cursor and nothing else from now on. What it does not
// learn from there it has to look at once, behind this.
func (s *watchSet) follow(e *watchEntry, cursor *watch.Watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.cursor = cursor
}

// poke has all watches look around.
func (s *watchSet) poke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.entries {
		if e.cursor != nil {
			e.cursor.Poke()
		}
	}
}

func (s *watchSet) add(conn deadline, d *delivery.Watch) *watchEntry {
	e := &watchEntry{conn: conn, delivery: d}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries == nil {
		s.entries = map[*watchEntry]struct{}{}
	}
	s.entries[e] = struct{}{}
	s.count.Add(1)
	return e
}

func (s *watchSet) remove(e *watchEntry) {
	s.mu.Lock()
	delete(s.entries, e)
	if len(s.entries) == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
	s.mu.Unlock()
	s.count.Add(-1)
}

// wait returns when no watch is left. One may begin meanwhile, so this is no
// WaitGroup.
func (s *watchSet) wait() {
	s.mu.Lock()
	if len(s.entries) == 0 {
		s.mu.Unlock()
		return
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.mu.Unlock()
	<-idle
}

// deliveries are the stopwatches of the open watches.
func (s *watchSet) deliveries(yield func(*delivery.Watch) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.entries {
		if !yield(e.delivery) {
			return
		}
	}
}

// endRate is how many watches end in a second when the server does.
const endRate = 2000

// spread is over what time the watches end, at most a second.
func (s *watchSet) spread() time.Duration {
	return min(time.Duration(s.count.Load())*time.Second/endRate, time.Second)
}

// janitor ends connections whose write has been waiting for longer than limit.
func (s *watchSet) janitor(done <-chan struct{}, limit time.Duration) {
	tick := time.NewTicker(max(limit/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			s.endStalled(watch.Now() - watch.Moment(limit))
		}
	}
}

func (s *watchSet) endStalled(before watch.Moment) {
	var stalled []*watchEntry
	s.mu.Lock()
	for e := range s.entries {
		if since, writes := e.delivery.ClientSince(); writes && since < before {
			stalled = append(stalled, e)
		}
	}
	s.mu.Unlock()
	for _, e := range stalled {
		// Writers without deadlines are not connections.
		_ = e.conn.SetWriteDeadline(time.Unix(1, 0))
	}
}
