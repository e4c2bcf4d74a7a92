package check

import (
	"cmp"
	"slices"
	"time"

	"github.com/quorate/quorate/test/judges/history"
)

// seen is an observation that was newer than all before it: at the time at,
// somebody knew the state of rev.
type seen struct {
	at  time.Duration
	rev uint64
	by  witness
}

// witness is the operation or the event that showed something.
type witness struct{ op, watch, event int }

func byOp(i int) witness       { return witness{i, -1, -1} }
func byEvent(w, e int) witness { return witness{-1, w, e} }

var nobody = witness{-1, -1, -1}

// later is the least revision that a write called at this time or later got.
type later struct {
	call time.Duration
	rev  uint64
	op   int
}

// sweep goes through all that clients did and saw in the order of time, with the
// newest state that anybody had seen so far, in the cluster and through each node.
//
// Each answer is true in one or more ranges of revisions. The sweep gives it the
// least that is not below what its mode allows (what was seen before a Most Recent
// read was called, what had been seen through the node of an Any read), and takes
// that as seen from its return on. No answer could be placed lower, so whatever
// finds no place has none; and a state that was seen before a write was called
// that it contains is a contradiction as well.
type sweep struct {
	*judge
	report  bool
	clients map[int]own
	nodes   map[string]*reached
	bounds  []bound // of the watches, at their beginnings
}

// reached is a newest state, and when it was last seen.
type reached struct {
	rev uint64
	at  time.Duration
	by  witness
}

// own is what a client saw itself, through which node and in an operation that
// began when.
type own struct {
	reached
	node  string
	began time.Duration
}

// bound is what had been seen when a watch began.
type bound struct {
	all, node reached
}

type pointKind uint8

// In one instant everything begins before anything ends: that makes it concurrent.
const (
	opBegins pointKind = iota
	watchBegins
	opEnds
	eventArrives
)

type point struct {
	at   time.Duration
	kind pointKind
	i, e int32
}

// points lists everything in the order of time.
func (j *judge) points() []point {
	n := 2*len(j.h.Ops) + len(j.h.Watches)
	for i := range j.h.Watches {
		n += len(j.h.Watches[i].Events)
	}
	all := make([]point, 0, n)
	for i := range j.h.Ops {
		o := &j.h.Ops[i]
		all = append(all, point{o.Call, opBegins, int32(i), 0})
		if o.Return != history.Forever && o.Outcome != history.Unknown {
			all = append(all, point{o.Return, opEnds, int32(i), 0})
		}
	}
	for i := range j.h.Watches {
		w := &j.h.Watches[i]
		all = append(all, point{w.Begin, watchBegins, int32(i), 0})
		for e := range w.Events {
			all = append(all, point{w.Events[e].At, eventArrives, int32(i), int32(e)})
		}
	}
	slices.SortFunc(all, func(a, b point) int {
		if a.at != b.at {
			return cmp.Compare(a.at, b.at)
		}
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.i, b.i), cmp.Compare(a.e, b.e))
	})
	return all
}

// callsAhead prepares the question what writes that are called later become.
func (j *judge) callsAhead() {
	j.later = j.later[:0]
	for i := range j.h.Ops {
		if j.done[i] {
			j.later = append(j.later, later{j.h.Ops[i].Call, j.rev[i], i})
		}
	}
	slices.SortFunc(j.later, func(a, b later) int { return cmp.Compare(a.call, b.call) })
	for i := len(j.later) - 2; i >= 0; i-- {
		if next := j.later[i+1]; next.rev < j.later[i].rev {
			j.later[i].rev, j.later[i].op = next.rev, next.op
		}
	}
}

// future returns the least revision of the writes that were called after t.
func (j *judge) future(t time.Duration) (rev uint64, op int) {
	i, _ := slices.BinarySearchFunc(j.later, t, func(l later, t time.Duration) int {
		if l.call <= t {
			return -1
		}
		return 1
	})
	if i == len(j.later) {
		return never, -1
	}
	return j.later[i].rev, j.later[i].op
}

