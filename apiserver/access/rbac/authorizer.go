package rbac

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/view"
	rbacv1 "k8s.io/api/rbac/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// The tables, in the order of Authorizer.cursors.
var tableNames = [...]string{
	ClusterRolesTable, "roles." + rbacv1.GroupName,
	"clusterrolebindings." + rbacv1.GroupName, "rolebindings." + rbacv1.GroupName,
}

// Authorizer decides by the roles and bindings of this node's state: what a write
// has granted or taken away counts as soon as the write is visible here. It is safe
// for concurrent use. Deciding takes no lock and allocates nothing, unless one of the
// tables has changed: see package view.
type Authorizer struct {
	index *view.View[*Index]
	log   *slog.Logger

	// Of the one that renews the index:
	cursors  [len(tableNames)]*mvcc.Cursor
	bindings map[string]*binding // by table and key
}

// New returns an Authorizer. Nothing runs in it; log is told of objects that cannot
// be read.
func New(store view.Store, log *slog.Logger) *Authorizer {
	z := &Authorizer{log: log}
	z.index = view.New(store, tableNames[:], z.follow)
	return z
}

// Index returns what is in force now. It is never nil.
func (z *Authorizer) Index() *Index { return z.index.Get() }

// Mark stands for what is in force at a time. The zero Mark is before everything.
type Mark = view.Mark

// Mark returns what is in force now, or a little before. It costs two loads.
func (z *Authorizer) Mark() Mark { return z.index.Mark() }

// Changed reports whether a role or a binding has changed since, or may have.
func (z *Authorizer) Changed(since Mark) bool { return z.index.Changed(since) }

// follow returns the index that comes after another one, or the first one of a state.
// Errors: mvcc.ErrCompacted, after which only a first one can follow.
func (z *Authorizer) follow(now view.Reading, index *Index) (*Index, error) {
	if !now.Follows {
		index = new(Index)
		z.bindings = map[string]*binding{}
		z.cursors = [len(tableNames)]*mvcc.Cursor{}
	}
	c := index.change()
	for i, t := range now.Tables {
		if t == nil {
			continue
		}
		if err := z.followTable(c, i, t, now.At); err != nil {
			return nil, err
		}
	}
	return c.done(), nil
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
	if err := json.Unmarshal(v.Value(), into); err != nil {
		z.log.Error("a stored role or binding cannot be read and grants nothing", "table", tableNames[i], "key", v.Key, "err", err)
	}
}

// Authorize implements auth.Authorizer.
func (z *Authorizer) Authorize(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
	return z.Index().authorize(&a)
}

func (x *Index) authorize(a *auth.Attributes) (auth.Decision, string, error) {
	d, reason, err := x.decide(a, allows)
	if d == auth.Allow || !isReserved(a) {
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
