package clients

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/quorate/quorate/test/harness/cluster"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// mirror is a reconciler that copies what the manager's cache says about an
// object.
type mirror struct {
	reader client.Reader

	mu    sync.Mutex
	calls int
	seen  map[string]map[string]string // kind, name: resourceVersion
}

// Reconcile implements reconcile.Reconciler. ConfigMaps and Pods have different
// names here.
func (m *mirror) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	for _, k := range written {
		o := k.typed()
		err := m.reader.Get(ctx, req.NamespacedName, o)
		if client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, err
		}
		m.mu.Lock()
		m.calls++
		if apierrors.IsNotFound(err) {
			delete(m.seen[k.resource], req.Name)
		} else {
			m.seen[k.resource][req.Name] = o.GetResourceVersion()
		}
		m.mu.Unlock()
	}
	return reconcile.Result{}, nil
}

func (m *mirror) state() map[string]map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]map[string]string{}
	for k, v := range m.seen {
		out[k] = maps.Clone(v)
	}
	return out
}

// startManager runs a manager with a reconciler on an endpoint until the end of
// the test and waits for the first sync of its cache.
func startManager(t *testing.T, c *cluster.Cluster, name, url string) *informed {
	t.Helper()
	featurestesting.SetFeatureDuringTest(t, features.WatchListClient, true)
	i := &informed{name: name, wire: &wire{}, kinds: map[string]*recorder{}}
	rc := configFor(c, url)
	rc.Wrap(i.wire.wrap)
	skip := true
	mgr, err := ctrl.NewManager(rc, ctrl.Options{
		Metrics:    server.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Controller: config.Controller{SkipNameValidation: &skip},
	})
	if err != nil {
		t.Fatal(err)
	}
	m := &mirror{reader: mgr.GetClient(), seen: map[string]map[string]string{}}
	for _, k := range written {
		m.seen[k.resource] = map[string]string{}
	}
	i.reconciled = m.state
	if err := ctrl.NewControllerManagedBy(mgr).Named("mirror").For(&corev1.ConfigMap{}).
		Watches(&corev1.Pod{}, &handler.EnqueueRequestForObject{}).Complete(m); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	for _, k := range watched {
		informer, err := mgr.GetCache().GetInformer(ctx, k.typed(), cache.BlockUntilSynced(false))
		if err != nil {
			t.Fatal(err)
		}
		i.record(t, k, informer)
		i.kinds[k.resource].store = func() map[string]string { return cached(t, mgr.GetCache(), k) }
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Error(fmt.Errorf("%s: %w", name, err))
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	i.awaitSync(t)
	return i
}

// cached is what a manager's cache has of a kind.
func cached(t *testing.T, c cache.Cache, k kind) map[string]string {
	t.Helper()
	objects := k.list()
	if err := c.List(t.Context(), objects); err != nil {
		t.Fatal(err)
	}
	items, err := meta.ExtractList(objects)
	if err != nil {
		t.Fatal(err)
	}
	return revisions(items)
}
