package controllers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
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
	must.OK(t, e.client.Create(t.Context(), quotasGVR, "default", q))
	e.await("a new quota", e.used("q", "configmaps=0 requests.storage=0 of 3"))
	for i := range 3 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i)}}
		must.OK(t, e.client.Create(t.Context(), corev1.SchemeGroupVersion.WithResource("configmaps"), "default", cm))
	}
	e.await("three ConfigMaps", e.used("q", "configmaps=3 requests.storage=0 of 3"))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{"storage": resource.MustParse("1536Mi")}
	must.OK(t, e.client.Create(t.Context(), corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), "default", claim))
	e.await("a claim", e.used("q", "configmaps=3 requests.storage=1536Mi of 3"))
	written := e.store.State().Table("resourcequotas").Latest()
	e.write(&proto.Write{Table: "t", Key: "k", Op: proto.Op_OP_PUT})
	e.await("another round", e.used("q", "configmaps=3 requests.storage=1536Mi of 3"))
	if now := e.store.State().Table("resourcequotas").Latest(); now != written {
		t.Errorf("the quota was written at %d and, though nothing changed, at %d", written, now)
	}
}

// TestOverduePods: a Pod that should have ended uses nothing any more, though nobody has written it.
func TestOverduePods(t *testing.T) {
	e := newEnv(t, Config{Controllers: []Name{SystemNamespacesController, ResourceQuotaController}})
	value := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"overdue","namespace":"default","uid":"u","resourceVersion":"*","deletionTimestamp":"2020-01-01T00:00:00Z","deletionGracePeriodSeconds":1},` +
		`"spec":{"containers":[{"name":"c","image":"i"}]}}`
	before, after, _ := strings.Cut(value, "*")
	e.write(&proto.Write{
		Table: "pods", Key: "default/overdue", Op: proto.Op_OP_PUT, Value: []byte(before + after), RevisionOffset: uint32(len(before)),
		Flags: proto.FlagTerminating, Usage: &proto.Usage{Amounts: []*proto.Amount{{Name: "pods", Value: 1}}},
	})
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
	q.Spec.Hard = corev1.ResourceList{"pods": resource.MustParse("5")}
	must.OK(t, e.client.Create(t.Context(), quotasGVR, "default", q))
	if used, _ := e.store.State().Usage("resourcequotas", "default/q"); len(used) != 1 || used[0].Used != 1 {
		t.Fatalf("setup: used %+v", used)
	}
	e.run()
	e.await("it is written again", e.used("q", "pods=0 of 1"))
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
