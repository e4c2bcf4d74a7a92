package listener

import (
	"container/heap"
	"container/list"
)

// shares are connections by whose they are: an address, or a user. It finds the holder
// of the most in constant time, and keeps order at the cost of a heap. Not safe for
// concurrent use.
type shares struct {
	holders map[string]*holder
	ranked  ranking
	count   int // connections
}

// holder is one address or user.
type holder struct {
	name  string
	conns list.List // of *connection, the oldest first
	idle  idleList  // users only
	at    int       // in the ranking
}

// idleList are connections, and which of them have been idle for how long. Those that are not are in the list too, in
// front: a connection changes with each request, and an element for each change would be garbage. Not safe for
// concurrent use.
type idleList struct {
	conns list.List     // of *connection, the longest idle one before those that became idle later
	first *list.Element // that is idle; so are all behind it
	count int           // of those that are idle
}

// add takes a connection in, which is not idle.
func (l *idleList) add(c *connection) *list.Element { return l.conns.PushFront(c) }

// remove takes out one that is not idle.
func (l *idleList) remove(e *list.Element) { l.conns.Remove(e) }

// idle notes that one is idle that was not, busy that it is not any more.
func (l *idleList) idle(e *list.Element) {
	l.conns.MoveToBack(e)
	if l.first == nil {
		l.first = e
	}
	l.count++
}

func (l *idleList) busy(e *list.Element) {
	if l.first == e {
		l.first = e.Next()
	}
	l.conns.MoveToFront(e)
	l.count--
}

// longest is the one that has been idle for the longest time. There must be one.
func (l *idleList) longest() *connection { return l.first.Value.(*connection) }

func newShares() *shares { return &shares{holders: map[string]*holder{}} }

// add gives a holder one more connection.
func (s *shares) add(name string, c *connection) {
	h := s.holders[name]
	if h == nil {
		h = &holder{name: name}
		s.holders[name] = h
		c.place = h.conns.PushBack(c)
		heap.Push(&s.ranked, h)
	} else {
		c.place = h.conns.PushBack(c)
		heap.Fix(&s.ranked, h.at)
	}
	c.holder = h
	s.count++
}

// remove takes a connection from its holder.
func (s *shares) remove(c *connection) {
	h := c.holder
	h.conns.Remove(c.place)
	c.holder, c.place = nil, nil
	s.count--
	if h.conns.Len() == 0 {
		heap.Remove(&s.ranked, h.at)
		delete(s.holders, h.name)
		return
	}
	heap.Fix(&s.ranked, h.at)
}

// most is the holder of the most connections; of several, the one with the oldest.
// There must be one.
func (s *shares) most() *holder { return s.ranked[0] }

func (h *holder) oldest() *connection { return h.conns.Front().Value.(*connection) }
func (h *holder) newest() *connection { return h.conns.Back().Value.(*connection) }

// ranking implements heap.Interface: the most connections first; of equally many, whose
// oldest is the oldest.
type ranking []*holder

func (r ranking) Len() int { return len(r) }

func (r ranking) Less(i, j int) bool {
	if a, b := r[i].conns.Len(), r[j].conns.Len(); a != b {
		return a > b
	}
	return r[i].oldest().number < r[j].oldest().number
}

func (r ranking) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].at, r[j].at = i, j
}

func (r *ranking) Push(x any) {
	h := x.(*holder)
	h.at = len(*r)
	*r = append(*r, h)
}

func (r *ranking) Pop() any {
	last := len(*r) - 1
	h := (*r)[last]
	(*r)[last] = nil
	*r = (*r)[:last]
	return h
}
