package writes

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestNamespaceUnderWriters deletes a namespace that 16 writers create in, and
// kills the leader meanwhile. Nothing survives, and whatever was acknowledged has
// its deletion event.
func TestNamespaceUnderWriters(t *testing.T) {
	c := cluster.Start(t, 3)
	leader := c.Leader(t)
	survivors := c.Others(leader)
	const doomed = "doomed"
	survivors[0].Kubectl(t, "create", "namespace", doomed)
	marker := create(t, survivors[0].Typed(t), "default", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "marker"}})

	var (
		mu    sync.Mutex
		acked = map[string]string{} // name to resourceVersion
		acks  atomic.Int64
		wg    sync.WaitGroup
	)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for w := range 16 {
		client := survivors[w%2].Typed(t)
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("w%d-%d", w, i)
				cm, err := client.CoreV1().ConfigMaps(doomed).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
				if err == nil {
					mu.Lock()
					acked[name] = cm.ResourceVersion
					mu.Unlock()
					acks.Add(1)
				}
			}
		})
	}
	cluster.Await(t, 20*time.Second, "the writers write", func() string {
		if n := acks.Load(); n < 500 {
			return fmt.Sprint(n, " were acknowledged")
		}
		return ""
	})
	must.OK(t, survivors[0].Typed(t).CoreV1().Namespaces().Delete(t.Context(), doomed, metav1.DeleteOptions{}))
	began := time.Now()
	c.Kill(t, leader)
	cluster.Await(t, goneWithin, "the namespace is gone", func() string {
		_, err := survivors[0].Typed(t).CoreV1().Namespaces().Get(t.Context(), doomed, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprint("it is there: ", err)
	})
	took := time.Since(began)
	cancel()
	wg.Wait()
	last := create(t, survivors[0].Typed(t), "default", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "last"}})
	t.Logf("%d were acknowledged, the namespace was gone %d ms after kill -9 of the leader", len(acked), took.Milliseconds())
	for _, n := range survivors {
		if left := countConfigMaps(t, n, doomed, ""); left != 0 {
			t.Errorf("%s: %d objects have survived their namespace", n.Name, left)
		}
		added, deleted := map[string]string{}, map[string]bool{}
		for _, e := range n.Watch(t, "", marker.ResourceVersion, last.ResourceVersion) {
			switch e.Type {
			case "ADDED":
				added[e.Name] = e.ResourceVersion
			case "DELETED":
				deleted[e.Name] = true
			}
		}
		for name, rv := range acked {
			if added[name] != rv || !deleted[name] {
				t.Fatalf("%s: %s was acknowledged at %s; ADDED at %q, DELETED: %v", n.Name, name, rv, added[name], deleted[name])
			}
		}
	}
}
