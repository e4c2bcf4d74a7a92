package mvcc

import (
	"math/bits"
	"sort"
	"sync/atomic"

	"github.com/quorate/quorate/proto"
)

// chunkSize balances the cost of a new chunk (one copy of the chunk list)
// against what a trimmed history keeps alive (at most a chunk per table).
const chunkSize = 256

// chunk is a run of a table's versions in revision order. Entries below n are
// immutable and visible to readers; the writer alone appends.
type chunk struct {
	n        atomic.Uint32
	versions [chunkSize]*Version
	// turns has a bit for each version with which its key began or ceased to be live.
	turns [chunkSize / 64]atomic.Uint64
	next  atomic.Pointer[chunk]
}

func (c *chunk) first() proto.Revision { return c.versions[0].Revision }

// history is a table's versions above the floor, oldest first.
type history struct {
	// chunks is copied on every change of the list. Only non-empty chunks are in
	// it, so that a reader can always look at a chunk's first version.
	chunks atomic.Pointer[[]*chunk]
}

func (h *history) list() []*chunk {
	if p := h.chunks.Load(); p != nil {
		return *p
	}
	return nil
}

// begun is how many chunks of a list begin at or below a revision.
func begun(list []*chunk, at proto.Revision) int {
	return sort.Search(len(list), func(i int) bool { return list[i].first() > at })
}

// append adds the newest version. turn says that its key was live before and is not
// now, or the other way round. Writer only.
func (h *history) append(v *Version, turn bool) {
	list := h.list()
	if len(list) > 0 {
		tail := list[len(list)-1]
		if n := tail.n.Load(); n < chunkSize {
			tail.set(n, v, turn)
			tail.n.Store(n + 1)
			return
		}
	}
	c := &chunk{}
	c.set(0, v, turn)
	c.n.Store(1)
	grown := make([]*chunk, len(list), len(list)+1)
	copy(grown, list)
	grown = append(grown, c)
	h.chunks.Store(&grown)
	if len(list) > 0 {
		list[len(list)-1].next.Store(c)
	}
}

// set fills a place that readers do not look at yet.
func (c *chunk) set(i uint32, v *Version, turn bool) {
	c.versions[i] = v
	if turn {
		c.turns[i/64].Or(1 << (i % 64))
	}
}

// turns calls f for the versions above after, up to upTo, with which a key began or
// ceased to be live, until it returns false. Other versions cost a bit each. None is
// missed as long as the floor is not above after, and upTo was published before.
func (h *history) turns(after, upTo proto.Revision, f func(*Version) bool) {
	if upTo <= after {
		return
	}
	// What has been published up to upTo is in the list by now: a chunk's successors
	// that are linked later have nothing of it.
	list := h.list()
	for _, c := range list[max(0, begun(list, after)-1):] {
		n := int(c.n.Load())
		for word := range c.turns {
			for left := c.turns[word].Load(); left != 0; left &= left - 1 {
				i := 64*word + bits.TrailingZeros64(left)
				if i >= n {
					return
				}
				v := c.versions[i]
				if v.Revision > upTo || v.Revision > after && !f(v) {
					return
				}
			}
		}
	}
}

// trim calls f for every version <= floor that it has not been called for, and
// drops the chunks that hold nothing above the floor. done is how far f was
// called before. Writer only.
func (h *history) trim(done, floor proto.Revision, f func(*Version)) {
	list := h.list()
	drop := 0
	for i, c := range list[:begun(list, floor)] {
		n := c.n.Load()
		for _, v := range c.versions[:n] {
			if v.Revision > done && v.Revision <= floor {
				f(v)
			}
		}
		if c.versions[n-1].Revision <= floor && (n == chunkSize || i < len(list)-1) {
			drop = i + 1
		}
	}
	if drop > 0 {
		kept := append([]*chunk(nil), list[drop:]...)
		h.chunks.Store(&kept)
	}
}

// Cursor is a position in a table's history: everything up to After has been
// read. It is a value for one goroutine at a time.
type Cursor struct {
	table *Table
	after proto.Revision
	chunk *chunk
	next  uint32 // in chunk
}

// After is the revision up to which the cursor has read.
func (c *Cursor) After() proto.Revision { return c.after }

// Next fills buf with the versions that follow, in revision order, all <= upTo,
// and returns how many there were. Fewer than len(buf) means that the history
// up to upTo has been read, and After is then upTo. It returns ErrCompacted
// when the floor has passed the position; nothing has been skipped before that.
//
// upTo must be an applied mark that was read before the call.
func (c *Cursor) Next(buf []*Version, upTo proto.Revision) (int, error) {
	if upTo <= c.after {
		return 0, nil
	}
	if c.chunk == nil {
		c.chunk, c.next = c.table.hist.seek(c.after)
	}
	n := 0
	for n < len(buf) && c.chunk != nil {
		if have := c.chunk.n.Load(); c.next >= have {
			if have < chunkSize {
				break
			}
			// A full tail without a successor may be dropped by trim before it
			// gets one: the next call looks for the position again.
			c.chunk, c.next = c.chunk.next.Load(), 0
			continue
		}
		v := c.chunk.versions[c.next]
		if v.Revision > upTo {
			break
		}
		buf[n] = v
		n++
		c.next++
	}
	// A floor above the position can have hidden versions between the position
	// and the first one that was found.
	if c.table.forgot(c.after) {
		return 0, ErrCompacted
	}
	if n < len(buf) {
		c.after = upTo
	} else if n > 0 {
		c.after = buf[n-1].Revision
		if c.next == chunkSize {
			// Not to be kept: if trim drops this chunk while it is the tail, and the
			// floor is exactly After, its successor will never be linked to it.
			c.chunk, c.next = c.chunk.next.Load(), 0
		}
	}
	return n, nil
}

// seek returns the place of the first version above after, or nil if the
// history is empty.
func (h *history) seek(after proto.Revision) (*chunk, uint32) {
	list := h.list()
	if len(list) == 0 {
		return nil, 0
	}
	c := list[max(0, begun(list, after)-1)]
	n := int(c.n.Load())
	j := sort.Search(n, func(j int) bool { return c.versions[j].Revision > after })
	return c, uint32(j)
}
