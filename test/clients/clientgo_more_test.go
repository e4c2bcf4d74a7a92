package clients

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/test"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
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
				test.Await(t, within, "an informer has synced", func() string {
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
		test.Await(t, within, fmt.Sprintf("informer %d knows what there is", i), func() string {
			if got := revisions(informer.GetStore().List()); !maps.Equal(got, want) {
				return fmt.Sprintf("%d objects of %d", len(got), len(want))
			}
			return ""
		})
	}
}

// leaderElection lets three candidates, each with a node of its own, elect a leader;
// when the leader gives up, another one leads.
func leaderElection(t *testing.T, s *surroundings) {
	leads := make(chan string, 3)
	stops := map[string]context.CancelFunc{}
	var wg sync.WaitGroup
	for i, n := range s.c.Nodes() {
		name := fmt.Sprintf("candidate-%d", i)
		lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, s.ns, "lock", resourcelock.ResourceLockConfig{Identity: name}, n.Config(), 5*time.Second)
		noError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: 6 * time.Second, RenewDeadline: 4 * time.Second, RetryPeriod: 200 * time.Millisecond, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { leads <- name },
				OnStoppedLeading: func() {},
			},
		})
		noError(t, err)
		stops[name] = cancel
		wg.Go(func() { elector.Run(ctx) })
	}
	defer func() {
		for _, stop := range stops {
			stop()
		}
		wg.Wait()
	}()
	for range s.c.Nodes() {
		select {
		case name := <-leads:
			lease, err := s.typed.CoordinationV1().Leases(s.ns).Get(t.Context(), "lock", metav1.GetOptions{})
			noError(t, err)
			if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != name {
				t.Errorf("%s leads, the lease says %v", name, lease.Spec.HolderIdentity)
			}
			stops[name]()
		case <-time.After(within):
			t.Fatal("nobody leads")
		}
	}
}

// eventRecorders records with both of client-go's recorders; what repeats is one
// Event that counts.
func eventRecorders(t *testing.T, s *surroundings) {
	about, err := s.typed.CoreV1().ConfigMaps(s.ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "about"}}, metav1.CreateOptions{})
	noError(t, err)
	old := record.NewBroadcaster()
	old.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: s.typed.CoreV1().Events("")})
	defer old.Shutdown()
	recorder := old.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "test"})
	for range 3 {
		recorder.Event(about, corev1.EventTypeWarning, "Repeated", "again")
	}
	test.Await(t, within, "an Event counts three", func() string {
		list, err := s.typed.CoreV1().Events(s.ns).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Repeated,involvedObject.name=about"})
		noError(t, err)
		if len(list.Items) != 1 || list.Items[0].Count != 3 {
			return fmt.Sprintf("%d events", len(list.Items))
		}
		return ""
	})

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	newer := events.NewEventBroadcasterAdapterWithContext(ctx, s.typed)
	newer.StartRecordingToSink(ctx.Done())
	defer newer.Shutdown()
	series := newer.NewRecorder("test.example.com/recorder")
	var object runtime.Object = about
	// The client makes a series of what it finds, so the first has to be there.
	for _, want := range []int32{0, 2} {
		series.Eventf(object, nil, corev1.EventTypeNormal, "Series", "Telling", "once more")
		test.Await(t, within, "the Event is there, with its series", func() string {
			list, err := s.typed.EventsV1().Events(s.ns).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Series"})
			noError(t, err)
			if len(list.Items) != 1 {
				return fmt.Sprintf("%d events", len(list.Items))
			}
			if got := list.Items[0].Series; want > 0 && (got == nil || got.Count != want) {
				return fmt.Sprintf("its series is %v", got)
			}
			return ""
		})
	}
}

// applyCalls applies with the typed and the dynamic client.
func applyCalls(t *testing.T, s *surroundings) {
	ctx, client := t.Context(), s.typed.CoreV1().ConfigMaps(s.ns)
	mine := func(value string) *corev1ac.ConfigMapApplyConfiguration {
		return corev1ac.ConfigMap("a", s.ns).WithData(map[string]string{"k": value})
	}
	first, err := client.Apply(ctx, mine("1"), metav1.ApplyOptions{FieldManager: "one"})
	noError(t, err)
	if len(first.ManagedFields) != 1 || first.ManagedFields[0].Manager != "one" || first.ManagedFields[0].Operation != metav1.ManagedFieldsOperationApply {
		t.Errorf("managedFields %+v", first.ManagedFields)
	}
	if _, err := client.Apply(ctx, mine("2"), metav1.ApplyOptions{FieldManager: "two"}); !apierrors.IsConflict(err) {
		t.Errorf("another's field: %v, want a conflict", err)
	}
	got, err := client.Apply(ctx, mine("2"), metav1.ApplyOptions{FieldManager: "two", Force: true})
	noError(t, err)
	if got.Data["k"] != "2" {
		t.Errorf("after force: %v", got.Data)
	}
	extracted, err := corev1ac.ExtractConfigMap(got, "two")
	noError(t, err)
	if extracted.Data["k"] != "2" {
		t.Errorf("extracted %+v", extracted)
	}
}
