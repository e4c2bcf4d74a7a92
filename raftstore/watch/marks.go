package watch

import (
	"sort"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Moment is when something happened, in nanoseconds of a clock of this process that never
// goes back. Zero is long before everything.
type Moment int64

// epoch is when Moments begin: in synctest's bubbles, too, the clock is later.
var epoch = time.Now().Add(-50 * 365 * 24 * time.Hour)

// Now is the present moment. It is cheaper than time.Now.
func Now() Moment { return Moment(time.Since(epoch)) }

// Sub is how long m is after an earlier moment.
func (m Moment) Sub(earlier Moment) time.Duration { return time.Duration(m - earlier) }

// timeline knows when the entries up to a revision reached this node's state machine: of the
// newest batches exactly, of older ones to coarseStep, of those before even these only
// that they are older. One goroutine at a time writes, under Hub.mu; readers take no lock,
// for there are ten thousand of them.
type timeline struct{ fine, coarse marks }

// coarseStep is what the coarse marks are apart, at least: all of them are 102 s or more.
const (
	fineMarks, coarseMarks = 4096, 2048
	coarseStep             = Moment(50 * time.Millisecond)
)

// init begins with what is there already.
func (t *timeline) init(at proto.Revision, when Moment) {
	t.fine.ring, t.coarse.ring = make([]mark, fineMarks), make([]mark, coarseMarks)
	t.fine.add(at, when)
	t.coarse.add(at, when)
}

// note adds that what is behind the newest mark, up to a revision, came at a moment.
func (t *timeline) note(at proto.Revision, when Moment) {
	if at <= t.newest() {
		return
	}
	if c := &t.coarse; when-Moment(c.slot(c.n.Load()-1).when.Load()) < coarseStep {
		c.slot(c.n.Load() - 1).at.Store(uint64(at))
	} else {
		c.add(at, when)
	}
	t.fine.add(at, when)
}

// newest is the revision up to which moments are known.
func (t *timeline) newest() proto.Revision {
	return proto.Revision(t.fine.slot(t.fine.n.Load() - 1).at.Load())
}

// when is the moment of a revision.
func (t *timeline) when(r proto.Revision) Moment {
	if i, ok := t.fine.find(r); ok {
		if when := Moment(t.fine.slot(i).when.Load()); t.fine.kept(i) {
			return when
		}
	}
	i, _ := t.coarse.find(r)
	return Moment(t.coarse.slot(i).when.Load())
}

// fill fills in the moments of versions, oldest first.
func (t *timeline) fill(versions []*mvcc.Version, at []Moment) {
	if len(versions) == 0 {
		return
	}
	first, ok := t.fine.find(versions[0].Revision)
	n := t.fine.n.Load()
	for k, i := 0, first; ok && k < len(versions); k++ {
		// One after the other: what is read together came together, or nearly.
		s := t.fine.slot(i)
		for s.at.Load() < uint64(versions[k].Revision) {
			if i++; i == n {
				ok = false
				break
			}
			s = t.fine.slot(i)
		}
		at[k] = Moment(s.when.Load())
	}
	if ok && t.fine.kept(first) {
		return
	}
	for k, v := range versions {
		at[k] = t.when(v.Revision)
	}
}

// mark says that the revisions behind the mark before it, up to at, came at a moment.
type mark struct {
	at   atomic.Uint64
	when atomic.Int64
}

// marks are the newest ones, in a ring.
type marks struct {
	n    atomic.Uint64 // that were ever added
	ring []mark
}

func (m *marks) size() uint64        { return uint64(len(m.ring)) }
func (m *marks) slot(i uint64) *mark { return &m.ring[i&uint64(len(m.ring)-1)] } // a power of two

func (m *marks) add(at proto.Revision, when Moment) {
	n := m.n.Load()
	s := m.slot(n)
	s.at.Store(uint64(at))
	s.when.Store(int64(when))
	m.n.Store(n + 1)
}

// near is how many marks are looked at, from the newest, before the ring is searched:
// watchers are rarely further behind.
const near = 8

// find returns the index of a revision's mark, which is right if it is kept when it has been
// read. Not ok: the revision is behind the newest mark, whose index is returned then, or
// may be older than the oldest one, whose index is. There is one, always.
func (m *marks) find(r proto.Revision) (i uint64, ok bool) {
	n := m.n.Load()
	// The mark at n-size may be being replaced.
	oldest := uint64(0)
	if n >= m.size() {
		oldest = n - m.size() + 1
	}
	reaches := func(i uint64) bool { return m.slot(i).at.Load() >= uint64(r) }
	if i = n - 1; !reaches(i) {
		return i, false
	}
	for back := 0; i > oldest && reaches(i-1); back++ {
		if back == near {
			i = oldest + uint64(sort.Search(int(i-1-oldest), func(k int) bool { return reaches(oldest + uint64(k)) }))
			break
		}
		i--
	}
	return i, i > oldest || oldest == 0
}

// kept reports whether a mark that was read after find had not been replaced. One that was
// has a later one's revision, so that a search among such ends at it or before it: at one
// that was replaced, too.
func (m *marks) kept(i uint64) bool { return m.n.Load() < i+m.size() }

// Behind reports whether watchers have not been told of everything that was applied, and
// since when the oldest of that waits.
func (h *Hub) Behind() (since Moment, behind bool) {
	routed := proto.Revision(h.routed.Load())
	if h.times.newest() <= routed {
		return 0, false
	}
	return h.times.when(routed + 1), true
}

// When fills in when versions that were read, oldest first, reached this node's state
// machine: Moments of long ago are those of the oldest that is remembered, of a minute
// and a half at least; of what was there when the node began it is that beginning.
func (w *Watcher) When(versions []*mvcc.Version, at []Moment) { w.hub.times.fill(versions, at) }

// Waiting reports whether there may be something for the watcher that it has not begun to
// read, and since when the oldest of that is there. Safe for concurrent use.
func (w *Watcher) Waiting() (since Moment, waits bool) {
	due := w.due.Load()
	if due == 0 {
		return 0, false
	}
	return w.hub.times.when(proto.Revision(due)), true
}
