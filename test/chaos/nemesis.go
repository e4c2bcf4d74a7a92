//go:build linux && amd64

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"
)

// rest waits, or returns false when the time for faults is over.
func rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func between(rng *rand.Rand, a, b time.Duration) time.Duration {
	return a + time.Duration(rng.Int64N(int64(b-a)+1))
}

// victims are nodes to do something to: the leader first, then what the dice say.
func (r *run) victim(ctx context.Context, round int) (*Node, error) {
	if round%2 == 1 {
		return r.anyNode(r.rng), nil
	}
	return r.leader(ctx)
}

// kills kills the leader, any node, and now and then all of them.
func kills(ctx context.Context, r *run) error {
	for round := 0; ctx.Err() == nil; round++ {
		victims := r.targets()
		if round%5 != 4 {
			v, err := r.victim(ctx, round)
			if err != nil {
				return ended(ctx, err)
			}
			victims = []*Node{v}
		}
		if err := r.killAndStart(ctx, between(r.rng, 0, 1500*time.Millisecond), victims...); err != nil {
			return ended(ctx, err)
		}
		rest(ctx, between(r.rng, 300*time.Millisecond, 2*time.Second))
	}
	return nil
}

// ended hides an error that comes from the end of the time for faults.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// killAndStart kills nodes at once, starts them after a while and waits until
// they are ready.
func (r *run) killAndStart(ctx context.Context, down time.Duration, victims ...*Node) error {
	defer r.fault("kill", "", true, victims...)()
	for _, n := range victims {
		n.ExpectExit()
		if err := n.Signal(syscall.SIGKILL); err != nil {
			return err
		}
	}
	for _, n := range victims {
		if err := n.Kill(); err != nil {
			return err
		}
	}
	rest(ctx, down)
	return r.startAll(context.WithoutCancel(ctx), victims...)
}

func (r *run) startAll(ctx context.Context, nodes ...*Node) error {
	var errs []error
	for _, n := range nodes {
		if !n.Alive() {
			errs = append(errs, n.Start())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, n := range nodes {
		errs = append(errs, n.AwaitReady(ctx, time.Minute))
	}
	return errors.Join(errs...)
}

// stops stops processes for 0.1 to 10 s, the leader first: a stopped node keeps
// its connections and wakes up in the past.
func stops(ctx context.Context, r *run) error {
	for round := 0; ctx.Err() == nil; round++ {
		v, err := r.victim(ctx, round)
		if err != nil {
			return ended(ctx, err)
		}
		pause := between(r.rng, 100*time.Millisecond, 3*time.Second)
		if round%4 == 2 {
			pause = between(r.rng, 3*time.Second, 10*time.Second)
		}
		if err := r.pause(ctx, pause, v); err != nil {
			return err
		}
		rest(ctx, between(r.rng, 100*time.Millisecond, 1500*time.Millisecond))
	}
	return nil
}

func (r *run) pause(ctx context.Context, d time.Duration, nodes ...*Node) error {
	defer r.fault("pause", d.Round(time.Millisecond).String(), false, nodes...)()
	var errs []error
	for _, n := range nodes {
		errs = append(errs, n.Signal(syscall.SIGSTOP))
	}
	rest(ctx, d)
	for _, n := range nodes {
		errs = append(errs, n.Signal(syscall.SIGCONT))
	}
	return errors.Join(errs...)
}

// restarts ends nodes as systemd does, and gives leadership away by command.
func restarts(ctx context.Context, r *run) error {
	for round := 0; ctx.Err() == nil; round++ {
		v, err := r.victim(ctx, round)
		if err != nil {
			return ended(ctx, err)
		}
		if round%3 == 2 {
			if err := r.transfer(ctx); err != nil {
				return ended(ctx, err)
			}
		} else if err := r.terminate(ctx, v); err != nil {
			return ended(ctx, err)
		}
		rest(ctx, between(r.rng, 100*time.Millisecond, time.Second))
	}
	return nil
}

// terminate ends a node with SIGTERM, which it must obey, and starts it again.
func (r *run) terminate(ctx context.Context, n *Node) error {
	defer r.fault("restart", "SIGTERM", true, n)()
	n.ExpectExit()
	if err := n.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	exit, err := n.Gone(20 * time.Second)
	if err != nil {
		return err
	}
	if exit != nil {
		return fmt.Errorf("%s ended with %v after SIGTERM: %s", n.Name, exit, n.lastWords())
	}
	return r.startAll(context.WithoutCancel(ctx), n)
}

// transfer hands leadership to another voter. The command may be refused, as when
// the other lags.
func (r *run) transfer(ctx context.Context) error {
	leader, err := r.leader(ctx)
	if err != nil {
		return err
	}
	followers := r.followers(leader)
	to := followers[r.rng.IntN(len(followers))]
	defer r.fault("transfer", leader.Name+" to "+to.Name, false, leader, to)()
	if _, err := leader.command(ctx, "member", "transfer-leader", to.Name); err != nil {
		r.count("transfers refused", 1)
	}
	return nil
}

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
