package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/raftstore"
)

// TestFirstElection: a new cluster has a leader as soon as its voters have written the first
// configuration, without a pause or a timeout, and nobody else has campaigned.
func TestFirstElection(t *testing.T) {
	const within = 100 * time.Millisecond // of exchanges and of syncs; the first pause of a store is 150 ms at least
	for _, voters := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(voters), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProfile(1, rand.New(rand.NewPCG(1, 0)))
				p.voters, p.network, p.sync, p.double = voters, time.Millisecond, 2*time.Millisecond, 0
				p.timing = raftstore.Timing{Heartbeat: 10 * time.Second, Election: 10 * time.Second, Lease: 5 * time.Second}
				c := newCluster(p, 1, t.TempDir(), nil)
				defer func() {
					c.close()
					time.Sleep(time.Minute) // timers of what has ended
				}()
				must.OK(t, c.bootstrap())
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for c.leader() == nil {
					must.OK(t, sleep(ctx, time.Millisecond))
				}
				if took := time.Since(began); took > within {
					t.Errorf("the first leader of %d voters was there after %v", voters, took)
				}
				var campaigns int64
				for _, s := range c.all() {
					campaigns += s.running().store.Counters().Campaigns
				}
				if term := c.leader().store.Status().Term; campaigns != 1 || term != 2 {
					t.Errorf("%d campaigns, term %d", campaigns, term)
				}
			})
		})
	}
}
