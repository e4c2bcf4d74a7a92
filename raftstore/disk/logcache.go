package disk

import (
	"sync"

	"github.com/hashicorp/raft"
)

// logCache holds the newest entries of the log, without gaps, up to a number of
// bytes, so that replication does not read the disk.
type logCache struct {
	mu    sync.RWMutex
	ring  []*raft.Log // length is a power of two
	head  int         // place of the entry at first
	n     int
	first uint64 // index of the oldest entry, if n > 0
	bytes int64
	max   int64
}

// logOverhead is what an entry costs beside its data.
const logOverhead = 128

func logSize(l *raft.Log) int64 { return int64(len(l.Data)+len(l.Extensions)) + logOverhead }

func newLogCache(max int64) *logCache {
	return &logCache{ring: make([]*raft.Log, 64), max: max}
}

func (c *logCache) at(i int) **raft.Log { return &c.ring[(c.head+i)&(len(c.ring)-1)] }

// get returns nil if the entry is not cached. It must not be written to.
func (c *logCache) get(index uint64) *raft.Log {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if index < c.first || index-c.first >= uint64(c.n) {
		return nil
	}
	return *c.at(int(index - c.first))
}

// put adds entries that are on disk. They may overwrite cached ones, and they
// need not follow them.
func (c *logCache) put(logs []*raft.Log) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range logs {
		c.add(l)
	}
}

func (c *logCache) add(l *raft.Log) {
	next := c.first + uint64(c.n)
	switch {
	case c.n == 0:
		c.first = l.Index
	case l.Index >= c.first && l.Index < next:
		// Without DeleteRange before it, what follows is still on disk: it is
		// only not cached any more.
		c.cutBack(int(next - l.Index))
	case l.Index != next:
		c.cutBack(c.n)
		c.first = l.Index
	}
	if c.n == 0 {
		c.first = l.Index
	}
	if c.n == len(c.ring) {
		grown := make([]*raft.Log, 2*len(c.ring))
		for i := range c.n {
			grown[i] = *c.at(i)
		}
		c.ring, c.head = grown, 0
	}
	*c.at(c.n) = l
	c.n++
	c.bytes += logSize(l)
	for c.bytes > c.max {
		c.cutFront(1)
	}
}

func (c *logCache) cutFront(k int) {
	for range k {
		p := c.at(0)
		c.bytes -= logSize(*p)
		*p = nil
		c.head = (c.head + 1) & (len(c.ring) - 1)
		c.n--
		c.first++
	}
}

func (c *logCache) cutBack(k int) {
	for range k {
		p := c.at(c.n - 1)
		c.bytes -= logSize(*p)
		*p = nil
		c.n--
	}
}

// remove forgets the entries from min to max, both inclusive.
func (c *logCache) remove(min, max uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 || min > max {
		return
	}
	last := c.first + uint64(c.n) - 1
	switch {
	case max < c.first || min > last:
	case min <= c.first && max >= last:
		c.cutBack(c.n)
	case min <= c.first:
		c.cutFront(int(max - c.first + 1))
	default:
		// From the middle to the end, or out of the middle: the cache has no gaps.
		c.cutBack(int(last - min + 1))
	}
}
