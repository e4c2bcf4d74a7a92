package clients

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/quorate/quorate/test/harness/cluster"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// informerCalls runs shared, dynamic and metadata informers, with initial events in
// the watch and without, while there are writes: all must know what there is.
func informerCalls(t *testing.T, s *surroundings) {
	write := func(from, to int) {
		for i := from; i < to; i++ {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i)}}
			_, err := s.typed.CoreV1().ConfigMaps(s.ns).Create(t.Context(), cm, metav1.CreateOptions{})
			noError(t, err)
		}
	}
	write(0, 20)
	ctx, cancel := context.WithCancel(context.Background())
	var all []cache.SharedIndexInformer
	var shutdowns []func()
	defer func() {
		cancel()
		for _, shutdown := range shutdowns {
			shutdown()
		}
	}()
	for _, watchList := range []bool{true, false} {
		func() {
			featurestesting.SetFeatureDuringTest(t, features.WatchListClient, watchList)
			shared := informers.NewSharedInformerFactoryWithOptions(kubernetes.NewForConfigOrDie(s.config), 0, informers.WithNamespace(s.ns))
			untyped := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(s.config), 0, s.ns, nil)
			partial := metadatainformer.NewFilteredSharedInformerFactory(metadata.NewForConfigOrDie(s.config), 0, s.ns, nil)
			started := []cache.SharedIndexInformer{
				shared.Core().V1().ConfigMaps().Informer(),
				untyped.ForResource(configMapsGVR).Informer(),
				partial.ForResource(configMapsGVR).Informer(),
			}
			shared.StartWithContext(ctx)
			untyped.Start(ctx.Done())
			partial.Start(ctx.Done())
			shutdowns = append(shutdowns, shared.Shutdown, untyped.Shutdown, partial.Shutdown)
			for _, i := range started {
				cluster.Await(t, within, "an informer has synced", func() string {
					if !i.HasSynced() {
						return "it has not"
					}
					return ""
				})
			}
			all = append(all, started...)
		}()
	}
	write(20, 30)
	noError(t, s.typed.CoreV1().ConfigMaps(s.ns).Delete(t.Context(), "c3", metav1.DeleteOptions{}))
	list, err := s.typed.CoreV1().ConfigMaps(s.ns).List(t.Context(), metav1.ListOptions{})
	noError(t, err)
	want := map[string]string{}
	for _, cm := range list.Items {
		want[cm.Name] = cm.ResourceVersion
	}
	for i, informer := range all {
		cluster.Await(t, within, fmt.Sprintf("informer %d knows what there is", i), func() string {
			if got := revisions(informer.GetStore().List()); !maps.Equal(got, want) {
				return fmt.Sprintf("%d objects of %d", len(got), len(want))
			}
			return ""
		})
	}
}
