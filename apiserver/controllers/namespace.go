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

// Bounds of the time until a namespace that could not be emptied is tried again:
// its objects wait for finalizers or grace periods. It is also tried again when it has
// fewer objects than before, which is looked at every namespaceDelay at most.
const (
	namespaceFirst   = 100 * time.Millisecond
	namespaceMost    = 10 * time.Second
	namespaceDelay   = 20 * time.Millisecond
	namespaceWorkers = 4
)

// errHeld is returned for a namespace whose objects are held.
var errHeld = errors.New("its content is held by finalizers or grace periods")

// emptier deletes the content of terminating namespaces and then the namespaces.
type emptier struct {
	base
	published  func() (<-chan struct{}, func())
	aggregator *aggregator.Aggregator
	queue      queue
	remote     *elsewhere
	deletes    deleter

	mu     sync.Mutex
	held   map[string]int    // objects left in namespaces that could not go
	behind map[place]string  // where the next attempt begins
	known  map[string]string // uids of the namespaces that were queued
}

func (e *emptier) run(ctx context.Context) error {
	changed, stop, err := e.objects.WatchTable(objects.NamespacesTable)
	if err != nil {
		return err
	}
	defer stop()
	published, end := e.published()
	defer end()
	ctx, cancel := context.WithCancel(ctx)
	e.held, e.behind, e.known, e.deletes.user = map[string]int{}, map[place]string{}, map[string]string{}, asNamespaceController
	e.queue = queue{work: e.work, failed: e.failed, workers: namespaceWorkers, first: namespaceFirst, most: namespaceMost}
	e.queue.open(ctx)
	e.remote = newElsewhere(ctx, e.base, e.aggregator, e.queue.add)
	defer e.remote.close()
	defer e.queue.close()
	defer cancel()
	for {
		terminating, err := e.terminating()
		if err != nil {
			return fmt.Errorf("list terminating namespaces: %w", err)
		}
		for _, name := range e.follow(terminating) {
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
		if !e.retryHeld() {
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(namespaceDelay):
		}
	}
}

// retryHeld has the held namespaces tried again that have lost objects. It reports whether
// there are any held ones.
func (e *emptier) retryHeld() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, held := range e.held {
		if n, err := e.countContent(name); err != nil || n < held {
			delete(e.held, name)
			e.queue.add(name)
		}
	}
	return len(e.held) > 0
}

// follow returns the namespaces that were not being deleted before, and drops what is known of those that
// are not any more. Others change by what this controller says of them, and to try them again then would end their pauses.
func (e *emptier) follow(terminating map[string]string) (begun []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, uid := range terminating {
		if e.known[name] != uid {
			begun = append(begun, name)
		}
	}
	slices.Sort(begun)
	e.known = terminating
	is := func(name string) bool { return terminating[name] != "" }
	maps.DeleteFunc(e.held, func(name string, _ int) bool { return !is(name) })
	maps.DeleteFunc(e.behind, func(at place, _ string) bool { return !is(at.namespace) })
	e.remote.forget(is)
	return begun
}

func (e *emptier) work(ctx context.Context, name string, slow bool) error {
	held, err := e.emptyNamespace(ctx, name, slow)
	if err == nil && held > 0 {
		err = errHeld
		e.mu.Lock()
		e.held[name] = held
		e.mu.Unlock()
		if n, again := e.countContent(name); again != nil || n < held {
			// It went between the count and the note: nothing else will notice.
			e.queue.add(name)
		}
	}
	return err
}

func (e *emptier) failed(name string, err error) {
	if !errors.Is(err, errHeld) {
		e.reports.failed("cannot empty a namespace that is being deleted, retrying", "namespace", name, "err", err)
	}
}

// terminating returns the namespaces that are being deleted, with their uids, as this
// node sees it.
func (e *emptier) terminating() (map[string]string, error) {
	uids := map[string]string{}
	versions, err := e.objects.Range(objects.NamespacesTable, "")
	for _, v := range versions {
		if v.Flags&proto.FlagTerminating != 0 {
			uids[v.Key] = v.UID
		}
	}
	return uids, err
}
