package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore"
	"github.com/quorate/quorate/test/judges/history"
)

// lead makes a machine the leader, if it can be.
func (n *nemesis) lead(ctx context.Context, s *seat) bool {
	return await(ctx, func() bool {
		l := n.c.leader()
		if l != nil && l.seat != s {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			_ = l.store.TransferLeadership(ctx, proto.NodeID(s.name))
			cancel()
		}
		return l != nil && l.seat == s
	})
}

// burst has that many clients write to a machine at once, in the background. The
// channel is closed when all have an answer or have given up.
func (n *nemesis) burst(s *seat, writes int) <-chan struct{} {
	done := make(chan struct{}, writes)
	all := make(chan struct{})
	for range writes {
		k := newClient(n.c, 1_000_000+1000*(1+len(n.writers)), rand.New(rand.NewPCG(n.rng.Uint64(), 0)))
		n.writers = append(n.writers, k)
		n.tasks.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			op := history.Op{Kind: history.Update, Key: keys[k.RNG.IntN(len(keys))]}
			if k.RNG.IntN(3) == 0 {
				op.Kind = history.Create
			}
			k.write(ctx, s, op)
			// So many refusals at one time are more than linearizability can be judged of.
			k.Ops = slices.DeleteFunc(k.Ops, func(o history.Op) bool { return o.Outcome == history.Refused })
			done <- struct{}{}
		})
	}
	n.tasks.Go(func() {
		for range writes {
			<-done
		}
		close(all)
	})
	return all
}

// behind cuts the leader off with writes under way, lets the others go on until
// their logs begin behind its end, so that it comes back by a snapshot, and makes it
// the leader before its own next snapshot. Then somebody comes who is even further
// behind: one that was away for longer, or that has never been there. What it gets
// comes from a log that has seen all of it.
func (n *nemesis) behind() ([]string, string, func()) {
	ctx, cancel := n.until(10 * time.Second)
	defer cancel()
	x := n.returning()
	if x == nil || !n.lead(ctx, x) {
		return nil, "", nil
	}
	nodes, detail := []string{x.name}, "a new machine behind it"
	others := without(n.c.members(), x)
	join := func() {}
	if late := n.later(others); late != nil {
		nodes, detail = append(nodes, late.name), late.name+" behind it"
		others = without(others, late)
		join = n.cut(between([]*seat{late}, n.c.members()))
		defer func() { join() }()
		_ = sleep(ctx, time.Duration(n.rng.Int64N(int64(300*time.Millisecond))))
	}
	side := []*seat{x}
	if with := n.spared(others); with != nil { // to whom it goes on to send entries
		side, others, nodes = append(side, with), without(others, with), append(nodes, with.name)
	}
	heal := n.cut(between(side, others))
	if !n.outlast(ctx, x, others) {
		heal()
		return nodes, detail + ", not that far", nil
	}
	heal()
	if !n.returns(ctx, x) || !n.lead(ctx, x) {
		return nodes, detail + ", it did not lead", nil
	}
	if len(nodes) == 1 || n.rng.IntN(4) == 0 {
		n.joins(ctx)
	}
	join()
	join = func() {}
	await(ctx, n.together)
	return nodes, detail, nil
}

// returning is the voter that will be away and lead again.
func (n *nemesis) returning() *seat {
	p := &n.c.profile
	if p.slow > 0 {
		return n.c.all()[p.voters-1]
	}
	l := n.c.leader()
	if l == nil {
		return nil
	}
	return l.seat
}

// later is the machine that stays away for longer than the one that returns, or nil.
func (n *nemesis) later(of []*seat) *seat {
	if n.rng.IntN(4) == 0 && n.spare < maxSpare {
		return nil
	}
	return n.dispensable(of)
}

// spared is a machine on the losing side of a cut, seldom.
func (n *nemesis) spared(of []*seat) *seat {
	if n.rng.IntN(3) > 0 {
		return nil
	}
	return n.dispensable(of)
}

// dispensable is one of some machines without which, and without one more voter,
// the rest are still a majority; or nil.
func (n *nemesis) dispensable(of []*seat) *seat {
	voters := 0
	for _, s := range of {
		if s.votes() {
			voters++
		}
	}
	var out []*seat
	for _, s := range of {
		if !s.votes() || voters-1 > n.c.profile.voters/2 {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out[n.rng.IntN(len(out))]
}

// outlast has clients write on both sides of a cut until the log of those who go on
// begins behind the end of x's.
func (n *nemesis) outlast(ctx context.Context, x *seat, others []*seat) bool {
	n.burst(x, 1+n.rng.IntN(20))
	return await(ctx, func() bool {
		l, r := n.c.leader(), x.running()
		if r == nil || l == nil || l.seat == x {
			return false
		}
		if n.c.trace.begins(l.name) > r.store.Status().LastLogIndex {
			return true
		}
		select {
		case <-n.burst(l.seat, 6):
		case <-ctx.Done():
		}
		return false
	})
}

// returns waits until x has what the leader has.
func (n *nemesis) returns(ctx context.Context, x *seat) bool {
	return await(ctx, func() bool {
		l, r := n.c.leader(), x.running()
		return l != nil && r != nil && r.store.Applied()+5 >= l.store.Applied()
	})
}

// maxSpare is how many machines a run may add.
const maxSpare = 2

// joins adds a machine without a vote.
func (n *nemesis) joins(ctx context.Context) {
	if n.spare >= maxSpare {
		return
	}
	n.spare++
	fresh := n.c.add(fmt.Sprintf("x%d", 10+n.spare), n.c.profile.timing)
	if err := fresh.start(); err != nil {
		n.c.fail("%v", err)
		return
	}
	if n.c.member(ctx, "add", fresh.name) != nil {
		return
	}
}

// together reports whether all members that run are near the leader.
func (n *nemesis) together() bool {
	l := n.c.leader()
	if l == nil {
		return false
	}
	for _, s := range n.c.members() {
		if r := s.running(); r != nil && r.store.Applied()+5 < l.store.Applied() {
			return false
		}
	}
	return true
}

// behindProfile is what the stories need: batches that are shorter than logs, and
// logs that are shorter than an absence.
func behindProfile(p *profile, rng *rand.Rand) {
	p.limits = raftstore.Limits{
		MaxAppendEntries:  1 << rng.IntN(5),
		TrailingLogs:      uint64(20 + rng.IntN(30)),
		SnapshotThreshold: uint64(16 + rng.IntN(16)),
	}
	p.nonvoters = max(p.nonvoters, 1)
	p.timing.SnapshotInterval /= 4
	p.lazy = rng.Uint32()
	p.slow = rng.IntN(2)
	p.clients = 3 + rng.IntN(3)
	p.every = 200 * time.Millisecond
	p.length /= 2
}
