//go:build linux && amd64

package chaos

import (
	"context"
	"errors"
	"time"
)

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
