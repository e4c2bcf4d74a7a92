package writes

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// goneWithin bounds how long a collection of garbage or of a namespace may take,
// a failover in the middle included.
const goneWithin = 60 * time.Second

// dependents of one owner, as many as a large workload has.
const dependents = 1000

// TestGarbageFailover deletes owners with a thousand dependents: once with the
// leader alive, then in the foreground with the leader killed half way. The next
// leader goes on, and the owner goes last.
func TestGarbageFailover(t *testing.T) {
	c := cluster.Start(t, 3)
	leader := c.Leader(t)
	survivor := c.Others(leader)[0]
	client := survivor.Typed(t)

	owner := createFamily(t, survivor, "background")
	began := time.Now()
	remove(t, client, owner.Name, metav1.DeletePropagationBackground)
	awaitConfigMaps(t, survivor, "background", func(left int) bool { return left == 0 })
	t.Logf("%d dependents were gone %d ms after their owner", dependents, time.Since(began).Milliseconds())

	owner = createFamily(t, survivor, "foreground")
	remove(t, client, owner.Name, metav1.DeletePropagationForeground)
	awaitConfigMaps(t, survivor, "foreground", func(left int) bool { return left < dependents*3/4 })
	if left := countConfigMaps(t, survivor, "foreground", cluster.WithoutRoots); left == 0 {
		t.Log("all was gone before the kill: the failover in the middle was not tried")
	}
	c.Kill(t, leader)
	began = time.Now()
	awaitConfigMaps(t, survivor, "foreground", func(left int) bool { return left == 0 })
	t.Logf("the rest was gone %d ms after the leader was killed", time.Since(began).Milliseconds())

	last := create(t, client, "default", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "last"}})
	deleted := map[string]uint64{}
	for _, e := range survivor.Watch(t, "", owner.ResourceVersion, last.ResourceVersion) {
		if e.Type == "DELETED" {
			deleted[e.Name] = cluster.Revision(t, e.ResourceVersion)
		}
	}
	for i := range dependents {
		name := fmt.Sprintf("foreground-%d", i)
		if at := deleted[name]; at == 0 || at > deleted[owner.Name] {
			t.Fatalf("%s was deleted at %d, its owner at %d", name, at, deleted[owner.Name])
		}
	}
}

func create(t *testing.T, client kubernetes.Interface, namespace string, cm *corev1.ConfigMap) *corev1.ConfigMap {
	t.Helper()
	made, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), cm, metav1.CreateOptions{})
	must.OK(t, err)
	return made
}

// createFamily makes a namespace with the dependents of an owner, which is a
// ConfigMap of the same name in the namespace.
func createFamily(t *testing.T, n *cluster.Node, name string) *corev1.ConfigMap {
	t.Helper()
	cluster.Namespace(t, n, name)
	client := n.Typed(t)
	owner := create(t, client, name, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}})
	yes := true
	ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: &yes}
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := w; i < dependents; i += 16 {
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i), OwnerReferences: []metav1.OwnerReference{ref}}}
				if _, err := client.CoreV1().ConfigMaps(name).Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
					t.Errorf("create a dependent: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	return owner
}

func remove(t *testing.T, client kubernetes.Interface, name string, policy metav1.DeletionPropagation) {
	t.Helper()
	must.OK(t, client.CoreV1().ConfigMaps(name).Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy}))
}

// countConfigMaps is how many a list has, or -1.
func countConfigMaps(t *testing.T, n *cluster.Node, namespace, query string) int {
	t.Helper()
	var list struct{ Items []struct{} }
	b, w, err := n.Get(t, "/api/v1/namespaces/"+namespace+"/configmaps?"+query)
	if err == nil && w.StatusCode != 200 {
		err = fmt.Errorf("%s: %s", w.Status, b)
	}
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	if err != nil {
		return -1 // no leader, for a moment
	}
	return len(list.Items)
}

// awaitConfigMaps waits until few enough are left of those that no controller has written.
func awaitConfigMaps(t *testing.T, n *cluster.Node, namespace string, enough func(left int) bool) {
	t.Helper()
	cluster.Await(t, goneWithin, "the ConfigMaps of "+namespace+" go", func() string {
		if left := countConfigMaps(t, n, namespace, cluster.WithoutRoots); left < 0 || !enough(left) {
			return fmt.Sprint(left, " are there")
		}
		return ""
	})
}
