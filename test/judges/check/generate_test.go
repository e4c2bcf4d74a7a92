package check

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/test/judges/history"
)

// world in which everything is right: a log, nodes that follow it late, clients
// and watchers. It advances in ticks; whatever happens in a tick happens in some
// order, so that histories are concurrent, and some ticks take no time.
type simulation struct {
	r     *rand.Rand
	h     *history.History
	now   time.Duration
	rev   uint64
	state map[string]history.Item
	at    []time.Duration // when each entry of the log was committed
	floor uint64
	nodes []*simNode
	ops   []*simClient
	watch []*simWatch
	keys  int
	lost  []history.Op // writes whose answer was lost, and which may still happen
	made  int
	done  []history.Op
	order []int // of done: when they were called
	calls int
}

type simNode struct {
	name    string
	applied uint64
	fault   int // index of the fault that has it down, or -1
}

type simClient struct {
	id    int
	op    *history.Op
	node  *simNode
	index uint64 // of a Most Recent read: what it must reach
	stage int
	order int
	page  *history.Op // a list with more to come
}

type simWatch struct {
	history.Watch
	node  *simNode
	last  uint64
	open  bool
	begun bool
	least uint64
}

// options of a simulation.
type options struct {
	seed                     uint64
	ops, clients, keys       int
	watchers                 int
	nodes                    int
	noAny, noLost, noWatches bool
	telling                  bool // deletes tell their revision
	noTies                   bool // nothing happens in the same instant
}

func generate(o options) *history.History {
	s := &simulation{
		r: rand.New(rand.NewPCG(o.seed, 1)), keys: o.keys, state: map[string]history.Item{},
		h: &history.History{Name: "generated", Seed: o.seed}, rev: 1,
	}
	for i := range o.nodes {
		s.nodes = append(s.nodes, &simNode{name: fmt.Sprintf("n%d", i+1), applied: 1, fault: -1})
	}
	for i := range o.clients {
		s.ops = append(s.ops, &simClient{id: i + 1})
	}
	for i := range o.watchers {
		s.watch = append(s.watch, &simWatch{Watch: history.Watch{Client: 100 + i}})
	}
	for s.made < o.ops || slices.ContainsFunc(s.ops, func(c *simClient) bool { return c.op != nil }) {
		s.tick(o)
	}
	for _, n := range s.nodes {
		s.repair(n)
		n.applied = s.rev
	}
	for _, w := range s.watch {
		s.deliver(w, true)
		s.endWatch(w, "")
	}
	s.finish()
	return s.h
}

func (s *simulation) finish() {
	index := make([]int, len(s.done))
	for i := range index {
		index[i] = i
	}
	slices.SortFunc(index, func(a, b int) int { return cmp.Compare(s.order[a], s.order[b]) })
	for _, i := range index {
		s.h.Ops = append(s.h.Ops, s.done[i])
	}
	for _, n := range s.nodes {
		s.h.States = append(s.h.States, history.State{Node: n.name, Revision: s.rev, Hash: fmt.Sprint("h", s.rev), Floor: s.floor})
	}
}

func (s *simulation) tick(o options) {
	if s.r.IntN(3) > 0 {
		s.now += time.Duration(s.r.IntN(1000)) * time.Microsecond
	}
	for _, i := range s.r.Perm(len(s.nodes)) {
		s.step(s.nodes[i])
	}
	for _, i := range s.r.Perm(len(s.ops)) {
		c := s.ops[i]
		if o.noTies {
			s.now++
		}
		switch {
		case c.op == nil && s.made < o.ops && s.r.IntN(2) == 0:
			s.call(c, o)
		case c.op != nil && s.r.IntN(2) == 0:
			s.proceed(c, o)
		}
	}
	if len(s.lost) > 0 && s.r.IntN(3) == 0 {
		i := s.r.IntN(len(s.lost))
		if s.r.IntN(2) == 0 {
			s.effect(&s.lost[i])
		}
		s.lost = slices.Delete(s.lost, i, i+1)
	}
	if s.r.IntN(50) == 0 && s.rev > s.floor+20 {
		s.floor += uint64(s.r.IntN(10))
	}
	if !o.noWatches {
		for _, w := range s.watch {
			s.stepWatch(w)
		}
	}
}

