package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
)

const (
	// recheck is when a server that answers is asked again.
	recheck = 30 * time.Second
	// recheckFirst is when one that does not is; later it waits longer, up to recheck.
	recheckFirst = time.Second
	// maxChecks are the servers that are asked at once.
	maxChecks = 64
)

// availability says in the status of each APIService whether it is available: what the leader finds is what every node says.
type availability struct {
	base
	aggregator *aggregator.Aggregator
	wg         sync.WaitGroup
	places     chan struct{}
	of         map[string]*checked // by name; of the loop
}

func (k *availability) run(ctx context.Context) error {
	k.of, k.places = map[string]*checked{}, make(chan struct{}, maxChecks)
	defer k.wg.Wait()
	return k.onChange(ctx, []string{apiServicesTable}, 0, func() (again bool, _ error) {
		versions, err := k.objects.Range(apiServicesTable, "")
		if err != nil {
			return false, fmt.Errorf("list APIServices: %w", err)
		}
		return k.look(ctx, versions), nil
	})
}

// checked is what was found about an APIService.
type checked struct {
	basis aggregator.Basis
	wait  time.Duration

	mu     sync.Mutex
	due    time.Time
	asking bool
}

// look begins the checks that are due; none keeps another waiting. again: there are servers to ask later.
func (k *availability) look(ctx context.Context, versions []*mvcc.Version) (again bool) {
	remotes := map[string]*aggregator.Remote{}
	for _, r := range k.aggregator.Remotes() {
		remotes[r.Name] = r
	}
	for name := range k.of {
		if remotes[name] == nil {
			delete(k.of, name)
		}
	}
	for _, v := range versions {
		r := remotes[v.Key]
		if r == nil {
			again = k.local(ctx, v) || again
			continue
		}
		again = true
		c, basis := k.of[r.Name], k.aggregator.Basis(r)
		if c == nil {
			c = &checked{}
			k.of[r.Name] = c
		}
		if !c.take(basis) {
			continue
		}
		k.wg.Go(func() {
			select {
			case k.places <- struct{}{}:
			case <-ctx.Done():
				return
			}
			defer func() { <-k.places }()
			k.check(ctx, r, c)
		})
	}
	return again
}

// take reports whether it is to be checked now, and says that it is.
func (c *checked) take(basis aggregator.Basis) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking || basis == c.basis && time.Now().Before(c.due) {
		return false
	}
	if basis != c.basis {
		c.wait = 0
	}
	c.asking, c.basis = true, basis
	return true
}

// done says when to check again.
func (c *checked) done(found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wait = min(recheck, max(recheckFirst, 2*c.wait)); found {
		c.wait = recheck
	}
	c.asking, c.due = false, time.Now().Add(c.wait)
	if found {
		c.wait = 0
	}
}

// check asks a server, and writes what came of it.
func (k *availability) check(ctx context.Context, r *aggregator.Remote, c *checked) {
	condition := k.aggregator.Check(ctx, r)
	if ctx.Err() != nil {
		return
	}
	err := k.setAvailable(ctx, r.Name, r.Spec, condition)
	if err != nil && ctx.Err() == nil {
		k.reports.failed("cannot write the status of an APIService, retrying", "name", r.Name, "err", err)
	}
	c.done(err == nil && condition.Status == apiregistrationv1.ConditionTrue)
}

// local says of one that has no Service, and may have had one, that it is available. It reports whether that
// is to be tried again.
func (k *availability) local(ctx context.Context, v *mvcc.Version) (again bool) {
	var s apiregistrationv1.APIService
	if err := json.Unmarshal(v.Value(), &s); err != nil || s.Spec.Service != nil || helper.IsAPIServiceConditionTrue(&s, apiregistrationv1.Available) {
		return false
	}
	if err := k.setAvailable(ctx, v.Key, s.Spec, helper.NewLocalAvailableAPIServiceCondition()); err != nil && ctx.Err() == nil {
		k.reports.failed("cannot write the status of an APIService, retrying", "name", v.Key, "err", err)
		return true
	}
	return false
}

// setAvailable writes the condition Available of an APIService whose spec is still that.
func (k *availability) setAvailable(ctx context.Context, name string, spec apiregistrationv1.APIServiceSpec, condition apiregistrationv1.APIServiceCondition) error {
	res := k.objects.Kinds().Lookup(apiServicesGVR)
	if res == nil {
		return nil
	}
	var lost string
	changed, err := k.writeStatus(ctx, res, "status", "", name, func(cur *mvcc.Version, obj, _ tree.Object) (changed bool, err error) {
		lost = ""
		var s apiregistrationv1.APIService
		if err := json.Unmarshal(cur.Value(), &s); err != nil {
			return false, fmt.Errorf("decode: %w", err)
		}
		was := s.DeepCopy()
		condition.LastTransitionTime = metav1.NewTime(k.objects.Now())
		helper.SetAPIServiceCondition(&s, condition)
		if !reflect.DeepEqual(s.Spec, spec) || reflect.DeepEqual(s.Status, was.Status) {
			return false, nil
		}
		if helper.IsAPIServiceConditionTrue(was, apiregistrationv1.Available) && condition.Status != apiregistrationv1.ConditionTrue {
			lost = condition.Reason
		}
		obj["status"], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&s.Status)
		return true, err
	})
	if changed && lost != "" {
		k.aggregator.Lost(name, lost)
	}
	return err
}
