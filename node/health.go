package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/apiserver/controllers"
	"github.com/quorate/quorate/apiserver/objects/builtin"
	"github.com/quorate/quorate/apiserver/observe/health"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/proto"
	schedulingv1 "k8s.io/api/scheduling/v1"
)

// healthChecks say when this node is alive (never a matter of other nodes) and
// when it can serve Most Recent reads.
func (n *Node) healthChecks() health.Config {
	// Monitoring and load balancers that know kube-apiserver ask for "etcd": the storage, as far as each
	// probe looks at it.
	log, raftLog := n.logCheck(), health.Check{Name: "raft-log", Check: n.followsLog}
	aliveStorage := raftLog
	aliveStorage.Alias = "etcd"
	readIndex := health.Barrier("read-index", time.Second, n.readsIndex)
	readIndex.Alias = "etcd"
	return health.Config{
		Livez: []health.Check{log, aliveStorage},
		// The node serves before it has replayed its log. A state machine that has
		// begun late is not one that hangs.
		StartupGrace: cmp.Or(n.cfg.LivezGrace, n.cfg.HungDiskTimeout),
		Readyz: []health.Check{
			log, raftLog,
			{Name: "state", Check: n.trustsState},
			{Name: "membership", Check: n.isMember},
			{Name: "disk-space", Check: n.hasDiskSpace},
			readIndex,
			{Name: "poststarthook/start-system-namespaces", Check: n.hasNamespaces},
			{Name: "poststarthook/rbac/bootstrap-roles", Check: n.hasRoles},
			{Name: "poststarthook/scheduling/bootstrap-system-priority-classes", Check: n.hasPriorityClasses()},
		},
		Observe: n.metrics.HealthCheck,
		Log:     n.logUnlessBlocked(),
	}
}

func (n *Node) followsLog(context.Context) error {
	if !n.store.Alive(n.cfg.HungDiskTimeout) {
		return errors.New("the state machine does not follow the log")
	}
	return nil
}

// trustsState fails when this node has stopped serving because its state is wrong.
func (n *Node) trustsState(context.Context) error {
	if err := n.refusing.reason(); !errors.Is(err, membership.ErrRemoved) {
		return err
	}
	return nil
}

// hasDiskSpace fails while this node's disk has room for compaction only, and those of a majority have more: others serve
// what this node soon cannot follow. It fails also while nothing can be written.
func (n *Node) hasDiskSpace(context.Context) error {
	own, cluster := n.store.Disk()
	if own.GetReadOnly() {
		return errors.New("the file system of this node's data directory takes no writes")
	}
	if own.GetLevel() == proto.DiskSpace_FULL && cluster.GetLevel() < proto.DiskSpace_FULL {
		return errors.New("this node's disk is full, and others have room")
	}
	return nil
}

func (n *Node) isMember(context.Context) error {
	if err := n.refusing.reason(); errors.Is(err, membership.ErrRemoved) {
		return err
	}
	select {
	case <-n.manager.Formed():
		if n.store.Role() == "removed" {
			return errors.New("this node is not in the configuration of the cluster: it was removed, or has not caught up to where it was added")
		}
		// Until then no administrator can name the node: a removal right after its start failed.
		if !n.manager.Announced() {
			return errors.New("the cluster does not know this node's name yet")
		}
		return nil
	default:
		return errors.New("not part of a cluster yet")
	}
}

func (n *Node) readsIndex(ctx context.Context) error {
	index, err := n.store.ReadIndex(ctx)
	if err != nil {
		return err
	}
	return n.store.WaitApplied(ctx, index)
}

func (n *Node) hasNamespaces(context.Context) error {
	state := n.store.State()
	if t := state.Table("namespaces"); t != nil {
		if v, err := t.Get("default", state.Applied()); err == nil && v != nil {
			return nil
		}
	}
	return errors.New("the system namespaces do not exist yet")
}

// hasRoles succeeds for good when ensureRoles has once: a role that is taken away later does not make
// the node unready.
func (n *Node) hasRoles(context.Context) error {
	if n.rolesEnsured.Load() {
		return nil
	}
	return errors.New("the bootstrap roles do not exist yet, or what is missing of them has not been made again")
}

// ensureRoles makes at each start of a node what is missing of the bootstrap roles, as upstream's
// servers do: what was deleted is there again when the node is ready. The first time it is the
// leader who makes them, and the others wait.
func (n *Node) ensureRoles(ctx context.Context) error {
	for delay := ensurePoll; ; {
		if n.roles.Ensured() {
			err := n.ensureRolesOnce(ctx)
			switch {
			case err == nil:
				n.rolesEnsured.Store(true)
				return nil
			case ctx.Err() != nil:
				return nil
			}
			delay = min(2*delay, time.Second)
			n.log.Warn("cannot make the bootstrap roles that are missing, retrying", "err", err, "retry", delay)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay):
		}
	}
}

// ensurePoll is how often a node looks whether the leader has made the first roles.
const ensurePoll = 10 * time.Millisecond

func (n *Node) ensureRolesOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := n.readsIndex(ctx); err != nil { // what this node has may be old
		return err
	}
	return controllers.EnsureRoles(ctx, n.api.Objects(), n.log)
}

// hasPriorityClasses succeeds for good when it has once, as that of roles does. Where the group is switched
// off there is nothing to wait for.
func (n *Node) hasPriorityClasses() func(context.Context) error {
	gvr := schedulingv1.SchemeGroupVersion.WithResource("priorityclasses")
	var ensured atomic.Bool
	return func(context.Context) error {
		if ensured.Load() || n.kinds.Lookup(gvr) == nil {
			return nil
		}
		state := n.store.State()
		for _, c := range builtin.SystemPriorityClasses() {
			t := state.Table(kinds.BuiltinTable(gvr.GroupResource()))
			if t == nil {
				return errors.New("the system's priority classes do not exist yet")
			}
			if v, err := t.Get(c.Name, state.Applied()); err != nil || v == nil {
				return fmt.Errorf("the priority class %s does not exist yet", c.Name)
			}
		}
		ensured.Store(true)
		return nil
	}
}

// logCheck is the health check of upstream's name: whether lines can be logged.
func (n *Node) logCheck() health.Check {
	return health.Check{Name: "log", Check: func(context.Context) error {
		if d := n.cfg.LogBlocked(); d > 0 {
			return fmt.Errorf("logging is blocked for %s", d.Round(time.Second))
		}
		return nil
	}}
}

// logUnlessBlocked logs what the log does, and nothing while that would block: who says that
// logging is blocked must not log it.
func (n *Node) logUnlessBlocked() *slog.Logger {
	return slog.New(unlessBlocked{n.log.Handler(), n.cfg.LogBlocked})
}

type unlessBlocked struct {
	slog.Handler
	blocked func() time.Duration
}

// Enabled implements slog.Handler.
func (h unlessBlocked) Enabled(ctx context.Context, l slog.Level) bool {
	return h.blocked() == 0 && h.Handler.Enabled(ctx, l)
}
