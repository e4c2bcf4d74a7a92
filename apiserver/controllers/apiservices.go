package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/quorate/quorate/apiserver/types/crd"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

var (
	apiServicesGVR   = apiregistrationv1.SchemeGroupVersion.WithResource("apiservices")
	apiServicesTable = kinds.BuiltinTable(apiServicesGVR.GroupResource())
)

// automanaged is the label of the APIServices that are kept here. Others are somebody's own.
const (
	automanaged        = "kube-aggregator.kubernetes.io/automanaged"
	managedOnStart     = "onstart" // of what is built in: made what it should be once in a term
	managedContinually = "true"    // of custom resources
)

// apiServiceKeeper keeps an APIService for each version of a group that this server serves itself, by the rules of upstream's
// autoregister controller: a term is to it what the run of a server is there.
type apiServiceKeeper struct {
	base
	definitions *crd.Registry // nil: there are no custom resources
	// atStart are those that were there when the term began, done those that were looked at once:
	// managedOnStart is about the former, and until the latter.
	atStart, done map[string]bool
}

func (k *apiServiceKeeper) run(ctx context.Context) error {
	k.done = map[string]bool{}
	return k.keep(ctx, []string{apiServicesTable, crd.Table}, 0, "cannot keep the APIServices, retrying", k.sync)
}

func (k *apiServiceKeeper) sync(ctx context.Context) error {
	// What is deleted here depends on definitions that are not there.
	if err := k.objects.Confirm(ctx); err != nil {
		return err
	}
	if k.objects.Kinds().Lookup(apiServicesGVR) == nil {
		return nil // the group is switched off
	}
	wanted := k.wanted()
	versions, err := k.objects.Range(apiServicesTable, "")
	if err != nil {
		return fmt.Errorf("list APIServices: %w", err)
	}
	if k.atStart == nil {
		k.atStart = map[string]bool{}
		for _, v := range versions {
			k.atStart[v.Key] = true
		}
	}
	var failed []error
	note := func(name string, err error) {
		if err != nil {
			failed = append(failed, fmt.Errorf("APIService %s: %w", name, err))
			return
		}
		k.done[name] = true
	}
	there := map[string]bool{}
	for _, v := range versions {
		there[v.Key] = true
		note(v.Key, k.check(ctx, v, wanted[v.Key]))
	}
	for name, want := range wanted {
		if there[name] || want.Labels[automanaged] == managedOnStart && k.done[name] {
			continue
		}
		err := k.api.Create(ctx, apiServicesGVR, "", want)
		if apierrors.IsAlreadyExists(err) {
			continue // another one's change wakes this loop again
		}
		note(name, err)
	}
	return errors.Join(failed...)
}

// check makes one that is there what it should be; want is nil if it should not be.
func (k *apiServiceKeeper) check(ctx context.Context, v *mvcc.Version, want *apiregistrationv1.APIService) error {
	label, _ := v.Labels.Get(automanaged)
	once := label == managedOnStart || want != nil && want.Labels[automanaged] == managedOnStart
	switch {
	case label != managedOnStart && label != managedContinually:
		return nil
	case once && k.done[v.Key], label == managedOnStart && !k.atStart[v.Key]:
		return nil
	}
	var has apiregistrationv1.APIService
	if err := json.Unmarshal(v.Value(), &has); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	if has.DeletionTimestamp != nil {
		return nil
	}
	var err error
	switch {
	case want == nil:
		err = k.api.Delete(ctx, apiServicesGVR, "", v.Key, has.UID)
	case !reflect.DeepEqual(has.Spec, want.Spec):
		has.ResourceVersion = v.Revision.String()
		has.Spec = want.Spec
		err = k.api.Update(ctx, apiServicesGVR, "", v.Key, &has)
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // another one's change wakes this loop again
	}
	return err
}

// wanted are those of what this server serves itself, by name.
func (k *apiServiceKeeper) wanted() map[string]*apiregistrationv1.APIService {
	out := map[string]*apiregistrationv1.APIService{}
	add := func(gv apischema.GroupVersion, p apiServicePriority, label string) {
		name := gv.Version + "." + gv.Group
		if out[name] != nil {
			return
		}
		s := &apiregistrationv1.APIService{Spec: apiregistrationv1.APIServiceSpec{
			Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: p.group, VersionPriority: p.version,
		}}
		s.Name, s.Labels = name, map[string]string{automanaged: label}
		out[name] = s
	}
	for _, res := range k.objects.Kinds().All() {
		if p, ok := apiServicePriorities[res.GroupVersion()]; ok && !res.Custom {
			add(res.GroupVersion(), p, managedOnStart)
		}
	}
	if k.definitions == nil {
		return out
	}
	for _, d := range k.definitions.Definitions() {
		for _, v := range d.Spec.Versions {
			if v.Served {
				add(apischema.GroupVersion{Group: d.Spec.Group, Version: v.Name}, customPriority, managedContinually)
			}
		}
	}
	return out
}
