package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds of the collector. The log entries of workers share fsyncs.
const (
	garbageWorkers = 32
	garbageFirst   = 5 * time.Millisecond
	garbageMost    = 30 * time.Second
	// garbageDelay is between two looks at what has changed.
	garbageDelay = 10 * time.Millisecond
)

// collector deletes objects whose owners are gone, and does what the finalizers foregroundDeletion and orphan ask for. It follows
// the history of the store; what it knows is read again from the state by the next run.
type collector struct {
	base
	published  func() (<-chan struct{}, func())
	aggregator *aggregator.Aggregator // nil: there are no aggregated API servers
	queue      queue
	deletes    deleter
	outside    *outside // nil with aggregator

	mu    sync.Mutex
	graph *graph
	// elsewhere is how many owners elsewhere were looked for since a time.
	elsewhere      int
	elsewhereSince time.Time
}

func (c *collector) run(ctx context.Context) (err error) {
	wake, stop := c.published()
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	c.graph, c.deletes.user = newGraph(), asGarbageCollector
	c.queue = queue{work: c.work, failed: c.failed, workers: garbageWorkers, first: garbageFirst, most: garbageMost}
	c.queue.open(ctx)
	defer c.queue.close()
	if c.outside, err = newOutside(ctx, c); err != nil {
		cancel()
		return err
	}
	c.outside.start()
	defer c.outside.close()
	defer cancel()
	f := &follower{objects: c.objects, read: map[string]bool{}}
	for {
		if err := c.follow(f); err != nil {
			return fmt.Errorf("collect garbage: %w", err)
		}
		// Each look goes through all tables: under load it would be as many looks as batches.
		if !pause(ctx, garbageDelay) {
			return context.Cause(ctx)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-wake:
		}
	}
}

// follow takes in what has happened. Owners are looked up after everything up to
// one revision was taken in, in a state that is at least as new.
func (c *collector) follow(f *follower) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var linked []*node
	err := f.next(func(ch change) {
		if n := c.visit(ch); n != nil {
			linked = append(linked, n)
		}
	})
	if err != nil {
		return err
	}
	for _, n := range linked {
		for i := range n.edges {
			state, err := ownerStateHere(c.objects, n.key, n.edges[i].owner)
			if err != nil {
				return err
			}
			if state != ownerThere {
				// An owner that goes later was there.
				n.edges[i].strange = state == ownerAbsent || state == ownerImpossible
				c.queue.add(n.uid)
				break
			}
		}
	}
	return nil
}

// visit takes in one change. It returns the object if it has new owners.
func (c *collector) visit(ch change) (linked *node) {
	before := c.graph.nodes[ch.uid]
	if before != nil && ch.object != nil && before.key.Table != ch.object.Table {
		// An aggregated API server has used the uid before. What it says must not hide this object.
		c.graph.remove(before)
		before = nil
	}
	if ch.gone {
		c.graph.dependents(ch.uid, func(e *edge) { c.queue.add(e.dependent.uid) })
	}
	if ch.object == nil {
		if before != nil {
			owners := before.edges
			c.graph.remove(before)
			c.unblocked(owners, nil)
		}
		return nil
	}
	var was node
	var owners []edge
	if before != nil {
		was, owners = *before, before.edges
	}
	n, changed := c.graph.put(ch.object)
	if changed {
		c.unblocked(owners, n)
		linked = n
	}
	if n.deleting && (n.foreground || n.orphan) {
		c.queue.add(n.uid)
	}
	if n.waits() && !was.waits() {
		c.graph.dependents(n.uid, func(e *edge) { c.queue.add(e.dependent.uid) })
	}
	if changed || !was.waits() {
		// A circle is closed by the last of its objects.
		n.circle = c.graph.inCircle(n)
	}
	return linked
}

// unblocked has the owners looked at that wait for an object, when its references
// to them have changed. now is the object as it is, or nil.
func (c *collector) unblocked(owners []edge, now *node) {
	for i := range owners {
		o := owners[i].owner
		if !o.Blocks {
			continue
		}
		n := c.graph.nodes[o.UID]
		if n == nil || !n.waits() {
			continue
		}
		if now == nil || !slices.ContainsFunc(now.edges, func(e edge) bool { return e.owner.UID == o.UID && e.owner.Blocks }) {
			c.queue.add(n.uid)
		}
	}
}

func (c *collector) failed(uid string, err error) {
	if apierrors.IsConflict(err) {
		return // it is looked at again
	}
	const failed = "garbage collection failed, retrying"
	if errors.Is(err, errUnknownOwner) {
		c.reports.log.Debug(failed, "uid", uid, "err", err) // its kind may be served some day
		return
	}
	c.reports.failed(failed, "uid", uid, "err", err)
}

// known is what the graph says of an object at one time.
type known struct {
	node
	// dependents counts the references to the object, blocking those that its
	// deletion in the foreground waits for.
	dependents, blocking int
	// strange is the uid of an owner that was not where it is looked for when the reference came;
	// "" if there is none.
	strange string
}

func (c *collector) look(uid string) (known, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.graph.nodes[uid]
	if n == nil {
		return known{}, false
	}
	k := known{node: *n}
	for i := range n.edges {
		if n.edges[i].strange {
			k.strange = n.edges[i].owner.UID
		}
	}
	c.graph.dependents(uid, func(e *edge) {
		k.dependents++
		if e.owner.Blocks {
			k.blocking++
		}
	})
	return k, true
}

// mayWait says whose answers the work on an object may wait for. With neither, it keeps nothing else waiting.
type mayWait struct {
	slow    bool // a webhook may take its time
	outside bool // an aggregated API server may take its time
}

