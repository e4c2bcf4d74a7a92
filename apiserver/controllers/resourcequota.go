package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/quota"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var quotasGVR = schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}

// overduePeriod is the time between two looks for Pods that should have ended.
const overduePeriod = 10 * time.Second

// quotaSync shows in the status of quotas what the state machine counts. It looks whenever anything was written, at most every
// coalesceDelay, and writes what has changed. What it remembers all follows from the state; nothing is decided by a status.
type quotaSync struct {
	base
	published  func() (<-chan struct{}, func())
	aggregator *aggregator.Aggregator
	res        *kinds.Resource
	// outside counts what aggregated API servers have; nil: there are none.
	outside *outsideCounts
	// shown are quotas whose status is right, by key.
	shown map[string]shownQuota
	// overdue asks for a look at what is being deleted.
	overdue bool
}

func (q *quotaSync) run(ctx context.Context) (err error) {
	if q.res = q.objects.Kinds().Lookup(quotasGVR); q.res == nil {
		return errors.New("the registry has no resource quotas")
	}
	wake, stop := q.published()
	defer stop()
	if q.outside, err = newOutsideCounts(q.aggregator, q.reports); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer q.outside.start(ctx)()
	defer cancel()
	q.overdue = true
	timer := time.NewTicker(overduePeriod)
	defer timer.Stop()
	for {
		again, err := q.sync(ctx)
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
		case <-q.outside.woken():
		case <-retry:
		case <-timer.C:
			q.overdue = true
		}
	}
}

// shownQuota is a version of a quota, and what its status says is used.
type shownQuota struct {
	version *mvcc.Version
	used    []mvcc.BoundUse
	bounds  []schema.GroupResource // what bounded says of it
}

// sync brings all quotas up to date. again says that something failed.
func (q *quotaSync) sync(ctx context.Context) (again bool, _ error) {
	versions, err := q.objects.Range(q.res.Table(), "")
	if err != nil {
		return false, fmt.Errorf("list resource quotas: %w", err)
	}
	seen := make(map[string]shownQuota, len(versions))
	recharged, overdue := map[string]bool{}, false
	wanted := map[schema.GroupResource]bool{}
	for _, v := range versions {
		namespace, name := objects.SplitKey(q.res, v.Key)
		if q.overdue && !recharged[namespace] {
			recharged[namespace] = true
			err := q.recharge(ctx, namespace)
			if ctx.Err() != nil {
				return false, context.Cause(ctx)
			}
			if err != nil {
				again, overdue = true, true
				q.reports.failed("cannot count what is in a namespace, retrying", "namespace", namespace, "err", err)
			}
		}
		was, ok := q.shown[v.Key]
		bounds := was.bounds
		if !ok || was.version != v {
			if bounds, err = q.bounds(v); err != nil {
				again = true
				q.reports.failed("cannot read a resource quota, retrying", "namespace", namespace, "name", name, "err", err)
				continue
			}
		}
		for _, gr := range bounds {
			wanted[gr] = true
		}
		used := q.used(v.Key, namespace, bounds)
		if !ok || was.version != v || !slices.Equal(was.used, used) {
			if err := q.show(ctx, namespace, name); err != nil {
				if ctx.Err() != nil {
					return false, context.Cause(ctx)
				}
				again = true
				q.reports.failed("cannot update the status of a resource quota, retrying", "namespace", namespace, "name", name, "err", err)
				continue
			}
		}
		seen[v.Key] = shownQuota{v, used, bounds}
	}
	q.outside.want(wanted)
	q.shown, q.overdue = seen, overdue
	return again, nil
}

// bounds are what bounded says of a version of a quota.
func (q *quotaSync) bounds(v *mvcc.Version) ([]schema.GroupResource, error) {
	if q.outside == nil {
		return nil, nil
	}
	obj, err := codec.DecodeStored(q.res, v)
	if err != nil {
		return nil, fmt.Errorf("read resource quota %s: %w", v.Key, err)
	}
	return bounded(tree.As(obj["spec"])), nil
}

// used is what is used of the bounds of a quota.
func (q *quotaSync) used(key, namespace string, bounds []schema.GroupResource) []mvcc.BoundUse {
	used, _ := q.objects.Storage.State().Usage(q.res.Table(), key)
	return q.outside.add(namespace, bounds, used)
}

// show writes the status of a quota if it says something else than the state machine.
func (q *quotaSync) show(ctx context.Context, namespace, name string) error {
	_, err := q.writeStatus(ctx, q.res, "status", namespace, name, func(cur *mvcc.Version, obj, _ tree.Object) (changed bool, _ error) {
		status := quota.Status(obj, q.used(cur.Key, namespace, bounded(tree.As(obj["spec"]))))
		if status == nil {
			return false, nil
		}
		obj["status"] = status
		return true, nil
	})
	return err
}

// recharge writes Pods again that should have ended by now: they use less then. It looks at
// what is being deleted every overduePeriod.
func (q *quotaSync) recharge(ctx context.Context, namespace string) error {
	res := q.objects.Kinds().Lookup(quota.Pods.WithVersion("v1"))
	if res == nil {
		return nil
	}
	versions, err := q.objects.Match(res.Table(), mvcc.Query{Prefix: namespace + "/", Match: func(v *mvcc.Version) bool {
		return v.Flags&proto.FlagTerminating != 0
	}})
	if err != nil {
		return err
	}
	for _, v := range versions {
		namespace, name := objects.SplitKey(res, v.Key)
		if err := q.objects.System(ctx, res, namespace, name, "update").Recharge(); err != nil {
			return fmt.Errorf("%s %s: %w", res.Plural, v.Key, err)
		}
	}
	return nil
}
