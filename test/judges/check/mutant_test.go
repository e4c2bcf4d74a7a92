package check

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quorate/quorate/test/judges/history"
)

// mutant is a history that was right, with its facts, to be made wrong.
type mutant struct {
	*facts
	r     *rand.Rand
	seen0 []seen
}

func change(e history.Event) bool {
	return e.Type == history.Added || e.Type == history.Modified || e.Type == history.Deleted
}

// event makes a change at a random event behind the initial ones.
func (m *mutant) event(f func(w *history.Watch, e int) bool) bool {
	return m.watches(func(w *history.Watch) bool {
		first := 0
		if w.Initial {
			if !w.Bookmarks {
				return false // their end can be seen in more than one way
			}
			first = slices.IndexFunc(w.Events, func(e history.Event) bool { return e.InitialEnd }) + 1
			if first == 0 {
				return false
			}
		}
		for range 5 {
			if first == len(w.Events) {
				return false
			}
			if e := first + m.r.IntN(len(w.Events)-first); change(w.Events[e]) {
				return f(w, e)
			}
		}
		return false
	})
}

// initial makes a change in initial events, of which there are end.
func (m *mutant) initial(f func(w *history.Watch, end int) bool) bool {
	return m.watches(func(w *history.Watch) bool {
		end := slices.IndexFunc(w.Events, func(e history.Event) bool { return e.InitialEnd })
		return end > 0 && f(w, end)
	})
}

func (m *mutant) watches(f func(w *history.Watch) bool) bool {
	for _, i := range m.r.Perm(len(m.h.Watches)) {
		if w := m.h.Watches[i]; f(&w) {
			m.h.Watches[i] = w
			return true
		}
	}
	return false
}

func (m *mutant) op(f func(i int, o *history.Op) bool) bool {
	for _, i := range m.r.Perm(len(m.h.Ops)) {
		if o := m.h.Ops[i]; f(i, &o) {
			m.h.Ops[i] = o
			return true
		}
	}
	return false
}

// older returns the version of a key before an item's, if there was an object.
func (m *mutant) older(it history.Item) *history.Item {
	p := m.state(it.Key, it.Revision-1)
	if !p.live {
		return nil
	}
	return &history.Item{Key: it.Key, Value: p.value, Revision: p.rev}
}

// newer returns an object of a key that was no more at a revision.
func (m *mutant) newer(key string, rev uint64) *history.Item {
	now := m.state(key, rev)
	if now.rev == 0 {
		return nil
	}
	return m.older(history.Item{Key: key, Revision: now.rev})
}

// before returns the newest revision that somebody knew before t.
func (m *mutant) before(t time.Duration) uint64 {
	rev := uint64(0)
	for _, s := range m.seen0 {
		if s.at < t {
			rev = s.rev
		}
	}
	return rev
}

// through returns a revision that was written or read through a node before an
// operation began, in the same life.
func (m *mutant) through(node string, call, ret time.Duration) uint64 {
	newest := uint64(0)
	for i := range m.h.Ops {
		o := &m.h.Ops[i]
		if o.Node == node && o.Outcome == history.OK && o.Return < call && !m.restarted(node, o.Call, ret) {
			newest = max(newest, o.Revision)
		}
	}
	return newest
}

// there reports whether an operation's key was there while it ran.
func (m *mutant) there(o *history.Op) bool {
	p := m.state(o.Key, m.before(o.Call))
	if !p.live {
		return false
	}
	if p.until == never {
		return true
	}
	v := m.at(p.until)
	return v != nil && v.writer >= 0 && m.h.Ops[v.writer].Call > o.Return
}

func (m *mutant) thereAs(o *history.Op, keys ...string) bool {
	for _, k := range keys {
		if o.Key = k; m.there(o) {
			return true
		}
	}
	return false
}

// swapWrites exchanges the revisions of two writes, one after the other, of
// different keys, everywhere.
func (m *mutant) swapWrites() bool {
	for _, i := range m.r.Perm(len(m.log) - 1) {
		a, b := &m.log[i], &m.log[i+1]
		if a.key == b.key || a.writer < 0 || b.writer < 0 {
			continue
		}
		x, y := &m.h.Ops[a.writer], &m.h.Ops[b.writer]
		if x.Revision == 0 || y.Revision == 0 || x.Return >= y.Call {
			continue
		}
		x.Revision, y.Revision = y.Revision, x.Revision
		e := m.h.Log
		e[i], e[i+1] = e[i+1], e[i]
		e[i].Revision, e[i+1].Revision = e[i+1].Revision, e[i].Revision
		return true
	}
	return false
}

// copyOf returns a deep copy.
func copyOf(h *history.History) *history.History {
	b, err := json.Marshal(h)
	if err != nil {
		panic(err)
	}
	c := new(history.History)
	if err := json.Unmarshal(b, c); err != nil {
		panic(err)
	}
	return c
}

func newMutant(h *history.History, seed uint64) *mutant {
	j := &judge{facts: newFacts(h), v: &Verdict{}}
	j.readLog()
	j.settle()
	points := j.points()
	j.sweep(points, false)
	j.settleDeletes()
	j.sweep(points, true)
	return &mutant{facts: j.facts, r: rand.New(rand.NewPCG(seed, 2)), seen0: slices.Clone(j.seen)}
}
