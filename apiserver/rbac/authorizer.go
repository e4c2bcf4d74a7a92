package rbac

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/quorate/quorate/apiserver/auth"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	rbacv1 "k8s.io/api/rbac/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// The tables, in the order of snapshot.tables.
var tableNames = [...]string{
	"clusterroles." + rbacv1.GroupName, "roles." + rbacv1.GroupName,
	"clusterrolebindings." + rbacv1.GroupName, "rolebindings." + rbacv1.GroupName,
}

// Store is what is needed of the replicated store.
type Store interface {
	// State is the local state. It may be replaced as a whole by a snapshot.
	State() *mvcc.State
}

// Authorizer decides by the roles and bindings of this node's state: what a write
// has granted or taken away counts as soon as the write is visible here. It is safe
// for concurrent use. Deciding takes no lock and allocates nothing, unless one of the
// tables has changed: then the first who asks reads the changes.
type Authorizer struct {
	store Store
	log   *slog.Logger

	now atomic.Pointer[snapshot]

	// Of whoever renews the index:
	mu       sync.Mutex
	cursors  [len(tableNames)]*mvcc.Cursor
	bindings map[string]*binding // by table and key
}

// snapshot is an Index and the state that it is of.
type snapshot struct {
	state *mvcc.State
	// tables are nil as long as they do not exist.
	tables [len(tableNames)]*mvcc.Table
	// read is the revision up to which the tables were read.
	read  proto.Revision
	index *Index
}

// New returns an Authorizer. Nothing runs in it; log is told of objects that cannot
// be read.
func New(store Store, log *slog.Logger) *Authorizer {
	return &Authorizer{store: store, log: log}
}

// current reports whether a snapshot has all that is visible in its state.
func (s *snapshot) current(state *mvcc.State) bool {
	if s == nil || s.state != state {
		return false
	}
	for i, t := range s.tables {
		if t == nil {
			if t = state.Table(tableNames[i]); t == nil {
				continue
			}
		}
		if t.Latest() > s.read && state.Applied() > s.read {
			return false
		}
	}
	return true
}

// Index returns what is in force now. It is never nil.
func (z *Authorizer) Index() *Index {
	state := z.store.State()
	if s := z.now.Load(); s.current(state) {
		return s.index
	}
	return z.renew()
}

// Mark stands for what is in force at a time. The zero Mark is before everything.
type Mark struct {
	state *mvcc.State
	at    proto.Revision
}

// Mark returns what is in force now, or a little before. It costs two loads.
func (z *Authorizer) Mark() Mark {
	state := z.store.State()
	return Mark{state, state.Applied()}
}

// Changed reports whether a role or a binding has changed since, or may have.
func (z *Authorizer) Changed(since Mark) bool {
	now := z.Mark()
	switch {
	case now == since:
		return false
	case now.state != since.state:
		return true
	}
	for _, name := range tableNames {
		if t := now.state.Table(name); t != nil && t.Latest() > since.at {
			return true
		}
	}
	return false
}

// renew reads what has changed in the tables.
func (z *Authorizer) renew() *Index {
	z.mu.Lock()
	defer z.mu.Unlock()
	state := z.store.State()
	was := z.now.Load()
	if was.current(state) {
		return was.index
	}
	if was != nil && was.state != state {
		was = nil
	}
	for {
		next, err := z.follow(was, state)
		if err == nil {
			z.now.Store(next)
			return next.index
		}
		// The floor has passed what was to be read. Part of it may have been taken:
		// the tables are read anew, as they are now.
		was, state = nil, z.store.State()
	}
}

// follow returns what comes after a snapshot, or the first one of a state. Errors:
// mvcc.ErrCompacted, after which only a first one can follow.
func (z *Authorizer) follow(was *snapshot, state *mvcc.State) (*snapshot, error) {
	// The mark first: what it stands for is in the tables that are found after it.
	next := &snapshot{state: state, read: state.Applied()}
	index := new(Index)
	if was == nil {
		z.bindings = map[string]*binding{}
		z.cursors = [len(tableNames)]*mvcc.Cursor{}
	} else {
		index = was.index
	}
	c := index.change()
	for i, name := range tableNames {
		t := state.Table(name)
		if t == nil {
			continue
		}
		next.tables[i] = t
		if err := z.followTable(c, i, t, next.read); err != nil {
			return nil, err
		}
	}
	next.index = c.done()
	return next, nil
}

