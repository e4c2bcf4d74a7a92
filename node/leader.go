package node

import (
	"context"
	"sync"
	"time"

	"github.com/quorate/quorate/apiserver/builtin/service"
	"github.com/quorate/quorate/apiserver/controllers"
	"github.com/quorate/quorate/apiserver/rbac"
)

// leaderTasks runs, while this node leads, what exactly one node must do.
func (n *Node) leaderTasks(ctx context.Context) error {
	for ctx.Err() == nil {
		changed := n.store.LeaderChanged()
		if !n.store.IsLeader() {
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		term, resign := context.WithCancel(ctx)
		var wg sync.WaitGroup
		for _, t := range n.tasks() {
			wg.Go(func() { n.perform(term, t) })
		}
		for n.store.IsLeader() && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-changed:
				changed = n.store.LeaderChanged()
			}
		}
		resign()
		wg.Wait()
	}
	return nil
}

// task is one of the things that the leader does.
type task struct {
	run    func(context.Context) error
	failed string        // is logged when it has failed, with about
	about  []any         // attributes
	again  time.Duration // after which it runs again, also when it has not failed; 0: it does not
	once   bool          // it is done when it has not failed
}

// tasks are what the leader does, as the settings ask for.
func (n *Node) tasks() []task {
	tasks := []task{
		// What every cluster has: its first namespaces, roles and bindings.
		{run: n.api.Loops().EnsureNamespaces, failed: "creating the system namespaces failed, retrying", again: ensureAgain, once: true},
		{run: n.ensureRoles, failed: "creating the bootstrap roles failed, retrying", again: ensureAgain, once: true},
		// The rules of roles that collect those of others.
		{run: n.aggregateRoles, failed: "aggregating roles failed, retrying", again: controllerAgain},
		// The range of service addresses, and what no Service holds of it.
		{run: n.tendServices, failed: "service repair stopped"},
		{run: n.settleDefinitions, failed: "definition controller failed, restarting", again: controllerAgain},
	}
	if n.fairness != nil {
		tasks = append(tasks, task{run: n.api.KeepFlowControl, failed: "flow control bootstrap failed, restarting", again: controllerAgain})
	}
	for name, run := range n.controllers() {
		log := n.log.With("controller", string(name))
		tasks = append(tasks, task{
			run:    func(ctx context.Context) error { return run(ctx, log) },
			failed: "controller failed, restarting", about: []any{"controller", string(name)}, again: controllerAgain,
		})
	}
	return tasks
}

// perform does a task until ctx ends. What ends it, such as a history that moved on before it was
// read, does not concern the next run.
func (n *Node) perform(ctx context.Context, t task) {
	for ctx.Err() == nil {
		err := t.run(ctx)
		if err != nil && ctx.Err() == nil {
			n.log.Warn(t.failed, append(t.about, "err", err)...)
		}
		if t.again == 0 || t.once && err == nil {
			return
		}
		pause(ctx, t.again)
	}
}

// ensureRoles makes the roles and bindings that every cluster has.
func (n *Node) ensureRoles(ctx context.Context) error {
	policy, err := rbac.Bootstrap()
	if err != nil { // no other try would read them
		n.log.Error("the first roles cannot be read", "err", err)
		return nil
	}
	return rbac.Ensure(ctx, n.api.Objects(), policy, n.log)
}

func (n *Node) aggregateRoles(ctx context.Context) error {
	objects := n.api.Objects()
	changed, stop, err := objects.WatchTable(rbac.ClusterRoles)
	if err != nil {
		return err
	}
	defer stop()
	return rbac.Aggregate(ctx, n.store, changed, objects, n.log)
}

func (n *Node) tendServices(ctx context.Context) error {
	return controllers.TendServices(ctx, n.api.Loops(), n.log)
}

func (n *Node) settleDefinitions(ctx context.Context) error {
	return controllers.SettleDefinitions(ctx, n.api.Loops(), n.log)
}

// controllers are those that the settings ask for.
func (n *Node) controllers() map[controllers.Name]controllers.Controller {
	names, _ := controllers.Select(n.cfg.Controllers) // checked at the start
	out := controllers.Make(n.api.Loops(), n.api.Objects(), controllers.Servers{
		List: n.manager.APIAddresses, Address: service.FirstAddress(n.serviceBlocks),
	}, names)
	if !n.cfg.GarbageCollector {
		delete(out, controllers.GarbageController)
	}
	return out
}

// Pauses between attempts of the leader's tasks: the cluster is not ready before
// the namespaces are there, while a controller has time.
const (
	ensureAgain     = 100 * time.Millisecond
	controllerAgain = time.Second
)

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
