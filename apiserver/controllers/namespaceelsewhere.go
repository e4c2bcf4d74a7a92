package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/proto"
)

const (
	// elsewhereWorkers are the namespaces that one aggregated API server is asked about at once.
	elsewhereWorkers = 4
	// elsewhereFirst is the pause after which one is asked again that has something left.
	elsewhereFirst = 200 * time.Millisecond
	// elsewhereLook is how often it is looked whether servers have said what they serve, for namespaces that wait for that.
	elsewhereLook = time.Second
	// elsewhereFresh is how long it is believed that a namespace is empty there.
	elsewhereFresh = 5 * time.Second
)

// errOver ends the work on a namespace that is not there any more, or not deleted.
var errOver = errors.New("the namespace is not being deleted")

// elsewhere empties namespaces at aggregated API servers. Each Service has a queue of its own, so that one that
// hangs keeps no other waiting, and nothing here. Safe for concurrent use.
type elsewhere struct {
	base
	aggregator *aggregator.Aggregator // nil: there are no aggregated API servers
	// changed is called with a namespace when there is something new to know of it.
	changed func(namespace string)
	ctx     context.Context

	mu     sync.Mutex
	queues map[string]*queue            // by Service
	of     map[string]map[string]*asked // by namespace and Service
	// unknown are the namespaces that wait for servers to say what they serve, missing which ones these are.
	unknown map[string]bool
	missing string
	timer   *time.Timer // nil while nothing waits
}

// asked is what is known of a namespace at a Service.
type asked struct {
	uid   string
	about string           // what was asked about: aggregator.Server.About
	left  *aggregator.Left // nil: nothing is known yet
	at    time.Time
	told  string // the failure that was logged
}

func newElsewhere(ctx context.Context, b base, a *aggregator.Aggregator, changed func(string)) *elsewhere {
	return &elsewhere{base: b, aggregator: a, changed: changed, ctx: ctx, queues: map[string]*queue{}, of: map[string]map[string]*asked{}, unknown: map[string]bool{}}
}

// close waits for the workers. The context must have ended, and nobody looks any more.
func (e *elsewhere) close() {
	e.mu.Lock()
	if e.timer != nil {
		e.timer.Stop() // a last one that runs finds the context ended
	}
	e.mu.Unlock()
	for _, q := range e.queues {
		q.close()
	}
}

// forget drops what is known of namespaces that are not there. What still runs for them ends by itself.
func (e *elsewhere) forget(there func(name string) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name := range e.of {
		if !there(name) {
			delete(e.of, name)
		}
	}
	for name := range e.unknown {
		if !there(name) {
			delete(e.unknown, name)
		}
	}
}

// look adds to left what aggregated API servers have in a namespace, and has them asked where that is
// not known. waits: the namespace cannot go; changed is called when it is worth looking again.
func (e *elsewhere) look(namespace, uid string, left *content) (waits bool) {
	if e.aggregator == nil {
		return false
	}
	is := e.aggregator.Namespaced()
	left.unknown = is.Unknown
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range is.Servers {
		waits = e.lookLocked(s, namespace, uid, left) || waits
	}
	if len(is.Unknown) == 0 && is.Asked {
		return waits
	}
	if len(e.unknown) == 0 {
		e.missing = missing(is)
	}
	e.unknown[namespace] = true
	if e.timer == nil {
		e.timer = time.AfterFunc(elsewhereLook, e.lookAgain)
	}
	return true
}

// missing names what is not known.
func missing(is *aggregator.Namespaced) string { return fmt.Sprint(is.Unknown, is.Asked) }

// lookAgain has the namespaces looked at that wait for what is not known, when something else is known.
func (e *elsewhere) lookAgain() {
	now := missing(e.aggregator.Namespaced())
	e.mu.Lock()
	e.timer = nil
	var names []string
	switch {
	case e.ctx.Err() != nil || len(e.unknown) == 0:
	case now == e.missing:
		e.timer = time.AfterFunc(elsewhereLook, e.lookAgain)
	default:
		names = slices.Collect(maps.Keys(e.unknown))
		clear(e.unknown)
	}
	e.mu.Unlock()
	for _, name := range names {
		e.changed(name)
	}
}