// known returns the newest state that had been seen before t.
func (j *judge) known(t time.Duration) reached {
	i, _ := slices.BinarySearchFunc(j.seen, t, func(s seen, t time.Duration) int {
		if s.at < t {
			return -1
		}
		return 1
	})
	if i == 0 {
		return reached{by: nobody}
	}
	s := j.seen[i-1]
	return reached{s.rev, s.at, s.by}
}

// sweep goes through the points once. Without report it only collects what was seen.
func (j *judge) sweep(points []point, report bool) []bound {
	j.callsAhead()
	j.seen = j.seen[:0]
	s := &sweep{judge: j, report: report, clients: map[int]own{}, nodes: map[string]*reached{}, bounds: make([]bound, len(j.h.Watches))}
	places := make([]uint64, len(j.h.Ops))
	for _, p := range points {
		switch p.kind {
		case opBegins:
			places[p.i] = s.place(int(p.i))
		case opEnds:
			o := &j.h.Ops[p.i]
			if places[p.i] > 0 {
				node := o.Node
				if isWrite(o.Kind) && o.Outcome == history.Refused {
					node = "" // see place
				}
				s.see(places[p.i], node, o.Call, o.Return, byOp(int(p.i)))
			}
		case watchBegins:
			w := &j.h.Watches[p.i]
			s.bounds[p.i] = bound{j.known(w.Begin), s.local(w.Node, w.Begin, w.Begin)}
		case eventArrives:
			s.event(int(p.i), int(p.e))
		}
	}
	return s.bounds
}

// see notes that the state of rev was seen through a node, in an answer that
// began and arrived at these times.
func (s *sweep) see(rev uint64, node string, began, at time.Duration, by witness) {
	if next, _ := s.future(at); next <= rev {
		return // it contradicts: place or event says so
	}
	if n := len(s.seen); n == 0 || s.seen[n-1].rev < rev {
		s.seen = append(s.seen, seen{at, rev, by})
	}
	if s.restarted(node, began, at) {
		return
	}
	r := s.nodes[node]
	switch {
	case r == nil || s.restarted(node, r.at, at):
		s.nodes[node] = &reached{rev, at, by}
	case rev > r.rev:
		*r = reached{rev, at, by}
	default:
		r.at = at
	}
}

// local returns the newest state that was seen through a node, in the life in
// which it answered between these times.
func (s *sweep) local(node string, call, ret time.Duration) reached {
	r := s.nodes[node]
	if r == nil || s.restarted(node, r.at, ret) {
		return reached{by: nobody}
	}
	return *r
}

// event takes what an event shows as seen.
func (s *sweep) event(w, e int) {
	x, watch := &s.h.Watches[w].Events[e], &s.h.Watches[w]
	switch x.Type {
	case history.Error:
		return
	case history.Bookmark:
		// The revision of a bookmark need not be a version's.
	default:
		if v := s.at(x.Revision); v == nil || v.key != x.Key {
			if b, ok := s.base[x.Key]; !ok || b.Revision != x.Revision {
				return // the checks of watches say so
			}
		}
	}
	if next, op := s.future(x.At); s.report && next <= x.Revision {
		s.v.add(Violation{Check: OrderFuture, At: x.At, Node: watch.Node, Ops: []int{op}, Watch: w, Events: []int{e},
			Text: DescribeWatch(s.h, w) + ", " + DescribeEvent(s.h, w, e) + ": that contains a write that was only called later: " + Describe(s.h, op)})
	}
	s.see(x.Revision, watch.Node, watch.Begin, x.At, byEvent(w, e))
}

// who names a witness.
func (j *judge) who(w witness) string {
	switch {
	case w.op >= 0:
		return Describe(j.h, w.op)
	case w.watch >= 0:
		return DescribeWatch(j.h, w.watch) + ", " + DescribeEvent(j.h, w.watch, w.event)
	}
	return "nobody"
}
