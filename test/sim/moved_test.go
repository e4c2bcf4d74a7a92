package sim

import (
	"context"
	"slices"
	"testing"
	"time"
)

// TestMovedMajority: a cluster without a leader, two of whose three voters have other addresses than its configuration
// says, comes to rest.
func TestMovedMajority(t *testing.T) {
	silenceRun(t, 3, func(t *testing.T, c *cluster) {
		down := func(nodes ...*node) {
			for _, n := range nodes {
				n.seat.mu.Lock()
				n.seat.down++
				n.seat.mu.Unlock()
				n.crash(true, false)
			}
		}
		l := c.leader()
		moved := slices.DeleteFunc(c.others(l), func(n *node) bool { return !n.seat.votes() })
		one, other := moved[0].seat, moved[1].seat
		down(one.running(), other.running())
		c.net.inherit(one.name, other.name)
		c.settle()
		c.net.found.Store(false)
		// The third one has an entry that the others have not, so that it votes for none of them.
		down(one.running(), other.running())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := putKey(ctx, l.store, "alone"); err == nil {
			t.Fatal("it was committed")
		}
		down(l)
		c.net.inherit(other.name, one.name)
		c.settle()
	})
}
