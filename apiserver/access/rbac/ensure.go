package rbac

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
)

// Objects are the stored objects, through the API and with every permission. The
// errors are Status errors. Safe for concurrent use.
type Objects interface {
	// Get fills into, which is empty. Errors: NotFound.
	Get(ctx context.Context, r schema.GroupVersionResource, namespace, name string, into any) error
	// Create stores a new object. Errors: AlreadyExists.
	Create(ctx context.Context, r schema.GroupVersionResource, namespace string, obj any) error
	// Update replaces an object if it still has obj's resourceVersion. Errors:
	// NotFound, Conflict.
	Update(ctx context.Context, r schema.GroupVersionResource, namespace, name string, obj any) error
	// Delete removes an object if it still has that uid. Errors: NotFound, Conflict.
	Delete(ctx context.Context, r schema.GroupVersionResource, namespace, name string, uid types.UID) error
}

func resource(plural string) schema.GroupVersionResource {
	return rbacv1.SchemeGroupVersion.WithResource(plural)
}

// ClusterRolesTable is where the objects are stored that Aggregate is about.
const ClusterRolesTable = "clusterroles." + rbacv1.GroupName

// atOnce is how many objects are written at the same time: they share the fsyncs of
// the log.
const atOnce = 16

// last is written when everything else is there. It grants nothing that its
// subjects do not have anyway.
const last = "cluster-admin"

// Ensure brings the stored objects up to the policy, as upstream does: what is
// missing is added, what is there beyond it stays, and objects with the annotation
// rbac.authorization.kubernetes.io/autoupdate: "false" are left alone. It tries all
// objects and returns the errors of those that failed.
func Ensure(ctx context.Context, api Objects, p *Policy, log *slog.Logger) error {
	var jobs []func() error
	for _, r := range p.ClusterRoles {
		jobs = append(jobs, func() error {
			return ensureRole(reconciliation.ClusterRoleRuleOwner{ClusterRole: r.DeepCopy()}, clusterRoles{ctx, api}, log)
		})
	}
	for _, r := range p.Roles {
		jobs = append(jobs, func() error {
			return ensureRole(reconciliation.RoleRuleOwner{Role: r.DeepCopy()}, roles{ctx, api}, log)
		})
	}
	for _, b := range p.RoleBindings {
		jobs = append(jobs, func() error {
			return ensureBinding(reconciliation.RoleBindingAdapter{RoleBinding: b.DeepCopy()}, roleBindings{ctx, api}, log)
		})
	}
	var finally []func() error
	for _, b := range p.ClusterRoleBindings {
		job := func() error {
			return ensureBinding(reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: b.DeepCopy()}, clusterRoleBindings{ctx, api}, log)
		}
		if b.Name == last {
			finally = append(finally, job)
		} else {
			jobs = append(jobs, job)
		}
	}
	if err := inParallel(jobs); err != nil {
		return err
	}
	return inParallel(finally)
}

// inParallel does the jobs, atOnce at a time.
func inParallel(jobs []func() error) error {
	var wg sync.WaitGroup
	errs := make([]error, len(jobs))
	tokens := make(chan struct{}, atOnce)
	for i, job := range jobs {
		tokens <- struct{}{}
		wg.Go(func() {
			errs[i] = retried(job)
			<-tokens
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// retried does a job again that somebody else's write came in between of: each node that starts
// makes what is missing.
func retried(job func() error) (err error) {
	for range 5 {
		if err = job(); !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return err
}

func ensureRole(want reconciliation.RuleOwner, client reconciliation.RuleOwnerModifier, log *slog.Logger) error {
	o := reconciliation.ReconcileRoleOptions{Role: want, Confirm: true, Client: client}
	result, err := o.Run()
	if err != nil {
		return fmt.Errorf("ensure role %s: %w", want.GetName(), err)
	}
	if result.Protected && result.Operation != reconciliation.ReconcileNone {
		log.Warn("a role is protected from updates and lacks permissions", "role", want.GetName(), "missing", len(result.MissingRules))
	}
	return nil
}

func ensureBinding(want reconciliation.RoleBinding, client reconciliation.RoleBindingModifier, log *slog.Logger) error {
	o := reconciliation.ReconcileRoleBindingOptions{RoleBinding: want, Confirm: true, Client: client}
	result, err := o.Run()
	if err != nil {
		return fmt.Errorf("ensure binding %s: %w", want.GetName(), err)
	}
	if result.Protected && result.Operation != reconciliation.ReconcileNone {
		log.Warn("a binding is protected from updates and lacks subjects", "binding", want.GetName(), "missing", len(result.MissingSubjects))
	}
	return nil
}

// Ensured reports whether Ensure has once come to its end, as this state shows it.
func (z *Authorizer) Ensured() bool {
	for _, g := range z.Index().grants.get(place{group: true, name: "system:masters"}) {
		if g.binding == last {
			return true
		}
	}
	return false
}
