package sim

import (
	"context"
	"fmt"
	"time"
)

// member changes the membership as the manager does: one change at a time, a new
// machine first without a vote, a removed one wiped and brought back under a new
// name. A quorum of machines that run stays.
func (n *nemesis) member() ([]string, string, func()) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	what, name := n.plan()
	if what == "" {
		cancel()
		return nil, "", nil
	}
	n.tasks.Go(func() {
		defer cancel()
		switch what {
		case "replace":
			n.replace(ctx, name)
		default:
			_ = n.c.member(ctx, what, name)
		}
	})
	return []string{name}, what, cancel
}

// plan chooses a change that leaves at least three voters.
func (n *nemesis) plan() (what, name string) {
	l := n.c.leader()
	if l == nil {
		return "", ""
	}
	_, servers := l.store.Members()
	voters := 0
	for _, s := range servers {
		if s.Voter {
			voters++
		}
	}
	s := servers[n.rng.IntN(len(servers))]
	switch {
	case !s.Voter:
		return "promote", string(s.ID)
	case voters > 3 && n.rng.IntN(2) == 0:
		return "demote", string(s.ID)
	case n.spare < 2:
		n.spare++
		return "replace", string(s.ID)
	}
	return "", ""
}

// replace adds a new machine, waits until it follows, gives it a vote, and
// removes the old one.
func (n *nemesis) replace(ctx context.Context, old string) {
	fresh := n.c.add(fmt.Sprintf("r%d", n.spare), n.c.profile.timing)
	if err := fresh.start(); err != nil {
		n.c.fail("%v", err)
		return
	}
	if n.c.member(ctx, "add", fresh.name) != nil || !n.follows(ctx, fresh) || n.c.member(ctx, "promote", fresh.name) != nil {
		return
	}
	if n.c.member(ctx, "remove", old) != nil {
		return
	}
	for _, s := range n.c.all() {
		if s.name == old {
			s.leave()
		}
	}
}

// follows waits until a machine has what the leader has.
func (n *nemesis) follows(ctx context.Context, s *seat) bool {
	for ctx.Err() == nil {
		if l, r := n.c.leader(), s.running(); l != nil && r != nil && r.store.Applied()+5 >= l.store.Applied() {
			return true
		}
		if sleep(ctx, 50*time.Millisecond) != nil {
			break
		}
	}
	return false
}
