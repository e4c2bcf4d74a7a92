package check

import (
	"net/http"
	"slices"
	"time"

	"github.com/quorate/quorate/test/judges/history"
)

// opMutations make the log, the states or the answers wrong.
var opMutations = []mutation{
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
