package objects_test

import (
	"testing"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/objectstest"
	"github.com/quorate/quorate/internal/must"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

// TestClient: the node's own loops write what they have read, and lose races as clients do.
func TestClient(t *testing.T) {
	s := objectstest.NewCase(t, objectstest.Options{})
	c, ctx := objects.NewClient(s.Store.Store), t.Context()
	maps := apischema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"app": "x"}}, Data: map[string]string{"k": "v"}}
	must.OK(t, c.Create(ctx, maps, "default", made))
	if err := c.Create(ctx, maps, "default", made); !apierrors.IsAlreadyExists(err) {
		t.Errorf("created again: %v", err)
	}
	var first, second corev1.ConfigMap
	for _, into := range []*corev1.ConfigMap{&first, &second} {
		if err := c.Get(ctx, maps, "default", "a", into); err != nil || into.Data["k"] != "v" || into.UID == "" {
			t.Fatalf("%v %v", into, err)
		}
	}
	first.Data["k"], second.Data["k"] = "one", "two"
	if err := c.Update(ctx, maps, "default", "a", &first); err != nil {
		t.Errorf("update: %v", err)
	}
	if err := c.Update(ctx, maps, "default", "a", &second); !apierrors.IsConflict(err) {
		t.Errorf("an update of what another has updated: %v", err)
	}
	if got, err := c.Labelled(ctx, maps, "default", "app", "x"); err != nil || len(got) != 1 || got["a"] != first.UID {
		t.Errorf("labelled: %v %v", got, err)
	}
	if got, err := c.Labelled(ctx, maps, "default", "app", "y"); err != nil || len(got) != 0 {
		t.Errorf("labelled otherwise: %v %v", got, err)
	}
	if err := c.Delete(ctx, maps, "default", "a", "other"); !apierrors.IsConflict(err) {
		t.Errorf("a delete of another uid: %v", err)
	}
	if err := c.Delete(ctx, maps, "default", "a", first.UID); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := c.Get(ctx, maps, "default", "a", &first); !apierrors.IsNotFound(err) {
		t.Errorf("read after its delete: %v", err)
	}
	if err := c.Create(ctx, apischema.GroupVersionResource{Version: "v1", Resource: "nothings"}, "default", made); err == nil {
		t.Error("a resource that is not served")
	}
}
