package consistency

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/proto"
)

var (
	errNoQuorum = errors.New("no quorum")
	errStopped  = errors.New("the store is stopped")
)

// source is a store whose log and quorum the test moves.
type source struct {
	mu        sync.Mutex
	applied   proto.Revision
	moved     chan struct{} // closed and replaced when applied moves
	commit    proto.Revision
	noQuorum  bool          // ReadIndex fails
	hang      bool          // ReadIndex waits for its context
	delay     time.Duration // of ReadIndex
	staleness time.Duration
	asked     int // calls of ReadIndex
	running   int
	fails     error // of WaitApplied, once, when the state has moved
}

func newSource(commit, applied proto.Revision) *source {
	return &source{commit: commit, applied: applied, moved: make(chan struct{})}
}

func (s *source) ReadIndex(ctx context.Context) (proto.Revision, error) {
	s.mu.Lock()
	s.asked++
	s.running++
	// The index is taken first: a later one would hide that rounds are shared
	// too early.
	index, delay, hang, noQuorum := s.commit, s.delay, s.hang, s.noQuorum
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.running--
		s.mu.Unlock()
	}()
	if hang {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if noQuorum {
		return 0, errNoQuorum
	}
	return index, nil
}

func (s *source) WaitApplied(ctx context.Context, r proto.Revision) error {
	for {
		s.mu.Lock()
		applied, moved := s.applied, s.moved
		s.mu.Unlock()
		if applied >= r {
			return nil
		}
		select {
		case <-moved:
			if err := s.fails; err != nil {
				s.fails = nil
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("wait for %d: %w", r, context.Cause(ctx))
		}
	}
}

func (s *source) Applied() proto.Revision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applied
}

func (s *source) Staleness() time.Duration { return s.staleness }

func (s *source) apply(r proto.Revision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applied, s.commit = r, max(s.commit, r)
	close(s.moved)
	s.moved = make(chan struct{})
}

func (s *source) rounds() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func TestTooStaleText(t *testing.T) {
	for _, c := range []struct {
		staleness time.Duration
		want      string
	}{
		{2 * time.Second, "this node's state may be 2s old, more than the 1s asked for"},
		{99 * 365 * 24 * time.Hour, "this node's state may be 867240h0m0s old, more than the 1s asked for"},
		{unknownAge, "this node's state may be 876000h0m0s old, more than the 1s asked for"},
		{math.MaxInt64, "this node does not know how old its state is, and at most 1s was asked for"},
	} {
		if got := (&TooStaleError{Staleness: c.staleness, Max: time.Second}).Error(); got != c.want {
			t.Errorf("%v: %q, want %q", c.staleness, got, c.want)
		}
	}
}

