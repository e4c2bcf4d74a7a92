//go:build linux && amd64

package chaos

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// stalePauses stops the leader for 1 to 5 s again and again while its
// acknowledgements are on their way; now and then only for a moment, so that it
// wakes with answers in its sockets that are old.
func stalePauses(ctx context.Context, r *run) error {
	for round := 0; ctx.Err() == nil; round++ {
		leader, err := r.leader(ctx)
		if err != nil {
			return ended(ctx, err)
		}
		d := between(r.rng, time.Second, 3*time.Second)
		switch round % 4 {
		case 1:
			d = between(r.rng, 20*time.Millisecond, 300*time.Millisecond)
		case 3:
			d = between(r.rng, 3*time.Second, 5*time.Second)
		}
		if err := r.pause(ctx, d, leader); err != nil {
			return err
		}
		r.count("rounds", 1)
		rest(ctx, between(r.rng, 100*time.Millisecond, 600*time.Millisecond))
	}
	return nil
}

// mixture does a bit of everything that processes suffer: for the watches under a
// moving floor.
func mixture(ctx context.Context, r *run) error {
	for round := 0; ctx.Err() == nil; round++ {
		n, err := r.victim(ctx, round)
		if err != nil {
			return ended(ctx, err)
		}
		switch round % 4 {
		case 0:
			err = r.killAndStart(ctx, 300*time.Millisecond, n)
		case 1:
			err = r.pause(ctx, between(r.rng, 200*time.Millisecond, 2*time.Second), n)
		case 2:
			err = r.terminate(ctx, n)
		case 3:
			err = r.transfer(ctx)
		}
		if err != nil {
			return ended(ctx, err)
		}
		rest(ctx, between(r.rng, 300*time.Millisecond, 1500*time.Millisecond))
	}
	return nil
}

// clocks lets the nodes' wall clocks jump by up to an hour, and strobe; elections
// and transfers go on meanwhile.
func clocks(ctx context.Context, r *run) error {
	for round := 0; ctx.Err() == nil; round++ {
		n, err := r.victim(ctx, round)
		if err != nil {
			return ended(ctx, err)
		}
		switch round % 4 {
		case 0, 2:
			offset := between(r.rng, -time.Hour, time.Hour)
			over := r.fault("clock jump", offset.Round(time.Second).String(), false, n)
			err = n.clock.Set(offset)
			rest(ctx, between(r.rng, 500*time.Millisecond, 2*time.Second))
			over()
			// Back, and on by less than certificates bear: the next fault may cut connections.
			err = errors.Join(err, n.clock.Set(between(r.rng, -9*time.Minute, time.Hour)))
		case 1:
			over := r.fault("clock strobe", "±1h", false, r.targets()...)
			for until := time.Now().Add(2 * time.Second); time.Now().Before(until) && err == nil; {
				for _, m := range r.targets() {
					if err = m.clock.Set(between(r.rng, -time.Hour, time.Hour)); err != nil {
						break
					}
				}
				rest(ctx, between(r.rng, 5*time.Millisecond, 50*time.Millisecond))
			}
			over()
			for _, m := range r.targets() {
				err = errors.Join(err, m.clock.Set(0))
			}
		case 3:
			// New connections between clocks that differ: certificates are checked again.
			// They are made 10 minutes older than they are, which is how far a clock may
			// be behind; a node further behind refuses the others until it is right.
			if err = n.clock.Set(between(r.rng, -9*time.Minute, time.Hour)); err != nil {
				break
			}
			err = r.killAndStart(ctx, 100*time.Millisecond, n)
		}
		if err != nil {
			return ended(ctx, err)
		}
		if round%5 == 4 {
			if err := r.transfer(ctx); err != nil {
				return ended(ctx, err)
			}
		}
	}
	return nil
}

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