// needsOutside is the end of work that needs an answer of an aggregated API server.
type needsOutside struct{ group string }

func (e needsOutside) Error() string { return "it needs an answer of the server of " + e.group }

func (c *collector) work(ctx context.Context, uid string, slow bool) error {
	err := c.settle(ctx, uid, mayWait{slow: slow})
	var needs needsOutside
	if errors.As(err, &needs) {
		c.outside.add(needs.group, uid)
		return nil
	}
	return err
}

// settle decides on one object and does it. Its decisions hold for the revision that
// they were made on; a conflict makes it look again.
func (c *collector) settle(ctx context.Context, uid string, may mayWait) error {
	k, ok := c.look(uid)
	if !ok {
		return nil
	}
	o, err := c.object(ctx, k.key, may)
	if err != nil {
		return err
	}
	if o == nil || o.UID != uid {
		return nil // its end is on its way to the graph
	}
	switch {
	case o.awaits():
		err = c.finish(ctx, o, k, may)
	case o.Deleting, len(o.Owners) == 0:
	default:
		err = c.judge(ctx, o, k, may)
	}
	if err != nil && apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// object returns an object as it is now, or nil.
func (c *collector) object(ctx context.Context, key objectKey, may mayWait) (*object, error) {
	group, ok := key.isOutside()
	switch {
	case !ok:
		return objectHere(c.objects, key)
	case !may.outside:
		return nil, needsOutside{group}
	}
	// Its owners may be younger than what this node has applied.
	if err := c.objects.Confirm(ctx); err != nil {
		return nil, err
	}
	return c.outside.object(ctx, key)
}

// ownerState says what an object's reference leads to.
func (c *collector) ownerState(ctx context.Context, dependent objectKey, owner ownerReference, may mayWait) (ownerState, error) {
	state, err := ownerStateHere(c.objects, dependent, owner)
	if err != nil || state != ownerUnknown || c.outside == nil {
		return state, err
	}
	if res := c.outside.ofKind(owner); res != nil && !may.outside {
		return 0, needsOutside{res.Group}
	}
	return c.outside.ownerState(ctx, dependent, owner)
}

// finish does what an object waits for that is being deleted. The graph must know
// that it waits: then it also knows the dependents that were there before.
func (c *collector) finish(ctx context.Context, o *object, k known, may mayWait) error {
	switch {
	case o.Orphan && k.deleting && k.orphan:
		return c.orphan(ctx, o, may)
	case o.Foreground && k.waits() && k.blocking == 0:
		return c.dropFinalizer(ctx, o.objectKey, o.UID, metav1.FinalizerDeleteDependents)
	case o.Foreground && k.waits() && k.circle:
		// In a circle everybody waits for the others. Its owners do so no more.
		return c.unblockOwners(ctx, o.objectKey, o.UID)
	}
	return nil
}

// errUnknownOwner is returned for an object with an owner of a kind that is
// not served. It may be served later.
var errUnknownOwner = errors.New("the kind of an owner is unknown")

// judge deletes an object that no owner keeps alive, or removes the references to
// those that do not.
func (c *collector) judge(ctx context.Context, o *object, k known, may mayWait) error {
	var lost []string // uids of owners that are absent or waiting
	solid, waiting := 0, 0
	for _, owner := range o.Owners {
		state, err := c.ownerState(ctx, o.objectKey, owner, may)
		if err != nil {
			return err
		}
		if owner.UID == k.strange && (state == ownerAbsent || state == ownerImpossible) {
			c.reportElsewhere(ctx, o, owner)
		}
		switch state {
		case ownerThere:
			solid++
		case ownerAbsent:
			lost = append(lost, owner.UID)
		case ownerWaiting:
			waiting++
			lost = append(lost, owner.UID)
		case ownerUnknown:
			return fmt.Errorf("%s %s: owner %s of %s: %w", o.Table, o.Key, owner.Kind, owner.APIVersion, errUnknownOwner)
		case ownerImpossible:
			return nil // whether it is there cannot be told
		}
	}
	switch {
	case solid > 0 && len(lost) > 0:
		// Also of those that wait: they would wait for an object that stays.
		return c.dropOwners(ctx, o.objectKey, o.UID, lost)
	case solid > 0:
		return nil
	case waiting > 0 && k.dependents > 0:
		return c.deleteObject(ctx, o, metav1.DeletePropagationForeground, may.slow)
	}
	policy := metav1.DeletePropagationBackground
	switch {
	case o.Orphan:
		policy = metav1.DeletePropagationOrphan
	case o.Foreground:
		policy = metav1.DeletePropagationForeground
	}
	return c.deleteObject(ctx, o, policy, may.slow)
}

// orphan makes the dependents of an object forget it, side by side, and lets it go.
func (c *collector) orphan(ctx context.Context, o *object, may mayWait) error {
	type target struct {
		key objectKey
		uid string
	}
	var targets []target
	c.mu.Lock()
	c.graph.dependents(o.UID, func(e *edge) { targets = append(targets, target{e.dependent.key, e.dependent.uid}) })
	c.mu.Unlock()
	for _, t := range targets {
		if group, ok := t.key.isOutside(); ok && !may.outside {
			return needsOutside{group}
		}
	}
	workers, first := errgroup.WithContext(ctx)
	workers.SetLimit(garbageWorkers)
	for _, t := range targets {
		workers.Go(func() error {
			if first.Err() != nil {
				return nil // another one has failed
			}
			if err := c.dropOwners(ctx, t.key, t.uid, []string{o.UID}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			return nil
		})
	}
	if err := workers.Wait(); err != nil {
		return err
	}
	return c.dropFinalizer(ctx, o.objectKey, o.UID, metav1.FinalizerOrphanDependents)
}