// TestAwait is a table of situations: what the cluster is like, what happens
// while the read waits, what it answers, and after how long.
func TestAwait(t *testing.T) {
	type event struct {
		at    time.Duration
		apply proto.Revision
	}
	mostRecent := Plan{Mode: MostRecent}
	notOlder := func(n proto.Revision) Plan { return Plan{Mode: NotOlderThan, Revision: n} }
	stream := func(n proto.Revision) Plan { return Plan{Mode: NotOlderThan, Revision: n, InitialEvents: true} }
	exact := func(n proto.Revision) Plan { return Plan{Mode: Exact, Revision: n} }
	for _, c := range []struct {
		name   string
		source *source // applied, commit and faults
		plan   Plan
		opt    Options
		events []event
		want   proto.Revision
		err    func(error) bool
		after  time.Duration
		rounds int
	}{
		{name: "any needs nothing", source: &source{applied: 5, commit: 9, noQuorum: true, staleness: time.Hour}, plan: Plan{Mode: Any}, want: 5},
		{name: "any on a node without a state", source: &source{commit: 9}, plan: Plan{Mode: Any},
			err: as(func(e *UnavailableError) bool { return errors.Is(e, errNoState) && e.RetryAfter == 1 })},
		{name: "any within its bound", source: &source{applied: 5, staleness: time.Second}, plan: Plan{Mode: Any, MaxStaleness: time.Second}, want: 5},
		{name: "any staler than its bound", source: &source{applied: 5, staleness: 2 * time.Second}, plan: Plan{Mode: Any, MaxStaleness: time.Second},
			err: as(func(e *TooStaleError) bool {
				return e.Staleness == 2*time.Second && e.Max == time.Second && e.RetryAfter == 1
			})},

		{name: "most recent on a node that is current", source: &source{applied: 5, commit: 5}, plan: mostRecent, want: 5, rounds: 1},
		{name: "most recent behind the commit index", source: &source{applied: 5, commit: 9}, plan: mostRecent,
			events: []event{{100 * time.Millisecond, 8}, {200 * time.Millisecond, 11}}, want: 11, after: 200 * time.Millisecond, rounds: 1},
		{name: "most recent without a quorum fails at once", source: &source{applied: 5, noQuorum: true}, plan: mostRecent, rounds: 1,
			err: as(func(e *UnavailableError) bool {
				return errors.Is(e, ErrUnavailable) && errors.Is(e, errNoQuorum) && e.RetryAfter == 1
			})},
		{name: "most recent without an answer", source: &source{applied: 5, hang: true}, plan: mostRecent, rounds: 1, after: 1600 * time.Millisecond, err: is(ErrUnavailable)},
		{name: "most recent on a node that does not catch up", source: &source{applied: 5, commit: 9}, plan: mostRecent, rounds: 1, after: 1600 * time.Millisecond, err: is(ErrUnavailable)},
		{name: "most recent on a node that is far behind and catches up", source: &source{applied: 5, commit: 9}, plan: mostRecent, rounds: 1,
			events: []event{{time.Second, 6}, {2 * time.Second, 7}, {4 * time.Second, 9}}, want: 9, after: 4 * time.Second},
		{name: "most recent on a node that is cut off while it catches up", source: &source{applied: 5, commit: 9}, plan: mostRecent, rounds: 1,
			events: []event{{time.Second, 6}, {2500 * time.Millisecond, 7}}, after: 4800 * time.Millisecond, err: is(ErrUnavailable)},
		{name: "most recent on a node whose store fails while it catches up", source: &source{applied: 5, commit: 9, fails: errStopped}, plan: mostRecent, rounds: 1,
			events: []event{{time.Second, 6}, {1500 * time.Millisecond, 9}}, after: time.Second, err: is(errStopped)},

		{name: "not older, already there", source: &source{applied: 5, noQuorum: true}, plan: notOlder(5), want: 5},
		{name: "not older, arrives before a quorum is asked", source: &source{applied: 5, commit: 9}, plan: notOlder(7),
			events: []event{{10 * time.Millisecond, 8}}, want: 8, after: 10 * time.Millisecond},
		{name: "not older, confirmed, waits as long as it takes", source: &source{applied: 5, commit: 9}, plan: notOlder(9),
			events: []event{{20 * time.Second, 9}}, want: 9, after: 20 * time.Second, rounds: 1},
		{name: "not older, does not exist: refused at once", source: &source{applied: 5, commit: 8}, plan: notOlder(9), rounds: 1, after: 20 * time.Millisecond,
			err: as(func(e *TooLargeError) bool {
				return e.Asked == 9 && e.Current == 8 && e.RetryAfter == 1 && !e.Unconfirmed
			})},
		{name: "not older, applied while the quorum was asked", source: &source{applied: 5, commit: 8, delay: 40 * time.Millisecond}, plan: notOlder(9),
			events: []event{{30 * time.Millisecond, 9}}, want: 9, rounds: 1, after: 60 * time.Millisecond},
		{name: "not older, nobody knows: refused after a while", source: &source{applied: 5, noQuorum: true}, plan: notOlder(9), rounds: 1, after: 3 * time.Second,
			err: as(func(e *TooLargeError) bool { return e.Asked == 9 && e.Current == 5 && e.Unconfirmed })},
		{name: "not older, no answer: refused after a while", source: &source{applied: 5, hang: true}, plan: notOlder(9), rounds: 1, after: 3 * time.Second,
			err: as(func(e *TooLargeError) bool { return e.Asked == 9 && e.Current == 5 && e.Unconfirmed })},
		{name: "not older, nobody knows, but it arrives", source: &source{applied: 5, noQuorum: true}, plan: notOlder(9),
			events: []event{{time.Second, 10}}, want: 10, rounds: 1, after: time.Second},
		{name: "streaming list, does not exist, but it is written in time", source: &source{applied: 5, commit: 8}, plan: stream(9),
			events: []event{{time.Second, 8}, {2 * time.Second, 10}}, want: 10, rounds: 1, after: 2 * time.Second},
		{name: "streaming list, does not exist: refused after a while", source: &source{applied: 5, commit: 8}, plan: stream(9), rounds: 1, after: 3 * time.Second,
			err: as(func(e *TooLargeError) bool {
				return e.Asked == 9 && e.Current == 8 && e.RetryAfter == 1 && !e.Unconfirmed
			})},
		{name: "streaming list, nobody knows: refused after a while", source: &source{applied: 5, noQuorum: true}, plan: stream(9), rounds: 1, after: 3 * time.Second,
			err: as(func(e *TooLargeError) bool { return e.Asked == 9 && e.Current == 5 && e.Unconfirmed })},
		{name: "streaming list, confirmed, waits as long as it takes", source: &source{applied: 5, commit: 9}, plan: stream(9),
			events: []event{{20 * time.Second, 9}}, want: 9, after: 20 * time.Second, rounds: 1},

		{name: "not older, already there, no grace", source: &source{applied: 5, noQuorum: true}, plan: notOlder(5), opt: Options{Grace: -1}, want: 5},
		{name: "not older, no grace: a quorum is asked at once", source: &source{applied: 5, commit: 8}, plan: notOlder(9), opt: Options{Grace: -1}, rounds: 1,
			err: as(func(e *TooLargeError) bool { return e.Asked == 9 && e.Current == 8 && !e.Unconfirmed })},

		{name: "exact in the past", source: &source{applied: 5, noQuorum: true}, plan: exact(3), want: 3},
		{name: "exact, arrives", source: &source{applied: 5, commit: 9}, plan: exact(7),
			events: []event{{time.Second, 9}}, want: 7, after: time.Second, rounds: 1},
		{name: "exact, does not exist", source: &source{applied: 5, commit: 5}, plan: exact(7), rounds: 1, after: 20 * time.Millisecond,
			err: as(func(e *TooLargeError) bool { return e.Asked == 7 && e.Current == 5 && !e.Unconfirmed })},
		{name: "a plan that was not made here", source: &source{applied: 5}, plan: Plan{}, err: func(err error) bool { return err != nil && err.Error() == "await a plan of mode Mode(0)" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := c.source
				src.moved = make(chan struct{})
				r := NewReader(src, c.opt)
				defer r.Close()
				for _, e := range c.events {
					time.AfterFunc(e.at, func() { src.apply(e.apply) })
				}
				start := time.Now()
				got, err := r.Await(t.Context(), c.plan)
				if after := time.Since(start); after != c.after {
					t.Errorf("answered after %v, want %v", after, c.after)
				}
				if c.err == nil && (err != nil || got != c.want) {
					t.Errorf("got %d, %v; want %d", got, err, c.want)
				}
				if c.err != nil && (got != 0 || !c.err(err)) {
					t.Errorf("got %d, %v", got, err)
				}
				if n := src.rounds(); n != c.rounds {
					t.Errorf("%d rounds, want %d", n, c.rounds)
				}
			})
		})
	}
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func as[E error](ok func(E) bool) func(error) bool {
	return func(err error) bool {
		var e E
		return errors.As(err, &e) && ok(e)
	}
}

