package controllers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestQuotaStatus: a quota's status shows what is used, follows what is written, and is not
// written when nothing has changed.
func TestQuotaStatus(t *testing.T) {
	e := newEnv(t, Config{Controllers: []Name{SystemNamespacesController, ResourceQuotaController}})
	e.run()
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
	q.Spec.Hard = corev1.ResourceList{"configmaps": resource.MustParse("5"), "requests.storage": resource.MustParse("4Gi"), "storage.example.com/x": resource.MustParse("1")}
	if err := e.client.Create(t.Context(), quotasGVR, "default", q); err != nil {
		t.Fatal(err)
	}
	e.await("a new quota", e.used("q", "configmaps=0 requests.storage=0 of 3"))
	for i := range 3 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i)}}
		if err := e.client.Create(t.Context(), corev1.SchemeGroupVersion.WithResource("configmaps"), "default", cm); err != nil {
			t.Fatal(err)
		}
	}
	e.await("three ConfigMaps", e.used("q", "configmaps=3 requests.storage=0 of 3"))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{"storage": resource.MustParse("1536Mi")}
	if err := e.client.Create(t.Context(), corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), "default", claim); err != nil {
		t.Fatal(err)
	}
	e.await("a claim", e.used("q", "configmaps=3 requests.storage=1536Mi of 3"))
	written := e.store.State().Table("resourcequotas").Latest()
	e.write(&proto.Write{Table: "t", Key: "k", Op: proto.Op_OP_PUT})
	e.await("another round", e.used("q", "configmaps=3 requests.storage=1536Mi of 3"))
	if now := e.store.State().Table("resourcequotas").Latest(); now != written {
		t.Errorf("the quota was written at %d and, though nothing changed, at %d", written, now)
	}
}

// TestUncountedObjects: what a release before has written, a quota and objects, is counted once
// the controller has seen it.
func TestUncountedObjects(t *testing.T) {
	e := newEnv(t, Config{Controllers: []Name{SystemNamespacesController, ResourceQuotaController}})
	for key, value := range map[string]string{
		"resourcequotas default/old": `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"old","namespace":"default","uid":"u","resourceVersion":"*"},"spec":{"hard":{"pods":"5"}},"status":{"hard":{"pods":"5"},"used":{"pods":"0"}}}`,
		"pods default/old":           `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"old","namespace":"default","uid":"u","resourceVersion":"*"},"spec":{"containers":[{"name":"c","image":"i"}]}}`,
		"pods default/overdue": `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"overdue","namespace":"default","uid":"u","resourceVersion":"*","deletionTimestamp":"2020-01-01T00:00:00Z","deletionGracePeriodSeconds":1},` +
			`"spec":{"containers":[{"name":"c","image":"i"}]}}`,
	} {
		var table, name string
		if _, err := fmt.Sscan(key, &table, &name); err != nil {
			t.Fatal(err)
		}
		before, after, _ := strings.Cut(value, "*")
		e.write(&proto.Write{Table: table, Key: name, Op: proto.Op_OP_PUT, Value: []byte(before + after), RevisionOffset: uint32(len(before))})
	}
	e.run()
	e.await("what was there", e.used("old", "pods=1 of 1"))
}

// TestLimitsSpokenLater: a quota and objects that were written while the cluster spoke of no
// limits yet are counted as soon as it does, though nothing is written then.
func TestLimitsSpokenLater(t *testing.T) {
	e := newEnvSpeaking(t, Config{Controllers: []Name{SystemNamespacesController, ResourceQuotaController}}, mvcc.FeatureOfLimits-1)
	e.run()
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
	q.Spec.Hard = corev1.ResourceList{"configmaps": resource.MustParse("5"), "pods": resource.MustParse("5")}
	if err := e.client.Create(t.Context(), quotasGVR, "default", q); err != nil {
		t.Fatal(err)
	}
	e.await("a quota that nothing is counted for", e.used("q", "of 2"))
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	if err := e.client.Create(t.Context(), corev1.SchemeGroupVersion.WithResource("configmaps"), "default", cm); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	if err := e.client.Create(t.Context(), corev1.SchemeGroupVersion.WithResource("pods"), "default", pod); err != nil {
		t.Fatal(err)
	}
	if err := e.store.RaiseFeature(t.Context(), mvcc.FeatureVersion); err != nil {
		t.Fatal(err)
	}
	e.await("what was there", e.used("q", "configmaps=1 pods=1 of 2"))
}

// used says how the status of a quota differs from what is wanted: what is used, and how many
// bounds it shows.
func (e *env) used(name, want string) func() string {
	return func() string {
		var q corev1.ResourceQuota
		if err := e.client.Get(e.t.Context(), quotasGVR, "default", name, &q); err != nil {
			return err.Error()
		}
		got := ""
		for _, r := range []corev1.ResourceName{"configmaps", "pods", "requests.storage", "storage.example.com/x"} {
			if n, ok := q.Status.Used[r]; ok {
				got += fmt.Sprintf("%s=%s ", r, n.String())
			}
		}
		if got += fmt.Sprintf("of %d", len(q.Status.Hard)); got != want {
			return fmt.Sprintf("%s, want %s", got, want)
		}
		return ""
	}
}
