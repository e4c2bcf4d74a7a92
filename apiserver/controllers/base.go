package controllers

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// base is what every controller has: the objects of this node, the API over them, and where to say what failed. A controller is a
// struct with it and what this one needs, made anew for each run.
type base struct {
	objects *objects.Store
	api     objects.Client
	reports *reports
}

const (
	// coalesceDelay lets several changes be one.
	coalesceDelay = 50 * time.Millisecond
	// retryDelay is the pause after what failed.
	retryDelay = time.Second
)

// onChange calls step at once and whenever one of at most two tables may have changed,
// until ctx ends: coalesceDelay after the call before, however fast they change. Without a
// change it is called after retryDelay if the call before asked for another, and after
// period otherwise; zero is never. What cannot be done so keeps nothing else waiting. An
// error of step ends it.
func (b base) onChange(ctx context.Context, tables []string, period time.Duration, step func() (again bool, err error)) error {
	var changed [2]<-chan struct{}
	for i, table := range tables {
		wake, stop, err := b.objects.WatchTable(table)
		if err != nil {
			return err
		}
		defer stop()
		changed[i] = wake
	}
	for {
		again, err := step()
		if err != nil {
			return err
		}
		if !pause(ctx, coalesceDelay) {
			return context.Cause(ctx)
		}
		var due <-chan time.Time
		switch {
		case again:
			due = time.After(retryDelay)
		case period > 0:
			due = time.After(period)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed[0]:
		case <-changed[1]:
		case <-due:
		}
	}
}

// keep calls step as onChange does, again after an error, and says once what failed.
func (b base) keep(ctx context.Context, tables []string, period time.Duration, failed string, step func(ctx context.Context) error, about ...any) error {
	return b.onChange(ctx, tables, period, func() (again bool, _ error) {
		err := step(ctx)
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		b.reports.tried(failed, err, about...)
		return err != nil, nil
	})
}

// pause waits, and reports whether ctx has not ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// removeVersion deletes an object if nothing was written since a version.
func (b base) removeVersion(ctx context.Context, table string, v *mvcc.Version) error {
	o, err := b.objects.SystemAt(ctx, table, v.Key, "delete")
	if err != nil {
		return err
	}
	_, err = o.GuaranteedUpdate(v.Key, func(cur *mvcc.Version) (objects.Change, error) {
		if cur == nil || cur.Revision != v.Revision {
			return objects.Change{None: true}, nil
		}
		return objects.Change{Op: proto.Op_OP_DELETE}, nil
	})
	return err
}

// writeStatus writes a subresource that is about the status of an object, as alter changes it from the
// current version, and reports whether it was changed. One that is gone needs none.
func (b base) writeStatus(
	ctx context.Context, res *kinds.Resource, subresource, namespace, name string,
	alter func(cur *mvcc.Version, obj, meta tree.Object) (bool, error),
) (changed bool, _ error) {
	o := b.objects.System(ctx, res, namespace, name, "update")
	o.Info.Subresource, o.Subresource = subresource, res.Subresource(subresource)
	_, err := o.GuaranteedUpdate(o.Key(), func(cur *mvcc.Version) (objects.Change, error) {
		changed = false
		if cur == nil {
			return objects.Change{None: true}, nil
		}
		old, obj, meta, err := o.Editable(cur)
		if err != nil {
			return objects.Change{}, err
		}
		if changed, err = alter(cur, obj, meta); err != nil || !changed {
			return objects.Change{None: true}, err
		}
		return o.Replace(cur, obj, old)
	})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return changed && err == nil, err
}

// keepConfigMap makes a ConfigMap what alter makes of it, which reports whether it has changed anything. It is no
// error if its namespace is gone or on its way out, or if another one has just made it: that change wakes a loop again.
func (b base) keepConfigMap(ctx context.Context, namespace, name string, alter func(*corev1.ConfigMap) (changed bool)) error {
	var m corev1.ConfigMap
	err := b.api.Get(ctx, mapsGVR, namespace, name, &m)
	absent := apierrors.IsNotFound(err)
	switch changed := alter(&m); {
	case absent:
		m.Namespace, m.Name = namespace, name
		err = b.api.Create(ctx, mapsGVR, namespace, &m)
		if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil
		}
	case err == nil && changed:
		err = b.api.Update(ctx, mapsGVR, namespace, name, &m)
	}
	if err != nil {
		return fmt.Errorf("publish ConfigMap %s in %s: %w", name, namespace, err)
	}
	return nil
}

// Users in whose name the node's own loops delete, or read at aggregated API servers: whom admission and aggregated API servers
// are told, and the audit log. Upstream's controllers are clients with these accounts.
var (
	asGarbageCollector    = ownUser("system:serviceaccount:kube-system:generic-garbage-collector", auth.ServiceAccountGroups("kube-system")...)
	asQuotaController     = ownUser("system:serviceaccount:kube-system:resourcequota-controller", auth.ServiceAccountGroups("kube-system")...)
	asNamespaceController = ownUser("system:serviceaccount:kube-system:namespace-controller", auth.ServiceAccountGroups("kube-system")...)
)

func ownUser(name string, groups ...string) *auth.User {
	return &auth.User{Name: name, Groups: append(groups, auth.Authenticated)}
}