// TestAwaitObserved: the two waits of a Most Recent read are told apart, and
// nobody else's are told.
func TestAwaitObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(9, 5)
		src.delay = 10 * time.Millisecond
		var got [][2]time.Duration
		r := NewReader(src, Options{Observe: func(index, log time.Duration) { got = append(got, [2]time.Duration{index, log}) }})
		defer r.Close()
		time.AfterFunc(40*time.Millisecond, func() { src.apply(9) })
		for _, p := range []Plan{{Mode: MostRecent}, {Mode: MostRecent}, {Mode: Any}, {Mode: NotOlderThan, Revision: 9}, {Mode: Exact, Revision: 9}} {
			if _, err := r.Await(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		want := [][2]time.Duration{{10 * time.Millisecond, 30 * time.Millisecond}, {10 * time.Millisecond, 0}}
		if !slices.Equal(got, want) {
			t.Errorf("observed %v, want %v", got, want)
		}
	})
}

// The end of the client's own context is reported as that, not as a failure of
// the cluster.
func TestAwaitContext(t *testing.T) {
	gone := errors.New("client gone")
	for _, c := range []struct {
		name   string
		source *source
		plan   Plan
	}{
		{"in the round", &source{hang: true}, Plan{Mode: MostRecent}},
		{"catching up", &source{commit: 9}, Plan{Mode: MostRecent}},
		{"in the grace", &source{commit: 9}, Plan{Mode: NotOlderThan, Revision: 9}},
		{"asking whether it exists", &source{hang: true}, Plan{Mode: Exact, Revision: 9}},
		{"confirmed", &source{commit: 9}, Plan{Mode: Exact, Revision: 9}},
		{"unconfirmed", &source{noQuorum: true}, Plan{Mode: NotOlderThan, Revision: 9}},
		{"not there yet", &source{commit: 8}, Plan{Mode: NotOlderThan, Revision: 9, InitialEvents: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := c.source
				src.moved = make(chan struct{})
				r := NewReader(src, Options{})
				defer r.Close()
				ctx, cancel := context.WithCancelCause(t.Context())
				wait := 100 * time.Millisecond
				if c.name == "in the grace" {
					wait = 5 * time.Millisecond
				}
				time.AfterFunc(wait, func() { cancel(gone) })
				start := time.Now()
				_, err := r.Await(ctx, c.plan)
				if !errors.Is(err, gone) || errors.Is(err, ErrUnavailable) || time.Since(start) != wait {
					t.Errorf("after %v: %v", time.Since(start), err)
				}
			})
		})
	}
}

// Concurrent Most Recent reads share rounds, and none of them gets an index
// from before it asked.
func TestMostRecentIsFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(1, 1)
		src.delay = 10 * time.Millisecond
		r := NewReader(src, Options{})
		defer r.Close()
		var wg sync.WaitGroup
		const readers = 200
		for i := range readers {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 137 * time.Microsecond)
				src.mu.Lock()
				acknowledged := src.commit
				src.mu.Unlock()
				at, err := r.Await(t.Context(), Plan{Mode: MostRecent})
				if err != nil || at < acknowledged {
					t.Errorf("reader %d: at %d, %v; %d was acknowledged before", i, at, err, acknowledged)
				}
			})
		}
		wg.Go(func() {
			for n := proto.Revision(2); n < 300; n++ {
				time.Sleep(100 * time.Microsecond)
				src.mu.Lock()
				src.commit = n // committed; applied later than a round takes
				src.mu.Unlock()
				time.AfterFunc(30*time.Millisecond, func() { src.apply(n) })
			}
		})
		wg.Wait()
		// 27 ms of readers, and 10 ms for each round; the first few have each their own.
		if n := src.rounds(); n > 6+fewCallers-1 {
			t.Errorf("%d readers needed %d rounds", readers, n)
		}
	})
}
