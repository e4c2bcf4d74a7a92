package sim

import (
	"context"
	"slices"
	"time"

	"github.com/quorate/quorate/proto"
)

// inherit has a machine come back with the address of another one: of a leader that was
// elected just now, by a voter to which it could not send an entry of its term. The heir
// was down and does not know that term. (Two addresses that are exchanged could not be
// told to the leader: Raft refuses a configuration with the same address twice.)
func (n *nemesis) inherit() ([]string, string, func()) {
	ctx, cancel := n.until(5 * time.Second)
	defer cancel()
	l := n.c.leader()
	if l == nil {
		return nil, "", nil
	}
	voters := slices.DeleteFunc(without(n.c.members(), l.seat), func(s *seat) bool { return !s.votes() || s.running() == nil })
	if len(voters) < 2 {
		return nil, "", nil
	}
	n.rng.Shuffle(len(voters), func(i, j int) { voters[i], voters[j] = voters[j], voters[i] })
	a, b := voters[0], voters[1]
	n.narrowFrom(a, true)
	n.kill([]*seat{b}, true)
	n.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_ = l.store.TransferLeadership(ctx, proto.NodeID(a.name))
	})
	before, stop := time.Now(), time.Second
	elected := await(ctx, func() bool { return n.c.trace.leads(a.name) || time.Since(before) > stop }) && n.c.trace.leads(a.name)
	n.kill([]*seat{a}, true)
	n.c.net.inherit(b.name, a.name)
	n.narrowFrom(a, false)
	n.up([]*seat{b})
	_ = sleep(ctx, time.Duration(n.rng.Int64N(int64(time.Second))))
	n.up([]*seat{a})
	n.c.announce(ctx)
	detail := "one was just elected"
	if !elected {
		detail = "none was elected"
	}
	return []string{a.name, b.name}, detail, nil
}

// narrowFrom holds back the entries that a machine sends.
func (n *nemesis) narrowFrom(s *seat, narrow bool) {
	n.c.net.change(func(at func(string, string) *link) {
		for _, o := range n.c.members() {
			at(s.name, o.name).narrow = narrow
		}
	})
}

// announce tells the leader the addresses of machines that have others now, as the
// membership manager does.
func (c *cluster) announce(ctx context.Context) {
	for ctx.Err() == nil && !c.announced(ctx) {
		_ = sleep(ctx, 50*time.Millisecond)
	}
}

// announced makes what changes it can and reports whether there was none left. One that
// has another's old address waits for that one.
func (c *cluster) announced(ctx context.Context) bool {
	l := c.leader()
	if l == nil {
		return false
	}
	_, servers := l.store.Members()
	done := true
	for _, s := range servers {
		addr := c.net.address(string(s.ID))
		if s.Address == addr {
			continue
		}
		done = false
		change := l.store.AddNonvoter
		if s.Voter {
			change = l.store.AddVoter
		}
		_ = change(ctx, s.ID, addr, 0)
	}
	return done
}

// votes reports whether a machine was given a vote when the cluster was made.
func (s *seat) votes() bool { return s.name[0] == 'n' }
