package clients

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	millNamespace = "mills"
	// registerNamespace has an entry for each mill, which nothing owns.
	registerNamespace = "register"
	millFinalizer     = "operator.example.com/register"
	millOwner         = "mill-operator"
	// ownerIndex finds ConfigMaps by the mill that controls them.
	ownerIndex = "owner"
)

// millReconciler is the operator. Its instances share what it counts.
type millReconciler struct {
	client.Client
	instance string
	counts   *millCounts
}

// millCounts is what the instances of the operator have done.
type millCounts struct {
	mu        sync.Mutex
	active    map[string]int // reconciliations that run, by instance
	together  int            // how often another instance was at work at the same time
	reconcile map[string]int // by instance
	finalized map[string]int // by mill
	errors    map[string]int // by what failed and why
}

func (c *millCounts) begin(instance string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, n := range c.active {
		if other != instance && n > 0 {
			c.together++
		}
	}
	c.active[instance]++
	c.reconcile[instance]++
}

func (c *millCounts) end(instance string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active[instance]--
	if err != nil {
		what := string(apierrors.ReasonForError(err))
		if what == "" {
			what = "no answer"
		}
		text, _, _ := strings.Cut(err.Error(), ":")
		c.errors[text+": "+what]++
	}
}

func (c *millCounts) by(instance string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reconcile[instance]
}

// Reconcile implements reconcile.Reconciler.
func (r *millReconciler) Reconcile(ctx context.Context, req reconcile.Request) (_ reconcile.Result, err error) {
	r.counts.begin(r.instance)
	defer func() { r.counts.end(r.instance, err) }()
	m := &Mill{}
	if err := r.Get(ctx, req.NamespacedName, m); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !m.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, r.finalize(ctx, m)
	}
	if controllerutil.AddFinalizer(m, millFinalizer) {
		if err := r.Update(ctx, m); err != nil {
			return reconcile.Result{}, fmt.Errorf("add the finalizer: %w", err)
		}
	}
	entry := corev1ac.ConfigMap(m.Name, registerNamespace).WithLabels(map[string]string{"mill": m.Name}).WithData(map[string]string{"mill": string(m.UID)})
	if err := r.Apply(ctx, entry, client.FieldOwner(millOwner), client.ForceOwnership); err != nil {
		return reconcile.Result{}, fmt.Errorf("register: %w", err)
	}
	if err := r.stones(ctx, m); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, r.report(ctx, m)
}

// stones applies the children, and deletes those that are too many.
func (r *millReconciler) stones(ctx context.Context, m *Mill) error {
	wanted := map[string]bool{}
	for i := range m.Spec.Stones {
		name := fmt.Sprintf("%s-%d", m.Name, i)
		wanted[name] = true
		stone := corev1ac.ConfigMap(name, m.Namespace).
			WithLabels(map[string]string{"mill": m.Name}).
			WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion(millVersion.String()).WithKind("Mill").
				WithName(m.Name).WithUID(m.UID).WithController(true).WithBlockOwnerDeletion(true)).
			WithData(map[string]string{"flour": m.Spec.Flour})
		if err := r.Apply(ctx, stone, client.FieldOwner(millOwner), client.ForceOwnership); err != nil {
			return fmt.Errorf("apply a stone: %w", err)
		}
	}
	var have corev1.ConfigMapList
	if err := r.List(ctx, &have, client.InNamespace(m.Namespace), client.MatchingFields{ownerIndex: m.Name}); err != nil {
		return fmt.Errorf("list the stones: %w", err)
	}
	for i := range have.Items {
		if !wanted[have.Items[i].Name] {
			if err := client.IgnoreNotFound(r.Delete(ctx, &have.Items[i])); err != nil {
				return fmt.Errorf("delete a stone: %w", err)
			}
		}
	}
	return nil
}

// report writes the status if it is another.
func (r *millReconciler) report(ctx context.Context, m *Mill) error {
	before := m.DeepCopyObject().(*Mill)
	m.Status.ObservedGeneration, m.Status.Stones = m.Generation, m.Spec.Stones
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Grinding", Message: m.Spec.Flour, ObservedGeneration: m.Generation,
	})
	if err := r.Status().Patch(ctx, m, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}

// finalize removes the entry from the register, then the finalizer.
func (r *millReconciler) finalize(ctx context.Context, m *Mill) error {
	if !controllerutil.ContainsFinalizer(m, millFinalizer) {
		return nil
	}
	entry := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: m.Name, Namespace: registerNamespace}}
	if err := client.IgnoreNotFound(r.Delete(ctx, entry)); err != nil {
		return fmt.Errorf("unregister: %w", err)
	}
	r.counts.mu.Lock()
	r.counts.finalized[m.Name]++
	r.counts.mu.Unlock()
	before := m.DeepCopyObject().(*Mill)
	controllerutil.RemoveFinalizer(m, millFinalizer)
	// An old cache must not bring finalizers back.
	if err := r.Patch(ctx, m, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove the finalizer: %w", err)
	}
	return nil
}

// instance is a process of the operator: a manager that is started again when it
// ends because it leads no more.
type instance struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
}

// stop ends the instance as SIGTERM does: it gives up the lease.
func (i *instance) stop() {
	i.cancel()
	<-i.done
}

// startInstance runs an instance until the end of the test or its own.
func startInstance(t *testing.T, rc *rest.Config, name string, counts *millCounts) *instance {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	i := &instance{name: name, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(i.done)
		for ctx.Err() == nil {
			if err := runManager(ctx, rc, name, counts); err != nil && ctx.Err() == nil {
				t.Logf("instance %s: %v", name, err)
			}
		}
	}()
	t.Cleanup(i.stop)
	return i
}

// runManager is main of the operator.
func runManager(ctx context.Context, rc *rest.Config, name string, counts *millCounts) error {
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, millScheme.AddToScheme} {
		if err := add(all); err != nil {
			return err
		}
	}
	skip := true
	lease, renew, retry := 8*time.Second, 6*time.Second, 500*time.Millisecond
	mgr, err := ctrl.NewManager(rest.CopyConfig(rc), ctrl.Options{
		Scheme:                        all,
		Metrics:                       server.Options{BindAddress: "0"},
		LeaderElection:                true,
		LeaderElectionID:              "mill-operator",
		LeaderElectionNamespace:       millNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &lease,
		RenewDeadline:                 &renew,
		RetryPeriod:                   &retry,
		Cache:                         cache.Options{DefaultNamespaces: map[string]cache.Config{millNamespace: {}}},
		Controller:                    config.Controller{SkipNameValidation: &skip},
	})
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.ConfigMap{}, ownerIndex, func(o client.Object) []string {
		if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == "Mill" {
			return []string{owner.Name}
		}
		return nil
	}); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	r := &millReconciler{Client: mgr.GetClient(), instance: name, counts: counts}
	if err := ctrl.NewControllerManagedBy(mgr).
		For(&Mill{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&corev1.ConfigMap{}, builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r); err != nil {
		return fmt.Errorf("make the controller: %w", err)
	}
	return mgr.Start(ctx)
}
