package clients

import (
	"context"
	"fmt"
	"testing"

	"github.com/quorate/quorate/test/harness/cluster"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
)

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
	cluster.Await(t, within, "an Event counts three", func() string {
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
		cluster.Await(t, within, "the Event is there, with its series", func() string {
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
