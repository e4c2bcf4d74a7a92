package builtin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/storage"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/apiserver/wire/request"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/raftstore/mvcc"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	pdbhelper "k8s.io/component-helpers/apps/poddisruptionbudget"
)

var (
	budgetsGVR   = apischema.GroupVersionResource{Group: policyv1.GroupName, Version: "v1", Resource: "poddisruptionbudgets"}
	evictionKind = &kinds.Resource{
		Group: policyv1.GroupName, Version: "v1", Kind: "Eviction", Plural: "evictions", Singular: "eviction",
		Namespaced: true, Model: "io.k8s.api.policy.v1.Eviction",
	}
)

// maxDisrupted bounds the pods that a budget may have let go without its controller
// having noticed.
const maxDisrupted = 2000

// evictionAttempts is how often an eviction is tried again because the pod has changed
// meanwhile.
const evictionAttempts = 20

func checkEviction(o *objects.Op, e *policyv1.Eviction) error {
	if e.Name != o.Info.Name {
		return status.BadRequest("name in URL does not match name in Eviction object")
	}
	if d := e.DeleteOptions; d != nil && d.IgnoreStoreReadErrorWithClusterBreakingPotential != nil && *d.IgnoreStoreReadErrorWithClusterBreakingPotential {
		return status.Invalid(evictionKind.GVK().GroupKind(), o.Info.Name, field.ErrorList{
			field.Invalid(field.NewPath("deleteOptions", "ignoreStoreReadErrorWithClusterBreakingPotential"), true, "can not be set for pod eviction, try after removing the option"),
		})
	}
	_, err := evictionOptions(o, e)
	return err
}

// evictPod serves POST pods/NAME/eviction: a delete that the pod's
// PodDisruptionBudget must allow.
func evictPod(o *objects.Op, e *policyv1.Eviction) (objects.Created, error) {
	options, err := evictionOptions(o, e)
	if err != nil {
		return objects.Created{}, err
	}
	o.Options.DryRun = options.DryRun
	o.Kind.DryRun = o.Options.IsDryRun()
	pods, err := o.Derived(podsGVR, o.Info.Name, "delete")
	if err != nil {
		return objects.Created{}, err
	}
	if err := evict(pods, options); err != nil {
		return objects.Created{}, err
	}
	return objects.Created{}, nil
}

// evictionOptions are the options of the delete. The request's dry run is theirs.
func evictionOptions(o *objects.Op, e *policyv1.Eviction) (*metav1.DeleteOptions, error) {
	options := e.DeleteOptions
	if options == nil {
		options = &metav1.DeleteOptions{}
	}
	switch {
	case len(options.DryRun) == 0:
		options.DryRun = o.Options.DryRun
	case len(o.Options.DryRun) > 0 && !slices.Equal(options.DryRun, o.Options.DryRun):
		return nil, status.BadRequest("Non-matching dry-run options in request and content: %v and %v", o.Options.DryRun, options.DryRun)
	}
	return options, nil
}

// evict deletes the pod that the call names, as soon as its budget allows it.
func evict(o *objects.Op, options *metav1.DeleteOptions) (err error) {
	pinned := options.Preconditions != nil && options.Preconditions.ResourceVersion != nil
	for range evictionAttempts {
		var (
			v   *mvcc.Version
			pod *corev1.Pod
		)
		v, pod, err = evictedPod(o)
		if err != nil {
			return err
		}
		if !ignoresBudget(pod) {
			return evictWithBudget(o, options, v, pod, pinned)
		}
		// A pod that does not run disrupts nothing, unless it becomes one that does.
		if !pinned && pod.Status.Phase == corev1.PodPending && pod.DeletionTimestamp == nil {
			err = disrupt(o, pinnedTo(options, v))
		} else {
			err = disrupt(o, options)
		}
		if pinned || !apierrors.IsConflict(err) {
			return err
		}
	}
	return err
}

func evictedPod(o *objects.Op) (*mvcc.Version, *corev1.Pod, error) {
	v, err := o.Newest(o.Resource.Table(), o.Key())
	if err != nil {
		return nil, nil, err
	}
	if v == nil {
		return nil, nil, o.NotFound()
	}
	pod := new(corev1.Pod)
	return v, pod, objects.Typed(o.Resource, v, pod)
}

func ignoresBudget(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending:
		return true
	}
	return pod.DeletionTimestamp != nil
}

// pinnedTo adds the precondition that the pod is still what was decided on.
func pinnedTo(o *metav1.DeleteOptions, v *mvcc.Version) *metav1.DeleteOptions {
	o = o.DeepCopy()
	if o.Preconditions == nil {
		o.Preconditions = &metav1.Preconditions{}
	}
	rv := v.Revision.String()
	o.Preconditions.ResourceVersion = &rv
	return o
}

func evictWithBudget(o *objects.Op, options *metav1.DeleteOptions, v *mvcc.Version, pod *corev1.Pod, pinned bool) error {
	budgets, err := budgetsOf(o, pod)
	switch {
	case err != nil:
		return err
	case len(budgets) == 0:
		return disrupt(o, options)
	case len(budgets) > 1:
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: 500,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
		}}
	}
	b := budgets[0]
	if unhealthyMayGo(pod, b) {
		err := disrupt(o, pinnedTo(options, v))
		if apierrors.IsConflict(err) && !pinned {
			// It may have become healthy: the client is to ask again.
			return tooManyDisruptions(b.Name)
		}
		return err
	}
	if err := spend(o, b.Name, options); err != nil {
		return err
	}
	return disrupt(o, options)
}

