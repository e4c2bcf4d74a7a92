package controllers

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/internal/loglimit"
)

// Leadership is what a node knows of being the leader. *raftstore.Store satisfies it.
type Leadership interface {
	// IsLeader reports whether this node leads.
	IsLeader() bool
	// LeaderChanged returns a channel that is closed when that, or the leader, next changes.
	LeaderChanged() <-chan struct{}
}

// Observer is told what becomes of the controllers. *metrics.Metrics satisfies it.
type Observer interface {
	// ControllerRuns says whether a controller runs at this node.
	ControllerRuns(name string, runs bool)
	// ControllerFailed is told of each attempt that failed and is made again.
	ControllerFailed(name string)
}

type noObserver struct{}

func (noObserver) ControllerRuns(string, bool) {}
func (noObserver) ControllerFailed(string)     {}

// Run runs the controllers while this node leads, until ctx ends. Between two terms none of
// them runs.
func (m *Manager) Run(ctx context.Context, node Leadership) error {
	enabled := m.enabled()
	for _, c := range enabled {
		m.cfg.Observer.ControllerRuns(string(c.name), false)
	}
	for ctx.Err() == nil {
		changed := node.LeaderChanged()
		if !node.IsLeader() {
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		term, resign := context.WithCancel(ctx)
		var wg sync.WaitGroup
		for _, c := range enabled {
			wg.Go(func() { m.control(term, &c) })
		}
		for node.IsLeader() && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-changed:
				changed = node.LeaderChanged()
			}
		}
		resign()
		wg.Wait()
	}
	return nil
}

// enabled are the controllers that run when this node leads.
func (m *Manager) enabled() []controller {
	var out []controller
	for _, c := range m.table {
		if slices.Contains(m.cfg.Controllers, c.name) && c.loop(base{objects: m.objects}, &m.cfg) != nil {
			out = append(out, c)
		}
	}
	return out
}

// control runs a controller until term ends. What ends it earlier, such as a history that
// moved on before it was read, does not concern the next run.
func (m *Manager) control(term context.Context, c *controller) {
	m.cfg.Observer.ControllerRuns(string(c.name), true)
	defer m.cfg.Observer.ControllerRuns(string(c.name), false)
	b := base{m.objects, objects.NewClient(m.objects), newReports(m.cfg.Log.With("controller", string(c.name)), string(c.name), m.cfg.Observer)}
	failed, delay := c.failed, c.pause
	if failed == "" {
		failed = "controller failed, restarting"
	}
	if delay == 0 {
		delay = retryDelay
	}
	for {
		err := c.loop(b, &m.cfg)(term)
		if term.Err() != nil {
			return
		}
		if err == nil {
			<-term.Done() // it has done what it had to do in this term
			return
		}
		b.reports.failed(failed, "err", err)
		if !pause(term, delay) {
			return
		}
	}
}

// reports are where a controller says what failed.
type reports struct {
	log      *slog.Logger // with its name
	limit    *loglimit.Limiter
	whole    *loglimit.Limiter // of tried
	name     string
	observer Observer
}

func newReports(log *slog.Logger, name string, observer Observer) *reports {
	return &reports{log, loglimit.Growing(time.Second, time.Minute), loglimit.New(time.Minute), name, observer}
}

// tried says how an attempt at all that a controller has to do has ended: a failure at once, and once a minute while it lasts, and its
// end. failed is what it is called.
func (r *reports) tried(failed string, err error, about ...any) {
	if err == nil {
		r.whole.Over(r.log, failed, "what failed before has succeeded", "before", failed)
		return
	}
	r.observer.ControllerFailed(r.name)
	r.whole.WarnAbout(r.log, failed, failed, append([]any{"err", err}, about...)...)
}

// failed says that an attempt failed and is made again. A message comes once a second at most, and more and more seldom: who may write a
// policy can have as many objects fail as there are, and all of them fail while the storage takes no writes.
func (r *reports) failed(msg string, about ...any) {
	r.observer.ControllerFailed(r.name)
	r.limit.Warn(r.log, msg, about...)
}
