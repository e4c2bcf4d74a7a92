package check

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/test/history"
)

// mutant is a history that was right, with its facts, to be made wrong.
type mutant struct {
	*facts
	r     *rand.Rand
	seen0 []seen
}

// mutation makes a history wrong in one way; false if it has no place for it.
type mutation struct {
	name   string
	checks []string // one of which must find it
	make   func(m *mutant) bool
}

var mutations = []mutation{
	{"drop an event", []string{WatchReliable}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool {
			if e+1 == len(w.Events) || w.Events[e+1].Type == history.Error {
				return false
			}
			w.Events = slices.Delete(w.Events, e, e+1)
			return true
		})
	}},
	{"swap two events", []string{WatchOrdered}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool {
			if e+1 == len(w.Events) || !change(w.Events[e+1]) {
				return false
			}
			w.Events[e], w.Events[e+1] = w.Events[e+1], w.Events[e]
			return true
		})
	}},
	{"duplicate an event", []string{WatchUnique}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool {
			w.Events = slices.Insert(w.Events, e+1+m.r.IntN(len(w.Events)-e), w.Events[e])
			return true
		})
	}},
	{"early bookmark", []string{WatchBookmark}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool {
			if !w.Bookmarks {
				return false
			}
			w.Events = slices.Insert(w.Events, e, history.Event{Type: history.Bookmark, At: w.Events[e].At, Item: history.Item{Revision: w.Events[e].Revision}})
			return true
		})
	}},
	{"late bookmark", []string{WatchOrdered, WatchBookmark}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool {
			if !w.Bookmarks {
				return false
			}
			w.Events = slices.Insert(w.Events, e+1, history.Event{Type: history.Bookmark, At: w.Events[e].At, Item: history.Item{Revision: w.Events[e].Revision - 1}})
			return true
		})
	}},
	{"unasked bookmark", []string{WatchBookmark}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool {
			if w.Bookmarks {
				return false
			}
			w.Events = slices.Insert(w.Events, e+1, history.Event{Type: history.Bookmark, At: w.Events[e].At, Item: history.Item{Revision: w.Events[e].Revision}})
			return true
		})
	}},
	{"bookmark before a missing event", []string{WatchReliable}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool {
			if !w.Bookmarks || e+1 < len(w.Events) {
				return false
			}
			w.Events[e] = history.Event{Type: history.Bookmark, At: w.Events[e].At, Item: history.Item{Revision: w.Events[e].Revision}}
			return true
		})
	}},
	{"another value in an event", []string{WatchContent}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool { w.Events[e].Value += "?"; return true })
	}},
	{"another key in an event", []string{WatchContent}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool { w.Events[e].Key += "?"; return true })
	}},
	{"another type of event", []string{WatchType}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool {
			types := []history.EventType{history.Added, history.Modified, history.Deleted}
			w.Events[e].Type = types[(slices.Index(types, w.Events[e].Type)+1+m.r.IntN(2))%3]
			return true
		})
	}},
	{"an event of no version", []string{WatchContent}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool {
			w.Events[e].Revision += 100000
			return true
		})
	}},
	{"an event that the filter hides", []string{WatchFilter}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool {
			if w.Prefix == "" || e+1 == len(w.Events) {
				return false
			}
			for i := range m.log {
				v := &m.log[i]
				if v.rev > w.Events[e].Revision && v.rev < w.Events[e+1].Revision && v.key[0] != w.Prefix[0] {
					w.Events = slices.Insert(w.Events, e+1, history.Event{Type: history.Modified, At: w.Events[e].At, Item: history.Item{Key: v.key, Value: v.value, Revision: v.rev}})
					return true
				}
			}
			return false
		})
	}},
	{"an event from before the watch", []string{WatchResumable}, func(m *mutant) bool {
		return m.watches(func(w *history.Watch) bool {
			for i := range m.log {
				if v := &m.log[i]; !w.Initial && v.rev == w.From {
					w.Events = slices.Insert(w.Events, 0, history.Event{Type: history.Modified, At: w.Begin, Item: history.Item{Key: v.key, Value: v.value, Revision: v.rev}})
					return true
				}
			}
			return false
		})
	}},
	{"drop an initial event", []string{WatchInitial}, func(m *mutant) bool {
		return m.initial(func(w *history.Watch, end int) bool {
			e := m.r.IntN(end)
			w.Events = slices.Delete(w.Events, e, e+1)
			return true
		})
	}},
	{"an initial event twice", []string{WatchUnique}, func(m *mutant) bool {
		return m.initial(func(w *history.Watch, end int) bool {
			w.Events = slices.Insert(w.Events, m.r.IntN(end), w.Events[m.r.IntN(end)])
			return true
		})
	}},
	{"a stale initial event", []string{WatchInitial}, func(m *mutant) bool {
		return m.initial(func(w *history.Watch, end int) bool {
			e := m.r.IntN(end)
			old := m.older(w.Events[e].Item)
			if old == nil {
				return false
			}
			w.Events[e].Item = *old
			return true
		})
	}},
	{"stale initial events", []string{WatchFresh}, func(m *mutant) bool {
		return m.initial(func(w *history.Watch, end int) bool {
			if !w.Unset {
				return false
			}
			known := m.before(w.Begin)
			if known == 0 {
				return false
			}
			i := m.after(known) - 2
			if i < 0 {
				return false
			}
			at := m.log[i].rev
			items, _ := m.snapshot(at, w.Prefix, "", w.Selector, 0)
			mark := w.Events[end]
			mark.Revision = at
			w.Events = w.Events[:0]
			for _, it := range items {
				w.Events = append(w.Events, history.Event{Type: history.Added, Item: it, At: mark.At})
			}
			w.Events = append(w.Events, mark)
			return true
		})
	}},
	{"410 above the floor", []string{WatchExpired}, func(m *mutant) bool {
		return m.watches(func(w *history.Watch) bool {
			if w.From <= m.floor {
				return false
			}
			w.Events = append(w.Events, history.Event{Type: history.Error, Code: http.StatusGone, At: w.End})
			return true
		})
	}},
	{"500 in a stream", []string{WatchError}, func(m *mutant) bool {
		return m.watches(func(w *history.Watch) bool {
			w.Events = append(w.Events, history.Event{Type: history.Error, Code: 500, At: w.End})
			return true
		})
	}},
	{"an event behind an error", []string{WatchError}, func(m *mutant) bool {
		return m.event(func(w *history.Watch, e int) bool {
			w.Events = slices.Insert(w.Events, e, history.Event{Type: history.Error, Code: 504, At: w.Events[e].At})
			return true
		})
	}},

	{"lose an acknowledged write", []string{LogAcknowledged}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if !isWrite(o.Kind) || o.Outcome != history.OK {
				return false
			}
			m.h.Log = slices.DeleteFunc(m.h.Log, func(e history.Entry) bool { return e.Revision == m.rev[i] })
			return true
		})
	}},
	{"acknowledge another revision", []string{LogAcknowledged}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if !isWrite(o.Kind) || o.Outcome != history.OK || o.Revision == 0 {
				return false
			}
			o.Revision += uint64(1 + m.r.IntN(3))
			return true
		})
	}},
	{"another value in the log", []string{LogAcknowledged, LogPhantom}, func(m *mutant) bool {
		for range 50 {
			if e := &m.h.Log[m.r.IntN(len(m.h.Log))]; !e.Deleted {
				e.Value += "?"
				return true
			}
		}
		return false
	}},
	{"a write that nobody asked for", []string{LogPhantom}, func(m *mutant) bool {
		e := m.h.Log[len(m.h.Log)-1]
		e.Revision, e.Value, e.Deleted = e.Revision+1, "phantom", false
		m.h.Log = append(m.h.Log, e)
		return true
	}},
	{"a write that happened twice", []string{LogPhantom}, func(m *mutant) bool {
		e := m.h.Log[m.r.IntN(len(m.h.Log))]
		if e.Deleted {
			return false
		}
		e.Revision = m.h.Log[len(m.h.Log)-1].Revision + 1
		m.h.Log = append(m.h.Log, e)
		return true
	}},
	{"a log out of order", []string{LogOrder}, func(m *mutant) bool {
		i := m.r.IntN(len(m.h.Log) - 1)
		m.h.Log[i], m.h.Log[i+1] = m.h.Log[i+1], m.h.Log[i]
		return true
	}},
	{"a revision twice", []string{LogOrder}, func(m *mutant) bool {
		i := m.r.IntN(len(m.h.Log) - 1)
		m.h.Log[i+1].Revision = m.h.Log[i].Revision
		return true
	}},
	{"a refused write that happened", []string{LogRefused}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if !isWrite(o.Kind) || isDelete(o.Kind) || o.Outcome != history.OK {
				return false
			}
			o.Outcome, o.Code, o.Revision = history.Refused, 429, 0
			return true
		})
	}},
	{"a condition that did not hold", []string{LogCondition, LogAcknowledged}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if !conditional(o.Kind) || o.Outcome != history.OK {
				return false
			}
			o.Precondition--
			return true
		})
	}},
	{"a create of what exists", []string{LogCondition}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if o.Kind != history.Update || o.Outcome != history.OK {
				return false
			}
			o.Kind = history.Create
			return true
		})
	}},
	{"revisions against real time", []string{OrderWrites}, (*mutant).swapWrites},
	{"different states", []string{StateHash}, func(m *mutant) bool {
		m.h.States[m.r.IntN(len(m.h.States))].Hash = "other"
		return true
	}},
	{"different floors", []string{StateHash}, func(m *mutant) bool {
		m.h.States[m.r.IntN(len(m.h.States))].Floor++
		return true
	}},

	{"a stale Most Recent get", []string{ReadStale}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if o.Kind != history.Get || o.Mode != history.MostRecent {
				return false
			}
			old := m.newer(o.Key, m.before(o.Call))
			if old == nil {
				return false
			}
			o.Outcome, o.Code, o.Items = history.OK, 0, []history.Item{*old}
			return true
		})
	}},
	{"a Most Recent get that finds nothing", []string{ReadStale}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if o.Kind != history.Get || o.Mode != history.MostRecent || !m.there(o) {
				return false
			}
			o.Outcome, o.Code, o.Items = history.Refused, 404, nil
			return true
		})
	}},
	{"a stale Most Recent list", []string{ReadStale}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if o.Kind != history.List || o.Mode != history.MostRecent || o.Limit > 0 {
				return false
			}
			at := m.after(m.before(o.Call)) - 2
			if at < 0 {
				return false
			}
			o.Outcome, o.Revision = history.OK, m.log[at].rev
			o.Items, _ = m.snapshot(o.Revision, o.Prefix, "", "", 0)
			return true
		})
	}},
	{"a list without one item", []string{ReadContent}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if o.Kind != history.List || len(o.Items) == 0 {
				return false
			}
			n := m.r.IntN(len(o.Items))
			o.Items = slices.Delete(slices.Clone(o.Items), n, n+1)
			return true
		})
	}},
	{"a list with an old item", []string{ReadContent}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if o.Kind != history.List || len(o.Items) == 0 {
				return false
			}
			n := m.r.IntN(len(o.Items))
			old := m.older(o.Items[n])
			if old == nil {
				return false
			}
			o.Items[n] = *old
			return true
		})
	}},
	{"a list of another revision", []string{ReadContent, ReadExact, ReadStale, ReadLocal, OrderFuture}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if o.Kind != history.List || o.Outcome != history.OK || o.Limit > 0 || o.Prefix != "" {
				return false
			}
			at := m.after(o.Revision)
			if at == len(m.log) {
				return false
			}
			o.Revision = m.log[at].rev
			return true
		})
	}},
	{"a list out of order", []string{ReadContent}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if o.Kind != history.List || len(o.Items) < 2 {
				return false
			}
			o.Items[0], o.Items[1] = o.Items[1], o.Items[0]
			return true
		})
	}},
	{"a page without its token", []string{ReadContent}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if o.Kind != history.List || o.Outcome != history.OK || o.Limit == 0 {
				return false
			}
			o.More = !o.More
			return true
		})
	}},
	{"another value in a get", []string{ReadContent}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if o.Kind != history.Get || len(o.Items) == 0 {
				return false
			}
			o.Items[0].Value += "?"
			return true
		})
	}},
	{"another revision in a get", []string{ReadContent}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if o.Kind != history.Get || len(o.Items) == 0 {
				return false
			}
			o.Items[0].Revision--
			return true
		})
	}},
	{"an Any read that goes back", []string{ReadLocal}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if o.Kind != history.Get || o.Mode != history.Any {
				return false
			}
			o.Staleness = nil
			old := m.newer(o.Key, m.through(o.Node, o.Call, o.Return))
			if old == nil {
				return false
			}
			o.Outcome, o.Code, o.Items = history.OK, 0, []history.Item{*old}
			return true
		})
	}},
	{"a claim to be fresher", []string{ReadClaim}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if o.Kind != history.Get || o.Mode != history.Any || len(o.Items) == 0 {
				return false
			}
			zero := time.Duration(0)
			o.Staleness = &zero
			return m.state(o.Key, m.before(o.Call)).rev > o.Items[0].Revision
		})
	}},
	{"older than asked", []string{ReadBound}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if o.Kind != history.Get || o.Mode != history.NotOlderThan || len(o.Items) == 0 {
				return false
			}
			p, _ := m.shown(o.Items[0])
			o.Asked = p.until
			return p.until != never
		})
	}},
	{"a list older than asked", []string{ReadBound}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if o.Kind != history.List || o.Mode != history.NotOlderThan || o.Outcome != history.OK {
				return false
			}
			o.Asked = o.Revision + 1
			return true
		})
	}},
	{"another revision than exactly asked", []string{ReadExact}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if o.Mode != history.Exact || o.Outcome != history.OK {
				return false
			}
			o.Asked--
			return true
		})
	}},
	{"410 of a read above the floor", []string{ReadExpired}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if o.Mode != history.Exact || o.Asked < m.floor {
				return false
			}
			o.Outcome, o.Code, o.Items, o.Revision, o.More = history.Refused, 410, nil, 0, false
			return true
		})
	}},
	{"410 of a fresh read", []string{ReadExpired}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if isWrite(o.Kind) || o.Mode == history.Exact {
				return false
			}
			o.Outcome, o.Code, o.Items, o.Revision, o.More = history.Refused, 410, nil, 0, false
			return true
		})
	}},
	{"seen before it was written", []string{OrderFuture}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if o.Kind != history.Get || o.Mode != history.Any || len(o.Items) == 0 {
				return false
			}
			v := m.at(o.Items[0].Revision)
			if v == nil || v.writer < 0 || m.h.Ops[v.writer].Call < time.Microsecond {
				return false
			}
			o.Call, o.Return = 0, m.h.Ops[v.writer].Call-1
			return true
		})
	}},
	{"a 404 that was not so", []string{RefusalStale}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if !isWrite(o.Kind) || o.Kind == history.Create || o.Outcome != history.Refused || o.Code == 504 || !m.thereAs(o, "a0", "b0", "a1", "b1") {
				return false
			}
			o.Code = http.StatusNotFound
			return true
		})
	}},
	{"a 409 of a create that was not so", []string{RefusalStale}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if o.Kind != history.Create || o.Outcome != history.Refused {
				return false
			}
			o.Key = "nowhere"
			return true
		})
	}},
	{"a conflict that was none", []string{RefusalStale}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if !conditional(o.Kind) || o.Outcome != history.Refused || o.Code == 504 || !m.thereAs(o, "a0", "b0", "a1", "b1") {
				return false
			}
			o.Code, o.Precondition = http.StatusConflict, m.state(o.Key, m.before(o.Call)).rev
			return true
		})
	}},
	{"returned before it was called", []string{Malformed}, func(m *mutant) bool {
		return m.op(func(i int, o *history.Op) bool {
			if o.Call < 2 {
				return false
			}
			o.Return = o.Call - 1
			return true
		})
	}},
	{"a value twice", []string{Malformed}, func(m *mutant) bool {
		var last string
		return m.op(func(i int, o *history.Op) bool {
			if o.Value == "" {
				return false
			}
			if last == "" {
				last = o.Value
				return false
			}
			ok := o.Value != last
			o.Value = last
			return ok
		})
	}},
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

// TestMutations: whatever is made wrong is found.
func TestMutations(t *testing.T) {
	want := 12
	if testing.Short() {
		want = 4
	}
	made := map[uint64]*history.History{}
	for _, x := range mutations {
		t.Run(x.name, func(t *testing.T) {
			done := 0
			for seed := uint64(0); done < want; seed++ {
				if seed == 600 {
					t.Fatalf("only %d histories had a place for it", done)
				}
				if made[seed] == nil {
					o := variants(seed)[seed%3]
					o.ops = min(o.ops, 120)
					made[seed] = generate(o)
				}
				m := newMutant(copyOf(made[seed]), seed)
				if !x.make(m) {
					continue
				}
				done++
				v := All(m.h)
				if !slices.ContainsFunc(v.Checks(), func(c string) bool { return slices.Contains(x.checks, c) }) {
					t.Errorf("seed %d: not found: %s", seed, fmt.Sprint(v.Checks()))
				}
			}
		})
	}
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