func (z *Authorizer) followTable(c *change, i int, t *mvcc.Table, upTo proto.Revision) error {
	if z.cursors[i] == nil {
		page, err := t.Range(mvcc.Query{At: upTo})
		if err != nil {
			return err
		}
		for _, v := range page.Versions {
			z.take(c, i, v)
		}
		z.cursors[i], err = t.Watch(upTo)
		return err
	}
	var buf [64]*mvcc.Version
	for {
		n, err := z.cursors[i].Next(buf[:], upTo)
		if err != nil {
			return err
		}
		for _, v := range buf[:n] {
			z.take(c, i, v)
		}
		if n < len(buf) {
			return nil
		}
	}
}

// take puts one version of a role or a binding in force. What cannot be read grants
// nothing.
func (z *Authorizer) take(c *change, i int, v *mvcc.Version) {
	if i < 2 {
		k := roleKeyOf(i, v.Key)
		if v.Deleted {
			c.removeRole(k)
			return
		}
		var r rbacv1.ClusterRole // a Role has the same rules
		z.decode(i, v, &r)
		c.setRole(k, r.Rules)
		return
	}
	name := tableNames[i] + "/" + v.Key
	if was := z.bindings[name]; was != nil {
		c.removeBinding(was)
		delete(z.bindings, name)
	}
	if v.Deleted {
		return
	}
	var b rbacv1.RoleBinding // a ClusterRoleBinding has the same fields
	z.decode(i, v, &b)
	now := &binding{key: v.Key, ref: b.RoleRef, subjects: b.Subjects}
	z.bindings[name] = now
	c.addBinding(now)
}

func roleKeyOf(i int, key string) roleKey {
	if i == 0 {
		return roleKey{name: key}
	}
	namespace, name, _ := strings.Cut(key, "/")
	return roleKey{namespace: namespace, name: name}
}

func (z *Authorizer) decode(i int, v *mvcc.Version, into any) {
	if err := json.Unmarshal(v.Value, into); err != nil {
		z.log.Error("a stored role or binding cannot be read and grants nothing", "table", tableNames[i], "key", v.Key, "err", err)
	}
}

// Authorize implements auth.Authorizer.
func (z *Authorizer) Authorize(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
	return z.Index().authorize(&a)
}

func (x *Index) authorize(a *auth.Attributes) (auth.Decision, string, error) {
	d, reason, err := x.decide(a, allows)
	if d == auth.Allow || a.ResourceRequest || !reserved(a.Path) {
		return d, reason, err
	}
	if admin, _, _ := x.decide(administration(a.User), allows); admin != auth.Allow {
		return d, reason, err
	}
	return x.decide(a, allowsAdministrator)
}

// decide allows what a rule of the user's allows.
func (x *Index) decide(a *auth.Attributes, allows func(*rbacv1.PolicyRule, *auth.Attributes) bool) (auth.Decision, string, error) {
	var allowedBy *grant
	var failed []error
	x.visit(a.User, a.Namespace, func(g *grant, rules []rbacv1.PolicyRule, err error) bool {
		if err != nil {
			failed = append(failed, err)
			return true
		}
		for i := range rules {
			if allows(&rules[i], a) {
				allowedBy = g
				return false
			}
		}
		return true
	})
	switch {
	case allowedBy != nil:
		return auth.Allow, allowedBy.reason, nil
	case len(failed) > 0:
		return auth.NoOpinion, fmt.Sprintf("RBAC: %v", utilerrors.NewAggregate(failed)), nil
	}
	return auth.NoOpinion, "", nil
}

// Empty reports whether there is no binding at all: nothing was granted yet.
func (z *Authorizer) Empty() bool { return z.Index().bindings == 0 }
