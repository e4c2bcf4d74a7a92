package faults

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
)

// played is one fault that has happened. Times are since the measurement began.
type played struct {
	Fault
	node       int
	role       client.Role // that the node had
	began, end time.Duration
	back       back
	delayed    int64 // syncs, of a slow disk
}

// back is how a node came back, from when it was let: from SIGTERM of a restart, from the
// start of a node that was killed, from SIGCONT, from the end of a partition or of a slow disk. A zero is a time that never came.
type back struct {
	gone  time.Duration // the process had ended; restarts only
	ready time.Duration // /readyz said yes
	wrote time.Duration // a write through it was acknowledged
}

// play lets the faults happen, one after the other.
func (l *load) play(ctx context.Context, m Machines, turn int, say func(format string, args ...any)) ([]played, error) {
	var all []played
	for i, f := range l.opt.Faults {
		l.until(ctx, f.At)
		if ctx.Err() != nil {
			return all, nil
		}
		next := l.length
		if i+1 < len(l.opt.Faults) {
			next = l.opt.Faults[i+1].At
		}
		p, err := l.one(ctx, m, f, turn, next)
		if err != nil {
			return all, fmt.Errorf("fault %s: %w", f, err)
		}
		delayed := ""
		if p.Kind == SlowDisk {
			delayed = fmt.Sprintf(", %d syncs took longer", p.delayed)
		}
		say("%s: %s %s (%s)%s, back after %s", f, p.Kind, l.nodes[p.node].Name, p.role, delayed, seconds(p.back.wrote))
		all = append(all, p)
	}
	return all, nil
}

func seconds(d time.Duration) string {
	if d == 0 {
		return "never"
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// now is the time since the measurement began.
func (l *load) now() time.Duration { return l.clock.Now() - l.begin }

func (l *load) until(ctx context.Context, at time.Duration) {
	if d := at - l.now(); d > 0 {
		measure.Pause(ctx, d)
	}
}

// one lets a fault happen and waits until its node is back, at most until the next.
func (l *load) one(ctx context.Context, m Machines, f Fault, turn int, next time.Duration) (p played, err error) {
	p.Fault = f
	if p.node, err = l.await(ctx, f.Target, turn, next); err != nil {
		return p, err
	}
	l.mu.Lock()
	p.role = l.roles[p.node]
	l.mu.Unlock()
	name := l.nodes[p.node].Name
	p.began = l.now()
	let := p.began // from when on it may come back
	switch f.Kind {
	case Kill:
		err = m.Kill(ctx, name)
	case Restart:
		if err = m.Stop(ctx, name); err == nil {
			p.back.gone = l.now() - let
			err = m.Start(ctx, name)
		}
	case Pause:
		err = m.Pause(name)
	case Partition:
		err = m.Cut(name, f.Cut != Out, f.Cut != In)
	case SlowDisk:
		_, err = m.Slow(name, f.Delay)
	}
	if err != nil {
		return p, err
	}
	if f.Kind.lasts() {
		l.until(ctx, p.began+f.For)
		let = l.now()
		switch f.Kind {
		case Kill:
			err = m.Start(ctx, name)
		case Pause:
			err = m.Resume(name)
		case Partition:
			err = m.Heal(name)
		case SlowDisk:
			p.delayed, err = m.Slow(name, 0)
		}
	}
	p.end = let
	if err == nil {
		l.awaitBack(ctx, &p, let, next)
	}
	if ctx.Err() != nil {
		return p, nil
	}
	return p, err
}

// await finds a fault's target. A role that nobody has at the moment, as after the fault before, is
// waited for: the fault comes later then, and a measurement of many repeats does not end for it.
func (l *load) await(ctx context.Context, target string, turn int, next time.Duration) (node int, err error) {
	for end := min(l.now()+roleWithin, next); ; measure.Pause(ctx, roleEvery) {
		if node, err = l.find(target, turn); err == nil || l.now() >= end || ctx.Err() != nil {
			return node, err
		}
	}
}

const (
	roleEvery  = 20 * time.Millisecond // between two looks at who has a role
	roleWithin = 5 * time.Second       // somebody must have it

	backEvery  = 10 * time.Millisecond // between two looks at a node that is to come back
	backWithin = 2 * time.Second       // of one look
)

// awaitBack notes when a node is ready and when a write through it is acknowledged, over
// connections of its own.
func (l *load) awaitBack(ctx context.Context, p *played, let, next time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, next-l.now())
	defer cancel()
	node := l.nodes[p.node]
	// The object behind the probes is nobody's but this one's.
	k, number := l.space.Ledger.Len(), l.clock.Now().Nanoseconds()
	var buf bytes.Buffer
	try := func(r client.Request) bool {
		ctx, cancel := context.WithTimeout(ctx, backWithin)
		defer cancel()
		conn, err := node.Dial(ctx, l.tls)
		if err != nil {
			return false
		}
		defer conn.Close()
		_, err = conn.Do(ctx, r, &buf)
		return err == nil
	}
	for ctx.Err() == nil {
		if p.back.ready == 0 && try(client.Request{Method: http.MethodGet, Path: "/readyz", Header: client.Plain}) {
			p.back.ready = l.now() - let
		}
		if p.back.ready != 0 {
			if number++; try(l.space.Write(k, number)) {
				p.back.wrote = l.now() - let
				return
			}
		}
		measure.Pause(ctx, backEvery)
	}
}
