package clientgo

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestInformer runs an informer with WatchList on a follower while the other
// nodes create, change and delete: it starts with one consistent stream and ends
// with exactly what is there.
func TestInformer(t *testing.T) {
	c := cluster.Shared(t)
	leader := c.Leader(t)
	follower := c.Others(leader)[0]
	const (
		ns   = "informer"
		more = 1 // the ConfigMap that a controller has written
	)
	cluster.Namespace(t, leader, ns)
	defer leader.Kubectl(t, "delete", "namespace", ns)
	writers := []kubernetes.Interface{leader.Typed(t), c.Others(leader)[1].Typed(t)}
	write := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i)}}
			if _, err := writers[i%2].CoreV1().ConfigMaps(ns).Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(0, 50)

	client, wire := typedOn(t, follower, "application/vnd.kubernetes.protobuf")
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(ns))
	informer := factory.Core().V1().ConfigMaps().Informer()
	var mu sync.Mutex
	added, deleted := map[string]int{}, map[string]int{}
	name := func(o any) string {
		key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
		return key
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { mu.Lock(); added[name(o)]++; mu.Unlock() },
		DeleteFunc: func(o any) { mu.Lock(); deleted[name(o)]++; mu.Unlock() },
	}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	factory.Start(stop)
	defer factory.Shutdown()
	defer close(stop)
	cluster.Await(t, 15*time.Second, "the informer has synced", func() string {
		if !informer.HasSynced() {
			return "not yet"
		}
		return ""
	})
	if n := len(informer.GetStore().ListKeys()); n != 50+more {
		t.Errorf("after the sync the informer knows %d objects, want %d", n, 50+more)
	}

	write(50, 100)
	for i := range 25 {
		must.OK(t, writers[0].CoreV1().ConfigMaps(ns).Delete(t.Context(), fmt.Sprintf("c%d", i), metav1.DeleteOptions{}))
	}
	if _, err := leader.Dynamic(t).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(ns).Create(t.Context(),
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "dynamic"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	list, err := writers[1].CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{})
	must.OK(t, err)
	for _, cm := range list.Items {
		want[cm.Name] = cm.ResourceVersion
	}
	cluster.Await(t, 15*time.Second, "the informer knows what there is", func() string {
		got := map[string]string{}
		for _, o := range informer.GetStore().List() {
			cm := o.(*corev1.ConfigMap)
			got[cm.Name] = cm.ResourceVersion
		}
		if !maps.Equal(got, want) {
			return fmt.Sprintf("it knows %d objects, there are %d", len(got), len(want))
		}
		return ""
	})
	cluster.Await(t, 10*time.Second, "the informer's handlers were called", func() string {
		mu.Lock()
		defer mu.Unlock()
		if len(added) != 101+more || len(deleted) != 25 {
			return fmt.Sprintf("%d added, %d deleted", len(added), len(deleted))
		}
		return ""
	})
	for _, calls := range []map[string]int{added, deleted} {
		for key, n := range calls {
			if n != 1 {
				t.Errorf("%s was seen %d times", key, n)
			}
		}
	}
	wire.mu.Lock()
	defer wire.mu.Unlock()
	if len(wire.requests) != 1 || !strings.Contains(wire.requests[0], "sendInitialEvents=true") {
		t.Errorf("one stream was to be enough; the informer asked %q", wire.requests)
	}
}