// budgetsOf returns the budgets that select a pod. One without a selector selects
// nothing.
func budgetsOf(o *objects.Op, pod *corev1.Pod) ([]*policyv1.PodDisruptionBudget, error) {
	res := o.Store.Kinds().Lookup(budgetsGVR)
	if res == nil {
		return nil, nil
	}
	versions, err := o.Store.Range(res.Table(), o.Info.ObjectNamespace+"/")
	if err != nil {
		return nil, err
	}
	var out []*policyv1.PodDisruptionBudget
	for _, v := range versions {
		b := new(policyv1.PodDisruptionBudget)
		if err := objects.Typed(res, v, b); err != nil {
			return nil, err
		}
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || selector.Empty() || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		out = append(out, b)
	}
	return out, nil
}

// unhealthyMayGo reports whether a pod does not count for its budget.
func unhealthyMayGo(pod *corev1.Pod, b *policyv1.PodDisruptionBudget) bool {
	for _, x := range pod.Status.Conditions {
		if x.Type == corev1.PodReady && x.Status == corev1.ConditionTrue {
			return false
		}
	}
	if p := b.Spec.UnhealthyPodEvictionPolicy; p != nil && *p == policyv1.AlwaysAllow {
		return true
	}
	return b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0
}

// spend takes one disruption from a budget and notes for whom, on the condition that
// the budget has not changed, and that the delete can be.
func spend(o *objects.Op, name string, options *metav1.DeleteOptions) error {
	budget, err := o.Derived(budgetsGVR, name, "update")
	if err != nil {
		return err
	}
	pod := o.Info.Name
	_, err = budget.GuaranteedUpdate(budget.Key(), func(cur *mvcc.Version) (objects.Change, error) {
		if cur == nil {
			return objects.Change{}, budget.NotFound()
		}
		old, err := codec.DecodeStored(budget.Resource, cur)
		if err != nil {
			return objects.Change{}, err
		}
		b := new(policyv1.PodDisruptionBudget)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(old, b); err != nil {
			return objects.Change{}, err
		}
		if err := allowsDisruption(b); err != nil {
			return objects.Change{}, err
		}
		if err := request.CheckDeleteOptions(options); err != nil {
			return objects.Change{}, storage.Permanent{Err: err}
		}
		b.Status.DisruptionsAllowed--
		if b.Status.DisruptionsAllowed == 0 {
			pdbhelper.UpdateDisruptionAllowedCondition(b)
		}
		if b.Status.DisruptedPods == nil {
			b.Status.DisruptedPods = map[string]metav1.Time{}
		}
		b.Status.DisruptedPods[pod] = metav1.NewTime(o.Store.Now())
		state, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&b.Status)
		if err != nil {
			return objects.Change{}, err
		}
		obj, _, err := tree.WithOwnMeta(old)
		if err != nil {
			return objects.Change{}, err
		}
		obj["status"] = state
		return budget.Replace(cur, obj, old)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return apierrors.NewTimeoutError(fmt.Sprintf("couldn't update PodDisruptionBudget %q due to conflicts", name), 10)
	}
	return err
}

func allowsDisruption(b *policyv1.PodDisruptionBudget) error {
	budgetGR := apischema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudget"}
	switch s := &b.Status; {
	case s.ObservedGeneration < b.Generation:
		return tooManyDisruptions(b.Name)
	case s.DisruptionsAllowed < 0:
		return apierrors.NewForbidden(budgetGR, b.Name, errors.New("pdb disruptions allowed is negative"))
	case len(s.DisruptedPods) > maxDisrupted:
		return apierrors.NewForbidden(budgetGR, b.Name, errors.New("DisruptedPods map too big - too many evictions not confirmed by PDB controller"))
	case s.DisruptionsAllowed == 0:
		return tooMany(0, whyNoneAllowed(b))
	}
	return nil
}

// whyNoneAllowed says why a budget lets no pod go.
func whyNoneAllowed(b *policyv1.PodDisruptionBudget) string {
	c := apimeta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition)
	if c != nil && (c.Status != metav1.ConditionFalse || c.Message == "") {
		c = nil
	}
	switch s := &b.Status; {
	case c != nil && c.Reason == policyv1.SyncFailedReason: // the numbers are not to be trusted then
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %s", b.Name, c.Message)
	case s.CurrentHealthy <= s.DesiredHealthy:
		return fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, s.DesiredHealthy, s.CurrentHealthy)
	case c != nil:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently (%s): %s", b.Name, c.Reason, c.Message)
	}
	return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", b.Name)
}

func tooManyDisruptions(budget string) error {
	return tooMany(10, fmt.Sprintf("The disruption budget %s is still being processed by the server.", budget))
}

// tooMany is the 429 by which kubectl drain knows that it has to wait.
func tooMany(retryAfterSeconds int, why string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retryAfterSeconds)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: why})
	return err
}

// disrupt deletes the pod, and says before why it goes.
func disrupt(o *objects.Op, options *metav1.DeleteOptions) error {
	if err := request.CheckDeleteOptions(options); err != nil {
		return err
	}
	if !o.Options.IsDryRun() {
		w, err := o.GuaranteedUpdate(o.Key(), func(cur *mvcc.Version) (objects.Change, error) {
			if cur == nil {
				return objects.Change{}, o.NotFound()
			}
			if err := o.CheckPreconditions(options, cur); err != nil {
				return objects.Change{}, err
			}
			old, obj, _, err := o.Editable(cur)
			if err != nil {
				return objects.Change{}, err
			}
			state := tree.Clone(obj["status"])
			setPodCondition(o, state, tree.Object{
				"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"})
			obj["status"] = state
			return o.Replace(cur, obj, old)
		})
		if err != nil {
			return err
		}
		if options.Preconditions != nil && options.Preconditions.ResourceVersion != nil {
			options = pinnedTo(options, w.Version)
		}
	}
	_, _, err := o.Delete(options)
	return err
}