// step lets a node follow the log, end or come back.
func (s *simulation) step(n *simNode) {
	switch {
	case n.fault >= 0:
		if s.r.IntN(10) == 0 {
			s.repair(n)
		}
	case s.r.IntN(200) == 0:
		n.fault = len(s.h.Faults)
		kind := []string{"kill", "pause", "cut"}[s.r.IntN(3)]
		s.h.Faults = append(s.h.Faults, history.Fault{Kind: kind, Nodes: []string{n.name}, Begin: s.now})
		if kind == "kill" {
			for _, w := range s.watch {
				if w.open && w.node == n {
					s.endWatch(w, "EOF")
				}
			}
			for _, c := range s.ops {
				if c.op != nil && c.node == n {
					s.lose(c)
				}
			}
			s.now++
		}
	case n.applied < s.rev && s.r.IntN(3) == 0:
		n.applied += uint64(s.r.Int64N(int64(s.rev-n.applied) + 1))
	}
}

func (s *simulation) repair(n *simNode) {
	if n.fault < 0 {
		return
	}
	f := &s.h.Faults[n.fault]
	s.now++
	f.End = s.now
	s.now++
	n.fault = -1
	if least := max(s.floor, 1); f.Kind == "kill" && n.applied > least {
		n.applied -= uint64(s.r.Int64N(int64(n.applied-least) + 1)) // what was not flushed
	}
}

func (s *simulation) pick(up bool) *simNode {
	for {
		if n := s.nodes[s.r.IntN(len(s.nodes))]; !up || n.fault < 0 {
			return n
		}
		if !slices.ContainsFunc(s.nodes, func(n *simNode) bool { return n.fault < 0 }) {
			s.repair(s.nodes[0])
		}
	}
}

// call begins an operation.
func (s *simulation) call(c *simClient, opt options) {
	c.node = s.pick(true)
	s.made++
	c.order, c.stage = s.calls, 0
	s.calls++
	key := string(rune('a'+s.r.IntN(2))) + fmt.Sprint(s.r.IntN(max(1, s.keys/2)))
	o := &history.Op{Client: c.id, Node: c.node.name, Call: s.now, Key: key}
	c.op = o
	if c.page != nil {
		last := c.page
		c.page = nil
		*o = history.Op{Client: c.id, Node: c.node.name, Call: s.now, Kind: history.List, Mode: history.Exact, Asked: last.Revision,
			Limit: last.Limit, Prefix: last.Prefix, After: last.Items[len(last.Items)-1].Key}
		return
	}
	value := fmt.Sprintf("%s%d", string(rune('x'+s.r.IntN(2))), s.made)
	switch n := s.r.IntN(20); {
	case n < 4:
		o.Kind, o.Value = history.Create, value
	case n < 6:
		o.Kind, o.Value = history.Update, value
	case n < 9:
		o.Kind, o.Value, o.Precondition = history.UpdateIf, value, s.guess(key)
	case n < 10:
		o.Kind = history.Delete
	case n < 11:
		o.Kind, o.Precondition = history.DeleteIf, s.guess(key)
	case n < 16:
		o.Kind = history.Get
	default:
		o.Kind, o.Key = history.List, ""
		if s.r.IntN(3) == 0 {
			o.Prefix = "a"
		}
		if s.r.IntN(3) == 0 {
			o.Limit = 1 + s.r.IntN(3)
		}
	}
	if isWrite(o.Kind) {
		return
	}
	o.Mode = history.MostRecent
	if opt.noAny {
		return
	}
	switch s.r.IntN(6) {
	case 0, 1:
		o.Mode = history.Any
	case 2:
		o.Mode, o.Asked = history.NotOlderThan, uint64(s.r.Int64N(int64(s.rev)+1))
	case 3:
		if o.Kind == history.List && s.rev > 0 {
			o.Mode, o.Asked = history.Exact, 1+uint64(s.r.Int64N(int64(s.rev)))
		}
	}
}

// guess returns the revision of a key, or a wrong one.
func (s *simulation) guess(key string) uint64 {
	if it, ok := s.state[key]; ok && s.r.IntN(4) > 0 {
		return it.Revision
	}
	return 1 + uint64(s.r.Int64N(int64(s.rev)+1))
}

// proceed takes an operation one stage on.
func (s *simulation) proceed(c *simClient, opt options) {
	o := c.op
	if c.node.fault >= 0 && s.h.Faults[c.node.fault].Kind != "cut" {
		return
	}
	if c.stage == 0 {
		if isWrite(o.Kind) {
			if !opt.noLost && s.r.IntN(30) == 0 {
				s.lose(c)
				return
			}
			s.effect(o)
		}
		c.index = s.rev
		c.stage = 1
		if s.r.IntN(2) == 0 {
			return
		}
	}
	if isWrite(o.Kind) && !opt.noLost && s.r.IntN(40) == 0 {
		o.Items, o.Revision, o.Code = nil, 0, 504
		o.Outcome, o.Return = history.Unknown, history.Forever
		s.end(c)
		return
	}
	s.answer(c, opt)
}

