package node

import (
	"context"
	"sync"
	"time"

	"github.com/quorate/quorate/apiserver/controllers"
	"github.com/quorate/quorate/apiserver/rbac"
	"github.com/quorate/quorate/apiserver/services"
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
		wg.Go(func() { n.ensureNamespaces(term) })
		wg.Go(func() { n.ensureRoles(term) })
		wg.Go(func() { n.aggregateRoles(term) })
		wg.Go(func() { n.tendServices(term) })
		if n.fairness != nil {
			wg.Go(func() { n.keepFlowControl(term) })
		}
		for name, run := range n.controllers() {
			wg.Go(func() { n.control(term, name, run) })
		}
		wg.Go(func() { n.settleDefinitions(term) })
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

// ensureNamespaces makes the namespaces that every cluster has.
func (n *Node) ensureNamespaces(ctx context.Context) {
	for ctx.Err() == nil {
		err := n.api.EnsureNamespaces(ctx)
		if err == nil {
			return
		}
		n.log.Warn("the first namespaces are not there yet", "error", err)
		pause(ctx, ensureAgain)
	}
}

// ensureRoles makes the roles and bindings that every cluster has.
func (n *Node) ensureRoles(ctx context.Context) {
	policy, err := rbac.Bootstrap()
	if err != nil {
		n.log.Error("the first roles cannot be read", "error", err)
		return
	}
	for ctx.Err() == nil {
		err := rbac.Ensure(ctx, n.api.Objects(), policy, n.log)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			n.log.Warn("the first roles are not there yet", "error", err)
		}
		pause(ctx, ensureAgain)
	}
}

// aggregateRoles writes the rules of roles that collect those of others.
func (n *Node) aggregateRoles(ctx context.Context) {
	for ctx.Err() == nil {
		if err := n.aggregateRolesOnce(ctx); err != nil && ctx.Err() == nil {
			n.log.Warn("the aggregation of roles begins anew", "error", err)
		}
		pause(ctx, controllerAgain)
	}
}

func (n *Node) aggregateRolesOnce(ctx context.Context) error {
	objects := n.api.Objects()
	changed, stop, err := objects.WatchTable(rbac.ClusterRoles)
	if err != nil {
		return err
	}
	defer stop()
	return rbac.Aggregate(ctx, n.store, changed, objects, n.log)
}

// controllers are those that the settings ask for.
func (n *Node) controllers() map[controllers.Name]controllers.Controller {
	names, _ := controllers.Select(n.cfg.Controllers) // checked at the start
	out := controllers.Make(n.api, n.api.Objects(), controllers.Servers{
		List: n.manager.APIAddresses, Address: services.FirstAddress(n.serviceBlocks),
	}, names)
	if !n.cfg.GarbageCollector {
		delete(out, controllers.GarbageController)
	}
	return out
}

// control runs a controller. What ends it, such as a history that moved on before it
// was read, does not concern the next run.
func (n *Node) control(ctx context.Context, name controllers.Name, run controllers.Controller) {
	for ctx.Err() == nil {
		if err := run(ctx, n.log.With("controller", string(name))); err != nil && ctx.Err() == nil {
			n.log.Warn("a controller begins anew", "controller", string(name), "error", err)
		}
		pause(ctx, controllerAgain)
	}
}

// tendServices makes the range of service addresses known and takes back what no
// Service holds.
func (n *Node) tendServices(ctx context.Context) {
	if err := controllers.TendServices(ctx, n.api, n.log); err != nil && ctx.Err() == nil {
		n.log.Warn("the service addresses are not tended any more", "error", err)
	}
}

// keepFlowControl looks after the objects of priority and fairness.
func (n *Node) keepFlowControl(ctx context.Context) {
	for ctx.Err() == nil {
		if err := n.api.KeepFlowControl(ctx); err != nil && ctx.Err() == nil {
			n.log.Warn("the objects of flow control are not looked after", "error", err)
		}
		pause(ctx, controllerAgain)
	}
}

// settleDefinitions runs the loop over the definitions of custom resources.
func (n *Node) settleDefinitions(ctx context.Context) {
	for ctx.Err() == nil {
		if err := controllers.SettleDefinitions(ctx, n.api, n.log); err != nil && ctx.Err() == nil {
			n.log.Warn("the loop over definitions begins anew", "error", err)
		}
		pause(ctx, controllerAgain)
	}
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