func (e *elsewhere) lookLocked(s *aggregator.Server, namespace, uid string, left *content) (waits bool) {
	known := e.of[namespace]
	if known == nil {
		known = map[string]*asked{}
		e.of[namespace] = known
	}
	is := known[s.Service]
	switch {
	case is == nil || is.uid != uid:
		known[s.Service] = &asked{uid: uid, about: s.About}
		e.queueLocked(s.Service).add(namespace)
		return true
	case is.left == nil:
		return true
	case is.left.Nothing() && is.about == s.About && time.Since(is.at) < elsewhereFresh:
		return false
	case is.left.Nothing():
		is.left, is.about = nil, s.About
		e.queueLocked(s.Service).add(namespace)
		return true
	}
	for name, n := range is.left.Resources {
		left.resources[name] += n
	}
	for name, n := range is.left.Finalizers {
		left.finalizers[name] += n
	}
	left.errs = append(left.errs, is.left.Errs...)
	return true
}

func (e *elsewhere) queueLocked(service string) *queue {
	q := e.queues[service]
	if q == nil {
		q = &queue{
			work:    func(ctx context.Context, namespace string, _ bool) error { return e.work(ctx, service, namespace) },
			failed:  func(namespace string, err error) { e.failed(service, namespace, err) },
			workers: elsewhereWorkers, first: elsewhereFirst, most: namespaceMost,
		}
		q.open(e.ctx)
		e.queues[service] = q
	}
	return q
}

// work empties a namespace at a Service, and notes what is left.
func (e *elsewhere) work(ctx context.Context, service, namespace string) error {
	e.mu.Lock()
	is := e.of[namespace][service]
	e.mu.Unlock()
	if is == nil {
		return nil
	}
	left, about, err := &aggregator.Left{}, "", error(nil)
	if s := e.server(service); s != nil { // else what was there is nobody's any more
		about = s.About
		still := func(ctx context.Context) error { return e.isTerminating(ctx, namespace, is.uid) }
		if err := still(ctx); err == nil {
			left = e.aggregator.Empty(ctx, s, namespace, asNamespaceController, still)
		} else {
			left.Errs = []error{err}
		}
	}
	switch {
	case len(left.Errs) > 0 && errors.Is(left.Errs[0], errOver):
		left.Errs = nil // look drops it, or asks about another one of that name
	case len(left.Errs) > 0:
		err = left.Errs[0]
	case !left.Nothing():
		err = errHeld
	}
	e.mu.Lock()
	is.left, is.about, is.at = left, about, time.Now()
	if len(left.Errs) == 0 {
		is.told = ""
	}
	e.mu.Unlock()
	if ctx.Err() == nil {
		e.changed(namespace)
	}
	return err
}

// server is what is known of a Service now, nil if no APIService has it.
func (e *elsewhere) server(service string) *aggregator.Server {
	for _, s := range e.aggregator.Namespaced().Servers {
		if s.Service == service {
			return s
		}
	}
	return nil
}

func (e *elsewhere) failed(service, namespace string, err error) {
	e.mu.Lock()
	is := e.of[namespace][service]
	told := is == nil || errors.Is(err, errHeld) || is.told == err.Error()
	if !told {
		is.told = err.Error()
	}
	e.mu.Unlock()
	if !told {
		e.reports.failed("cannot delete what an aggregated API server has in a namespace, retrying", "namespace", namespace, "service", service, "err", err)
	}
}

// isTerminating returns errOver unless that very namespace is being deleted, as the cluster knows now.
func (e *elsewhere) isTerminating(ctx context.Context, namespace, uid string) error {
	if err := e.objects.Confirm(ctx); err != nil {
		return err
	}
	ns, err := e.objects.Current(objects.NamespacesTable, namespace)
	if err != nil {
		return err
	}
	if ns == nil || ns.UID != uid || ns.Flags&proto.FlagTerminating == 0 {
		return errOver
	}
	return nil
}
