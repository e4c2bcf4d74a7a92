package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/apiserver/access/rbac"
	"github.com/quorate/quorate/apiserver/controllers"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/builtin"
	"github.com/quorate/quorate/apiserver/observe/health"
	"github.com/quorate/quorate/apiserver/observe/metrics"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore"
	schedulingv1 "k8s.io/api/scheduling/v1"
)

// checks say when this node is alive (never a matter of other nodes) and
// when it can serve Most Recent reads.
type checks struct {
	cfg      *Config
	log      *slog.Logger
	kinds    *kinds.Registry
	store    *raftstore.Store
	manager  *membership.Manager
	metrics  *metrics.Metrics
	refusing *refusal
	// rolesEnsured says that none of the bootstrap roles was missing once since the start.
	rolesEnsured atomic.Bool
}

func (c *checks) config() health.Config {
	// Monitoring and load balancers that know kube-apiserver ask for "etcd": the storage, as far as each
	// probe looks at it.
	log, raftLog := c.logCheck(), health.Check{Name: "raft-log", Check: c.followsLog}
	aliveStorage := raftLog
	aliveStorage.Alias = "etcd"
	readIndex := health.Barrier("read-index", time.Second, c.readsIndex)
	readIndex.Alias = "etcd"
	return health.Config{
		Livez: []health.Check{log, aliveStorage},
		// The node serves before it has replayed its log. A state machine that has
		// begun late is not one that hangs.
		StartupGrace: cmp.Or(c.cfg.LivezGrace, c.cfg.HungDiskTimeout),
		Readyz: []health.Check{
			log, raftLog,
			{Name: "state", Check: c.trustsState},
			{Name: "membership", Check: c.isMember},
			{Name: "disk-space", Check: c.hasDiskSpace},
			readIndex,
			{Name: "poststarthook/start-system-namespaces", Check: c.hasNamespaces},
			{Name: "poststarthook/rbac/bootstrap-roles", Check: c.hasRoles},
			{Name: "poststarthook/scheduling/bootstrap-system-priority-classes", Check: c.hasPriorityClasses()},
		},
		Observe: c.metrics.HealthCheck,
		Log:     c.logUnlessBlocked(),
	}
}

func (c *checks) followsLog(context.Context) error {
	if !c.store.Alive(c.cfg.HungDiskTimeout) {
		return errors.New("the state machine does not follow the log")
	}
	return nil
}

// trustsState fails when this node has stopped serving because its state is wrong.
func (c *checks) trustsState(context.Context) error {
	if err := c.refusing.reason(); !errors.Is(err, membership.ErrRemoved) {
		return err
	}
	return nil
}

// hasDiskSpace fails while this node's disk has room for compaction only, and those of a majority have more: others serve
// what this node soon cannot follow. It fails also while nothing can be written.
func (c *checks) hasDiskSpace(context.Context) error {
	own, cluster := c.store.Disk()
	if own.GetReadOnly() {
		return errors.New("the file system of this node's data directory takes no writes")
	}
	if own.GetLevel() == proto.DiskSpace_FULL && cluster.GetLevel() < proto.DiskSpace_FULL {
		return errors.New("this node's disk is full, and others have room")
	}
	return nil
}

func (c *checks) isMember(context.Context) error {
	if err := c.refusing.reason(); errors.Is(err, membership.ErrRemoved) {
		return err
	}
	select {
	case <-c.manager.Formed():
		if c.store.Role() == "removed" {
			return errors.New("this node is not in the configuration of the cluster: it was removed, or has not caught up to where it was added")
		}
		// Until then no administrator can name the node: a removal right after its start failed.
		if !c.manager.Announced() {
			return errors.New("the cluster does not know this node's name yet")
		}
		return nil
	default:
		return errors.New("not part of a cluster yet")
	}
}

func (c *checks) readsIndex(ctx context.Context) error {
	index, err := c.store.ReadIndex(ctx)
	if err != nil {
		return err
	}
	return c.store.WaitApplied(ctx, index)
}

func (c *checks) hasNamespaces(context.Context) error {
	state := c.store.State()
	if t := state.Table("namespaces"); t != nil {
		if v, err := t.Get("default", state.Applied()); err == nil && v != nil {
			return nil
		}
	}
	return errors.New("the system namespaces do not exist yet")
}

// hasRoles succeeds for good when ensureRoles has once: a role that is taken away later does not make
// the node unready.
func (c *checks) hasRoles(context.Context) error {
	if c.rolesEnsured.Load() {
		return nil
	}
	return errors.New("the bootstrap roles do not exist yet, or what is missing of them has not been made again")
}

// ensureRoles makes at each start of a node what is missing of the bootstrap roles, as upstream's
// servers do: what was deleted is there again when the node is ready. The first time it is the
// leader who makes them, and the others wait.
func (c *checks) ensureRoles(ctx context.Context, roles *rbac.Authorizer, s *objects.Store) error {
	for delay := ensurePoll; ; {
		if roles.Ensured() {
			err := c.ensureRolesOnce(ctx, s)
			switch {
			case err == nil:
				c.rolesEnsured.Store(true)
				return nil
			case ctx.Err() != nil:
				return nil
			}
			delay = min(2*delay, time.Second)
			c.log.Warn("cannot make the bootstrap roles that are missing, retrying", "err", err, "retry", delay)
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

func (c *checks) ensureRolesOnce(ctx context.Context, s *objects.Store) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := c.readsIndex(ctx); err != nil { // what this node has may be old
		return err
	}
	return controllers.EnsureRoles(ctx, s, c.log)
}

// hasPriorityClasses succeeds for good when it has once, as that of roles does. Where the group is switched
// off there is nothing to wait for.
func (c *checks) hasPriorityClasses() func(context.Context) error {
	gvr := schedulingv1.SchemeGroupVersion.WithResource("priorityclasses")
	var ensured atomic.Bool
	return func(context.Context) error {
		if ensured.Load() || c.kinds.Lookup(gvr) == nil {
			return nil
		}
		state := c.store.State()
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
func (c *checks) logCheck() health.Check {
	return health.Check{Name: "log", Check: func(context.Context) error {
		if d := c.cfg.LogBlocked(); d > 0 {
			return fmt.Errorf("logging is blocked for %s", d.Round(time.Second))
		}
		return nil
	}}
}

// logUnlessBlocked logs what the log does, and nothing while that would block: who says that
// logging is blocked must not log it.
func (c *checks) logUnlessBlocked() *slog.Logger {
	return slog.New(unlessBlocked{c.log.Handler(), c.cfg.LogBlocked})
}

type unlessBlocked struct {
	slog.Handler
	blocked func() time.Duration
}

// Enabled implements slog.Handler.
func (h unlessBlocked) Enabled(ctx context.Context, l slog.Level) bool {
	return h.blocked() == 0 && h.Handler.Enabled(ctx, l)
}
