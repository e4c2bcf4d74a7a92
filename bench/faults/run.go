package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/probe"
	"github.com/quorate/quorate/bench/report"
)

const (
	prepareWithin = 2 * time.Minute
	readyWithin   = time.Minute
	cleanWithin   = 30 * time.Second
)

// runner is one measurement, of several repeats.
type runner struct {
	opt      Options
	target   Target
	progress report.Progress
}

// Run plays the faults as often as it is asked to and measures meanwhile. It makes a
// namespace for each repeat and deletes it; all nodes run at the end, also when ctx ends
// or something fails. Errors: of the options, of machines that do not do what they are told,
// of a cluster that does not come back, and ctx's. Broken promises are no error: they are in
// the report.
func Run(ctx context.Context, target Target, opt Options, progress report.Progress) (*Report, error) {
	if err := errors.Join(opt.Validate(), opt.checkLoad(len(target.Nodes))); err != nil {
		return nil, err
	}
	r := &runner{opt, target, progress}
	rep := r.newReport()
	for turn := range opt.Repeat {
		one, err := r.repeat(ctx, turn)
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
		rep.add(one)
	}
	rep.finish()
	return rep, nil
}

// round is one repeat and what it has seen.
type round struct {
	*load
	turn   int
	played []played
	lost   []string // acknowledged writes that are not there at the end
}

// repeat plays the faults once.
func (r *runner) repeat(ctx context.Context, turn int) (_ *round, err error) {
	if err := r.ready(ctx); err != nil {
		return nil, err
	}
	roles, err := r.roles(ctx)
	if err != nil {
		return nil, err
	}
	clock := measure.NewStopwatch()
	space := &probe.Space{Namespace: fmt.Sprintf("bench-faults-%08x", rand.Uint32()), Ledger: probe.NewLedger(r.opt.probes()), Size: r.opt.Size, Now: clock.Now}
	l := newLoad(&r.opt, &r.target, space, clock, roles)
	defer l.close()
	conns, err := l.connect(ctx)
	if err != nil {
		return nil, err
	}
	r.progress.Say("repeat %d of %d: making %d objects", turn+1, r.opt.Repeat, space.Ledger.Len())
	defer func() {
		err = errors.Join(err, r.clean(ctx, space))
	}()
	making, cancel := context.WithTimeout(ctx, prepareWithin)
	defer cancel()
	if err := space.Make(making, conns, space.Ledger.Len()+1); err != nil { // the last one is awaitBack's
		return nil, err
	}
	// Whatever happens, the nodes run afterwards.
	defer func() {
		err = errors.Join(err, r.target.Machines.Mend(context.WithoutCancel(ctx)))
	}()
	one := &round{load: l, turn: turn}
	if err := r.measure(ctx, one); err != nil {
		return nil, err
	}
	if err := errors.Join(r.target.Machines.Mend(context.WithoutCancel(ctx)), r.ready(ctx)); err != nil {
		return nil, fmt.Errorf("after the faults: %w", err)
	}
	one.lost, err = r.lost(ctx, space)
	return one, err
}

// measure lets the load and the faults run beside each other.
func (r *runner) measure(ctx context.Context, one *round) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	one.begin = one.clock.Now() + warmup
	var wg sync.WaitGroup
	var failed error
	wg.Go(func() {
		if one.played, failed = one.play(ctx, r.target.Machines, one.turn, r.progress.Say); failed != nil {
			cancel()
		}
	})
	stop := r.progress.Tell(func(time.Duration) string {
		return fmt.Sprintf("%d/%d  %5.1f of %.0f s  %s", one.turn+1, r.opt.Repeat, max(0, one.now()).Seconds(), one.length.Seconds(), one.lastSecond())
	})
	one.run(ctx)
	stop()
	wg.Wait()
	return failed
}

// lastSecond is what came of the requests of the last second.
func (l *load) lastSecond() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var counts [services]int
	errs := 0
	for i := len(l.samples) - 1; i >= 0 && l.samples[i].end > l.now()-2*time.Second; i-- {
		switch s := &l.samples[i]; {
		case s.end < l.now()-time.Second:
		case s.outcome == good:
			counts[s.service]++
		default:
			errs++
		}
	}
	var b strings.Builder
	for s := range services {
		fmt.Fprintf(&b, "%s %d/s  ", s.title(), counts[s])
	}
	fmt.Fprintf(&b, "errors %d/s", errs)
	return b.String()
}

// connect opens a connection to each node.
func (l *load) connect(ctx context.Context) (conns []*client.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for _, links := range l.links {
		for _, k := range links {
			conn, err := k.Conn(ctx)
			if err != nil {
				return nil, err
			}
			if k == links[writes] {
				conns = append(conns, conn)
			}
		}
	}
	return conns, nil
}

// ready waits until every node is ready.
func (r *runner) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	admin := r.target.Admin(readyWithin)
	defer admin.Close()
	for i, n := range r.target.Nodes {
		for {
			_, err := admin.Do(ctx, i, http.MethodGet, "/readyz", nil)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("%s is not ready after %s: %w", n.Name, readyWithin, err)
			}
			measure.Pause(ctx, 20*time.Millisecond)
		}
	}
	return nil
}

// roles waits until somebody leads.
func (r *runner) roles(ctx context.Context) (roles []client.Role, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		roles, err = r.target.Roles(ctx)
		if !errors.Is(err, client.ErrNoLeader) || ctx.Err() != nil {
			return roles, err
		}
		measure.Pause(ctx, 20*time.Millisecond)
	}
}

// maxLost bounds how many lost writes are told.
const maxLost = 10

// lost reads all probes, and says which lack an acknowledged write.
func (r *runner) lost(ctx context.Context, space *probe.Space) (out []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	admin := r.target.Admin(readyWithin)
	defer admin.Close()
	var snap probe.Snapshot
	space.Ledger.Now(&snap, space.Now)
	raw, err := admin.Do(ctx, 0, http.MethodGet, space.Collection(), nil)
	if err != nil {
		return nil, fmt.Errorf("read what was written: %w", err)
	}
	found := 0
	err = probe.Marks(raw, func(k int, number int64) {
		if k >= space.Ledger.Len() {
			return
		}
		found++
		if b := space.Ledger.Behind(&snap, k, number); b.Versions > 0 && len(out) < maxLost {
			out = append(out, fmt.Sprintf("%s has write %d: it lacks %d that were acknowledged", probe.Name(k), number, b.Versions))
		}
	})
	if err == nil && found != space.Ledger.Len() {
		out = append(out, fmt.Sprintf("%d objects of %d are there", found, space.Ledger.Len()))
	}
	return out, err
}

// clean deletes what a repeat made.
func (r *runner) clean(ctx context.Context, space *probe.Space) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanWithin)
	defer cancel()
	admin := r.target.Admin(cleanWithin)
	defer admin.Close()
	if err := space.Clean(ctx, admin); err != nil {
		r.progress.Say("%v", err)
	}
	return nil
}
