package raftstore

import (
	"context"
	"sync"
	"time"

	"github.com/quorate/quorate/proto"
)

// offerEvery is how often a leader looks whether the members have changed.
const offerEvery = time.Second

// offer gives every member, while this node leads, a way to ask it that does not
// take a dial of the member's own: see Peers.Offer. Heartbeats keep followers
// loyal to a leader that they cannot dial, so without it their proposals and reads
// would fail for as long as that lasts.
func (s *Store) offer() {
	type target struct {
		id   proto.NodeID
		addr string
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	offered := map[target]context.CancelFunc{}
	tick := time.NewTicker(offerEvery)
	defer tick.Stop()
	for s.ctx.Err() == nil {
		change := s.leader.watch()
		want := map[target]bool{}
		var again <-chan time.Time // followers offer nothing
		if s.leader.ready() {
			again = tick.C
			if _, servers, err := s.Members(); err == nil {
				for _, m := range servers {
					want[target{m.ID, m.Address}] = m.ID != s.cfg.Node
				}
			}
		}
		for t, cancel := range offered {
			if !want[t] {
				cancel()
				delete(offered, t)
			}
		}
		for t, other := range want {
			if other && offered[t] == nil {
				ctx, cancel := context.WithCancel(s.ctx)
				offered[t] = cancel
				wg.Go(func() { s.cfg.Peers.Offer(ctx, t.id, t.addr) })
			}
		}
		select {
		case <-s.ctx.Done():
		case <-change:
		case <-again:
		}
	}
	for _, cancel := range offered {
		cancel()
	}
}
