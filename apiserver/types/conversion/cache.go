package conversion

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/slots"
)

// Cache keeps values that were costly to make, up to a number of bytes; what was not
// used for the longest time goes first. A value that is asked for by several at a time
// is made by one of them. Safe for concurrent use.
type Cache[K comparable, V any] struct {
	mu    sync.Mutex
	max   int64
	used  int64
	byKey map[K]*entry[K, V]
	order list.List // of *entry, the one used last in front; without those that are made
}

type entry[K comparable, V any] struct {
	key   K
	value V
	size  int64
	place *list.Element
	made  chan struct{} // closed when value or err is there
	err   error
}

// NewCache returns a cache of at most max bytes.
func NewCache[K comparable, V any](max int64) *Cache[K, V] {
	return &Cache[K, V]{max: max, byKey: map[K]*entry[K, V]{}}
}

// Bytes is what the values have together. It is for tests.
func (c *Cache[K, V]) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}

// ErrLate ends an attempt to make what another caller has failed to make.
var ErrLate = errors.New("no time is left after somebody else's failure")

// Get returns the values of keys. produce is called without a lock for those that are not
// there and that nobody else is making, by their indexes, and returns them in that
// order with their sizes. A failure of somebody else's is not this caller's: it tries
// itself, with what is left of within, which is how long produce may take, so that it waits once
// and not twice. Errors: produce's, the context's, and ErrLate.
func (c *Cache[K, V]) Get(ctx context.Context, keys []K, within time.Duration, produce func(ctx context.Context, missing []int) ([]V, []int64, error)) ([]V, error) {
	end := time.Now().Add(within)
	again := false
	out := make([]V, len(keys))
	left := make([]int, len(keys))
	for i := range left {
		left[i] = i
	}
	for len(left) > 0 {
		if again && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		mine, theirs := c.claim(keys, left, out)
		if len(mine) > 0 {
			// Others wait for what this caller makes: it must not wait for a slot meanwhile.
			over := slots.Waiting(ctx)
			err := c.fill(ctx, keys, mine, out, produce)
			over()
			if err != nil {
				return nil, err
			}
		}
		left = left[:0]
		for i, e := range theirs {
			over := slots.Waiting(ctx)
			select {
			case <-e.made:
				over()
			case <-ctx.Done():
				over()
				return nil, context.Cause(ctx)
			}
			if e.err != nil {
				left = append(left, i)
				continue
			}
			out[i] = e.value
		}
		if len(left) > 0 && !again {
			again = true
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadlineCause(ctx, end, ErrLate)
			defer cancel()
		}
	}
	return out, nil
}

// claim fills in what is there, and says what is this caller's to make and what others
// are making.
func (c *Cache[K, V]) claim(keys []K, wanted []int, out []V) (mine []int, theirs map[int]*entry[K, V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range wanted {
		e := c.byKey[keys[i]]
		switch {
		case e == nil:
			e = &entry[K, V]{key: keys[i], made: make(chan struct{})}
			c.byKey[keys[i]] = e
			mine = append(mine, i)
		case e.place == nil:
			// Being made; perhaps by this call, for a key that is asked for twice.
			if theirs == nil {
				theirs = map[int]*entry[K, V]{}
			}
			theirs[i] = e
		default:
			c.order.MoveToFront(e.place)
			out[i] = e.value
		}
	}
	return mine, theirs
}

// errAbandoned is what others see of a claim that was given up by a panic.
var errAbandoned = errors.New("abandoned")

func (c *Cache[K, V]) fill(ctx context.Context, keys []K, mine []int, out []V, produce func(context.Context, []int) ([]V, []int64, error)) error {
	err := errAbandoned
	var values []V
	var sizes []int64
	defer func() { c.publish(keys, mine, values, sizes, err) }()
	values, sizes, err = produce(ctx, mine)
	if err != nil {
		return err
	}
	for n, i := range mine {
		out[i] = values[n]
	}
	return nil
}

// publish hands what was made, or the error, to those who wait, and keeps what was made.
func (c *Cache[K, V]) publish(keys []K, mine []int, values []V, sizes []int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, i := range mine {
		e := c.byKey[keys[i]]
		if err != nil {
			e.err = err
			delete(c.byKey, e.key)
		} else {
			e.value, e.size = values[n], sizes[n]
			e.place = c.order.PushFront(e)
			c.used += e.size
		}
		close(e.made)
	}
	for c.used > c.max && c.order.Len() > 0 {
		oldest := c.order.Remove(c.order.Back()).(*entry[K, V])
		delete(c.byKey, oldest.key)
		c.used -= oldest.size
	}
}
