//go:build linux && amd64

package chaos

import (
	"context"
	"syscall"
	"time"
)

// members lets the cluster grow to five and shrink to three again, while nodes
// are killed and cut off.
func members(ctx context.Context, r *run) error {
	go r.disturb(ctx)
	for round := 0; ctx.Err() == nil; round++ {
		if err := r.grow(ctx); err != nil {
			return ended(ctx, err)
		}
		if err := r.shrink(ctx); err != nil {
			return ended(ctx, err)
		}
		if ctx.Err() != nil {
			return nil
		}
		leader, err := r.leader(ctx)
		if err != nil {
			return ended(ctx, err)
		}
		n := r.followers(leader)[0]
		over := r.fault("wipe", "and join again under its name", true, n)
		if err = n.Kill(); err == nil {
			err = r.replace(context.WithoutCancel(ctx), n)
		}
		over()
		if err != nil {
			return err
		}
	}
	return nil
}

// disturb stops nodes and cuts links while members come and go. It takes nothing
// away for longer than a moment: a change of members needs a majority.
func (r *run) disturb(ctx context.Context) {
	rng := newRand(77)
	for round := 0; rest(ctx, between(rng, time.Second, 2*time.Second)); round++ {
		n := r.anyNode(rng)
		if round%2 == 0 {
			if err := r.pause(ctx, between(rng, 100*time.Millisecond, 800*time.Millisecond), n); err != nil {
				r.fail("%v", err)
			}
			continue
		}
		r.split(ctx, "minority", between(rng, 100*time.Millisecond, 1500*time.Millisecond), n)
	}
}

// grow adds two nodes, which get a vote when they have caught up; then one loses
// its vote and gets it back.
func (r *run) grow(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	var added *Node
	for range 2 {
		n, err := r.c.Add()
		if err != nil {
			return err
		}
		over := r.fault("add", "", true, n)
		if err := n.Start(); err != nil {
			return err
		}
		err = r.awaitVoter(ctx, n)
		over()
		if err != nil {
			return err
		}
		r.setTargets(append(r.targets(), n)...)
		r.count("members added", 1)
		added = n
	}
	defer r.fault("demote and promote", "", false, added)()
	if err := r.member(ctx, r.targets(), "demote", added.Name); err != nil {
		return err
	}
	if err := r.member(ctx, r.targets(), "promote", added.Name); err != nil {
		return err
	}
	return r.awaitVoter(ctx, added)
}

// shrink removes the leader and a follower.
func (r *run) shrink(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	for i := range 2 {
		n, err := r.leader(ctx)
		if err != nil {
			return err
		}
		if i == 1 {
			n = r.followers(n)[0]
		}
		others := r.others(n)
		over := r.fault("remove", "", true, n)
		n.ExpectExit() // a node ends when it learns of its removal
		err = r.member(ctx, others, "remove", n.Name)
		if err == nil {
			r.setTargets(others...)
			_ = n.Signal(syscall.SIGCONT)
			err = n.Kill()
		}
		over()
		if err != nil {
			return err
		}
		r.count("members removed", 1)
	}
	return nil
}
