package readindex

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/quorate/quorate/proto"
)

// freshness knows when this node was last certainly current: the start of the
// newest linearizable read whose index this node has applied. It is an upper
// bound that holds on a deposed leader and behind one.
type freshness struct {
	mu      sync.Mutex
	current time.Time // this node had everything that was acknowledged by then
	pending []confirmation
	asked   time.Time // by Staleness
}

type confirmation struct {
	began time.Time
	index proto.Revision
}

// maxConfirmations bounds what waits for a node that lags.
const maxConfirmations = 64

// confirmed notes that index covers everything acknowledged before began.
func (f *freshness) confirmed(began time.Time, index proto.Revision) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pending) < maxConfirmations {
		f.pending = append(f.pending, confirmation{began, index})
		return
	}
	// Keep the oldest ones: they come true first.
	f.pending[len(f.pending)-1] = confirmation{began, index}
}

// since returns the time when this node was last certainly current.
func (f *freshness) since(applied proto.Revision) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := f.pending[:0]
	for _, c := range f.pending {
		if c.index > applied {
			kept = append(kept, c)
		} else if c.began.After(f.current) {
			f.current = c.began
		}
	}
	f.pending = kept
	f.asked = time.Now()
	return f.current
}

// NeverCurrent is the Staleness of a node that was not found current since it
// was started.
const NeverCurrent time.Duration = math.MaxInt64

const (
	// refreshIdle keeps the bound near a second on a node that nobody asks.
	refreshIdle = time.Second
	// refreshBusy keeps it near this while Any reads are served.
	refreshBusy = 100 * time.Millisecond
)

// Staleness is how long ago this node last certainly had everything that was
// acknowledged anywhere: an upper bound of how stale its local reads are. It is
// refreshed in the background, more often while it is asked for. Before the
// first time it is NeverCurrent.
func (r *Reader) Staleness() time.Duration {
	since := r.fresh.since(r.cfg.Applied())
	if since.IsZero() {
		// A node that was just started may have been away for days.
		return NeverCurrent
	}
	return time.Since(since)
}

// Refresh keeps Staleness small until the node's context ends.
func (r *Reader) Refresh() {
	tick := time.NewTicker(refreshBusy)
	defer tick.Stop()
	var last time.Time
	for {
		select {
		case <-r.node.Context().Done():
			return
		case now := <-tick.C:
			r.fresh.mu.Lock()
			busy := now.Sub(r.fresh.asked) < refreshIdle
			r.fresh.mu.Unlock()
			if !busy && now.Sub(last) < refreshIdle {
				continue
			}
			ctx, cancel := context.WithTimeout(r.node.Context(), refreshIdle)
			began := time.Now()
			if index, err := r.once(ctx, r.node.Changed()); err == nil {
				r.fresh.confirmed(began, index)
				last = now
			}
			cancel()
		}
	}
}
