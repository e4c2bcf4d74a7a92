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
	idle  list.List // of *connection, the longest idle one first; users only
	at    int       // in the ranking
}

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