// lose ends an operation without an answer; it may happen later.
func (s *simulation) lose(c *simClient) {
	o := c.op
	if isWrite(o.Kind) {
		if c.stage == 0 {
			s.lost = append(s.lost, *o)
		}
		o.Outcome, o.Return, o.Revision, o.Code = history.Unknown, history.Forever, 0, 0
	} else {
		o.Outcome, o.Return, o.Code = history.Refused, s.now, 504
	}
	s.end(c)
}

func (s *simulation) end(c *simClient) {
	s.done, s.order = append(s.done, *c.op), append(s.order, c.order)
	c.op = nil
}

// effect lets a write happen now.
func (s *simulation) effect(o *history.Op) {
	cur, exists := s.state[o.Key]
	o.Outcome = history.Refused
	switch {
	case o.Kind == history.Create && exists:
		o.Code = http.StatusConflict
		return
	case o.Kind != history.Create && !exists:
		o.Code = http.StatusNotFound
		return
	case conditional(o.Kind) && cur.Revision != o.Precondition:
		o.Code = http.StatusConflict
		return
	}
	s.rev += 1 + uint64(s.r.IntN(2))
	o.Outcome, o.Revision = history.OK, s.rev
	it := history.Item{Key: o.Key, Value: o.Value, Revision: s.rev}
	if isDelete(o.Kind) {
		delete(s.state, o.Key)
		it.Value = cur.Value
	} else {
		s.state[o.Key] = it
	}
	s.h.Log = append(s.h.Log, history.Entry{Item: it, Deleted: isDelete(o.Kind)})
	s.at = append(s.at, s.now)
}

// before returns the objects at a revision.
func (s *simulation) before(rev uint64) []history.Item {
	m := map[string]history.Item{}
	for _, e := range s.h.Log {
		if e.Revision > rev {
			break
		}
		if e.Deleted {
			delete(m, e.Key)
		} else {
			m[e.Key] = e.Item
		}
	}
	items := make([]history.Item, 0, len(m))
	for _, it := range m {
		items = append(items, it)
	}
	slices.SortFunc(items, func(a, b history.Item) int { return strings.Compare(a.Key, b.Key) })
	return items
}

// answer returns from an operation.
func (s *simulation) answer(c *simClient, opt options) {
	o, n := c.op, c.node
	o.Return = s.now
	defer s.end(c)
	switch {
	case isWrite(o.Kind):
		n.applied = max(n.applied, c.index)
		if isDelete(o.Kind) && !opt.telling {
			o.Revision = 0
		}
		return
	case o.Mode == history.MostRecent:
		n.applied = max(n.applied, c.index)
	case o.Mode == history.NotOlderThan, o.Mode == history.Exact:
		n.applied = max(n.applied, o.Asked)
	}
	at := n.applied
	if o.Mode == history.Any {
		claim := s.r.Int64N(int64(time.Millisecond))
		for i, e := range s.h.Log {
			if e.Revision > at {
				claim += int64(s.now - s.at[i])
				break
			}
		}
		d := time.Duration(claim)
		o.Staleness = &d
	}
	if o.Mode == history.Exact {
		at = o.Asked
		if at < s.floor {
			o.Outcome, o.Code = history.Refused, http.StatusGone
			return
		}
	}
	s.read(c, at)
}

// read fills in the answer of a read of the state at a revision.
func (s *simulation) read(c *simClient, at uint64) {
	o := c.op
	o.Outcome = history.OK
	for _, it := range s.before(at) {
		switch {
		case o.Kind == history.Get && it.Key != o.Key,
			!strings.HasPrefix(it.Key, o.Prefix), o.After != "" && it.Key <= o.After:
			continue
		case o.Limit > 0 && len(o.Items) == o.Limit:
			o.More = true
		default:
			o.Items = append(o.Items, it)
		}
		if o.More {
			break
		}
	}
	if o.Kind == history.Get {
		if len(o.Items) == 0 {
			o.Outcome, o.Code = history.Refused, http.StatusNotFound
		}
		return
	}
	o.Revision = at
	if o.More && s.r.IntN(2) == 0 {
		page := *o
		c.page = &page
	}
}
