package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/quota"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var quotasGVR = schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}

// overduePeriod is the time between two looks for Pods that should have ended.
const overduePeriod = 10 * time.Second

// charged are the kinds whose objects use more than a place.
var charged = []schema.GroupVersionResource{
	quota.Pods.WithVersion("v1"), quota.Services.WithVersion("v1"), quota.VolumeClaims.WithVersion("v1"), quota.ResourceClaims.WithVersion("v1"),
}

// syncQuotas shows in the status of quotas what the state machine counts, until ctx ends. It
// is called whenever anything was written, at most every coalesceDelay, and writes what has
// changed. Nothing is decided by a status.
func (l *Loops) syncQuotas(ctx context.Context, r *reports) error {
	res := l.objects.Kinds().Lookup(quotasGVR)
	if res == nil {
		return errors.New("the registry has no resource quotas")
	}
	wake, stop := l.cfg.Published()
	defer stop()
	q := &quotaSync{l: l, res: res, shown: map[string]shownQuota{}, checked: map[string]bool{}}
	timer := time.NewTicker(overduePeriod)
	defer timer.Stop()
	for {
		again, err := q.sync(ctx, r)
		if err != nil {
			return err
		}
		if !pause(ctx, coalesceDelay) {
			return context.Cause(ctx)
		}
		var retry <-chan time.Time
		if again {
			retry = time.After(retryDelay)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-wake:
		case <-retry:
		case <-timer.C:
			q.overdue = true
		}
	}
}

// quotaSync is what one term's controller remembers. It all follows from the state.
type quotaSync struct {
	l   *Loops
	res *kinds.Resource
	// shown are quotas whose status is right, by key.
	shown map[string]shownQuota
	// checked are the namespaces whose objects all carry what they use; overdue asks for a
	// look at those that are being deleted.
	checked map[string]bool
	overdue bool
	// feature is what the cluster spoke then: before it speaks of limits nothing has any.
	feature uint32
}

// shownQuota is a version of a quota, and what its status says is used.
type shownQuota struct {
	version *mvcc.Version
	used    []mvcc.BoundUse
}

// sync brings all quotas up to date. again says that something failed.
func (q *quotaSync) sync(ctx context.Context, r *reports) (again bool, _ error) {
	versions, err := q.l.objects.Range(q.res.Table(), "")
	if err != nil {
		return false, fmt.Errorf("list resource quotas: %w", err)
	}
	if feature := q.l.objects.Storage.State().Mark().Feature; feature != q.feature {
		clear(q.shown)
		clear(q.checked)
		q.feature = feature
	}
	seen := make(map[string]shownQuota, len(versions))
	namespaces := map[string]bool{} // true: all in it carry what they use
	for _, v := range versions {
		namespace, name := objects.SplitKey(q.res, v.Key)
		if _, ok := namespaces[namespace]; !ok {
			// Before its quotas: they get no limits as long as something in it does not.
			err := q.recharge(ctx, namespace)
			if ctx.Err() != nil {
				return false, context.Cause(ctx)
			}
			if err != nil {
				again = true
				r.failed("cannot count what is in a namespace, retrying", "namespace", namespace, "err", err)
			}
			namespaces[namespace] = err == nil
		}
		used, _ := q.l.objects.Storage.State().Usage(q.res.Table(), v.Key)
		was, ok := q.shown[v.Key]
		if !ok || was.version != v || !slices.Equal(was.used, used) {
			if err := q.show(ctx, namespace, name); err != nil {
				if ctx.Err() != nil {
					return false, context.Cause(ctx)
				}
				again = true
				r.failed("cannot update the status of a resource quota, retrying", "namespace", namespace, "name", name, "err", err)
				continue
			}
		}
		if namespaces[namespace] {
			seen[v.Key] = shownQuota{v, used}
		}
	}
	q.shown = seen
	q.checked, q.overdue = namespaces, false
	return again, nil
}

// show writes the status of a quota if it says something else than the state machine. The
// write has the quota's limits, so one that was written by a release before, or while objects
// of that time were there, has them then.
func (q *quotaSync) show(ctx context.Context, namespace, name string) error {
	o := q.l.objects.System(ctx, q.res, namespace, name, "update")
	o.Subresource, o.Info.Subresource = q.res.Subresource("status"), "status"
	_, err := o.GuaranteedUpdate(o.Key(), func(cur *mvcc.Version) (objects.Change, error) {
		if cur == nil {
			return objects.Change{}, o.NotFound()
		}
		old, obj, _, err := o.Editable(cur)
		if err != nil {
			return objects.Change{}, err
		}
		used, _ := q.l.objects.Storage.State().Usage(q.res.Table(), cur.Key)
		if status := quota.Status(obj, used); status != nil {
			obj["status"] = status
			return o.Replace(cur, obj, old)
		}
		return o.PutUnlessSame(obj, cur)
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// recharge writes objects again whose versions do not say what they use: all that were written
// by a release before, and Pods that should have ended by now. It looks at each namespace
// once, and at what is being deleted in it every overduePeriod.
func (q *quotaSync) recharge(ctx context.Context, namespace string) error {
	all := !q.checked[namespace]
	if !all && !q.overdue {
		return nil
	}
	for _, gvr := range charged {
		res := q.l.objects.Kinds().Lookup(gvr)
		if res == nil {
			continue
		}
		versions, err := q.l.objects.Match(res.Table(), mvcc.Query{Prefix: namespace + "/", Match: func(v *mvcc.Version) bool {
			return all && !v.Charged() || v.Flags&proto.FlagTerminating != 0
		}})
		if err != nil {
			return err
		}
		for _, v := range versions {
			namespace, name := objects.SplitKey(res, v.Key)
			if err := q.l.objects.System(ctx, res, namespace, name, "update").Recharge(); err != nil {
				return fmt.Errorf("%s %s: %w", res.Plural, v.Key, err)
			}
		}
	}
	return nil
}
