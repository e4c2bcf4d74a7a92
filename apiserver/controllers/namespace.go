package controllers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Namespaces is what the namespace controller needs. *apiserver.Server satisfies it.
type Namespaces interface {
	// TerminatingNamespaces lists what there is to do.
	TerminatingNamespaces() ([]string, error)
	// WatchNamespaces tells when to look again; the function ends it.
	WatchNamespaces() (<-chan struct{}, func(), error)
	// Published tells that anything was applied; the function ends it.
	Published() (<-chan struct{}, func())
	// EmptyNamespace deletes what is in a terminating namespace, says in its status
	// what is left, and lets it go if that is nothing. It returns how many objects are
	// still held.
	EmptyNamespace(ctx context.Context, namespace string) (held int, err error)
	// CountContent returns how many objects are in a namespace.
	CountContent(namespace string) (int, error)
}

// Bounds of the time until a namespace that could not be emptied is tried again:
// its objects wait for finalizers or grace periods. It is also looked at when it has
// fewer objects than before, at most every so often.
const (
	namespaceFirst   = 100 * time.Millisecond
	namespaceMost    = 10 * time.Second
	namespaceGlance  = 20 * time.Millisecond
	namespaceWorkers = 4
)

// errHeld is returned for a namespace whose objects are held.
var errHeld = errors.New("its content is held by finalizers or grace periods")

// emptier is one run of the namespace controller.
type emptier struct {
	api   Namespaces
	log   *slog.Logger
	queue queue

	mu   sync.Mutex
	held map[string]int // objects left in namespaces that could not go
}

// EmptyNamespaces deletes the content of terminating namespaces and then the
// namespaces, until ctx ends. Failures are logged and tried again.
func EmptyNamespaces(ctx context.Context, api Namespaces, log *slog.Logger) error {
	changed, stop, err := api.WatchNamespaces()
	if err != nil {
		return err
	}
	defer stop()
	published, end := api.Published()
	defer end()
	ctx, cancel := context.WithCancel(ctx)
	e := &emptier{api: api, log: log, held: map[string]int{}}
	e.queue = queue{work: e.work, failed: e.failed, workers: namespaceWorkers, first: namespaceFirst, most: namespaceMost}
	e.queue.open(ctx)
	defer e.queue.close()
	defer cancel()
	for {
		names, err := api.TerminatingNamespaces()
		if err != nil {
			return fmt.Errorf("list terminating namespaces: %w", err)
		}
		e.forget(names)
		for _, name := range names {
			e.queue.add(name)
		}
		if err := e.await(ctx, changed, published); err != nil {
			return err
		}
	}
}

// await returns when a namespace has changed. Meanwhile it looks after those that
// are held, if there are any.
func (e *emptier) await(ctx context.Context, changed, published <-chan struct{}) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
			return nil
		case <-published:
		}
		if !e.glance() {
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(namespaceGlance):
		}
	}
}

// glance has the held namespaces tried that have lost objects. It reports whether
// there are any held ones.
func (e *emptier) glance() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, held := range e.held {
		if n, err := e.api.CountContent(name); err != nil || n < held {
			delete(e.held, name)
			e.queue.add(name)
		}
	}
	return len(e.held) > 0
}

// forget drops what is known of namespaces that are not among names.
func (e *emptier) forget(names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	there := map[string]bool{}
	for _, name := range names {
		there[name] = true
	}
	for name := range e.held {
		if !there[name] {
			delete(e.held, name)
		}
	}
}

func (e *emptier) work(ctx context.Context, name string) error {
	held, err := e.api.EmptyNamespace(ctx, name)
	if err == nil && held > 0 {
		err = errHeld
		e.mu.Lock()
		e.held[name] = held
		e.mu.Unlock()
		if n, again := e.api.CountContent(name); again != nil || n < held {
			// It went between the look and the note: nobody else will notice.
			e.queue.add(name)
		}
	}
	return err
}

func (e *emptier) failed(name string, err error) {
	if !errors.Is(err, errHeld) {
		e.log.Warn("cannot empty a namespace that is being deleted, retrying", "namespace", name, "err", err)
	}
}
