package raftstore

import (
	"context"
	"sync"
	"time"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/local"
)

// offerEvery is how often a leader looks whether the members have changed.
const offerEvery = time.Second

// offer gives every member, while this node leads, a way to ask it that does not
// take a dial of the member's own: see Peers.Offer. Heartbeats keep followers
// loyal to a leader that they cannot dial, so without it their proposals and reads
// would fail for as long as that lasts.
func offer(node *local.Node) {
	type target struct {
		id   proto.NodeID
		addr string
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	offered := map[target]context.CancelFunc{}
	tick := time.NewTicker(offerEvery)
	defer tick.Stop()
	for node.Context().Err() == nil {
		change := node.Changed()
		want := map[target]bool{}
		var again <-chan time.Time // followers offer nothing
		if node.Ready() {
			again = tick.C
			for _, m := range node.Members() {
				want[target{m.ID, m.Address}] = m.ID != node.ID
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
				ctx, cancel := context.WithCancel(node.Context())
				offered[t] = cancel
				wg.Go(func() { node.Peers.Offer(ctx, t.id, t.addr) })
			}
		}
		select {
		case <-node.Context().Done():
		case <-change:
		case <-again:
		}
	}
	for _, cancel := range offered {
		cancel()
	}
}
