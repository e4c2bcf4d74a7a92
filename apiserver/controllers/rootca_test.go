package controllers

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestRoots: every namespace has the roots of the API, also after somebody has changed or
// deleted them; what else is in the ConfigMap's metadata is left alone.
func TestRoots(t *testing.T) {
	e := newEnv(t, Config{Controllers: []Name{RootCAController}, Roots: []byte("one\n")})
	e.run()
	want := map[string]string{"ca.crt": "one\n"}
	for _, ns := range systemNamespaces {
		e.awaitRoots(ns, want)
	}
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: objects.NamespacesTable}
	ns := &corev1.Namespace{}
	ns.Name = "later"
	must.OK(t, e.client.Create(t.Context(), namespaces, "", ns))
	has := e.awaitRoots("later", want)
	if text := has.Annotations[rootsAbout]; !strings.HasPrefix(text, "Contains a CA bundle ") {
		t.Errorf("it says about itself: %q", text)
	}

	has.Data, has.Labels = map[string]string{"ca.crt": "mine", "more": "x"}, map[string]string{"of": "mine"}
	has.Annotations = map[string]string{rootsAbout: "mine"}
	must.OK(t, e.client.Update(t.Context(), mapsGVR, "later", rootsName, &has))
	has = e.awaitRoots("later", want)
	if has.Labels["of"] != "mine" || has.Annotations[rootsAbout] != rootsText {
		t.Errorf("repaired, its metadata are %v", has.ObjectMeta)
	}
	has.Annotations = nil
	must.OK(t, e.client.Update(t.Context(), mapsGVR, "later", rootsName, &has))
	e.await("the annotation comes back", func() string {
		if got := e.roots("later"); got.Annotations[rootsAbout] != rootsText {
			return fmt.Sprint(got.Annotations)
		}
		return ""
	})
	must.OK(t, e.client.Delete(t.Context(), mapsGVR, "later", rootsName, has.UID))
	e.awaitRoots("later", want)
}

// TestRootsRotate: the next node that leads has other roots, and all namespaces get them.
func TestRootsRotate(t *testing.T) {
	e := newEnv(t, Config{Controllers: []Name{RootCAController}, Roots: []byte("old\n")})
	e.run()
	e.awaitRoots("default", map[string]string{"ca.crt": "old\n"})
	cfg := e.manager.cfg
	cfg.Roots = []byte("new\nold\n")
	next := &env{base: e.base, t: t, store: e.store, client: e.client, manager: NewManager(e.objects, cfg), seen: e.seen}
	e.stop()
	next.run()
	for _, ns := range systemNamespaces {
		next.awaitRoots(ns, map[string]string{"ca.crt": "new\nold\n"})
	}
}

// TestNoRoots: without any, the controller does not run.
func TestNoRoots(t *testing.T) {
	e := newEnv(t, Config{Controllers: []Name{RootCAController}})
	if got := e.manager.enabled(); len(got) != 0 {
		t.Errorf("%d controllers run", len(got))
	}
}

// TestOtherMaps: changes of other ConfigMaps are no reason to look at all namespaces.
func TestOtherMaps(t *testing.T) {
	e := newEnv(t, Config{Roots: []byte("x")})
	p := &rootsPublisher{base: e.base, table: "configmaps"}
	if !p.look() {
		t.Error("nothing to do at first")
	}
	if p.look() {
		t.Error("something to do without a change")
	}
	for _, c := range []struct {
		table, key string
		want       bool
	}{{"configmaps", "a/b", false}, {"configmaps", "b/" + rootsName, true}, {"pods", "c/" + rootsName, false}, {objects.NamespacesTable, "more", true}} {
		e.write(&proto.Write{Op: proto.Op_OP_PUT, Table: c.table, Key: c.key, Value: []byte("{}")})
		if got := p.look(); got != c.want {
			t.Errorf("after a change of %s %s: %t", c.table, c.key, got)
		}
	}
}

// roots is the ConfigMap of a namespace, empty if there is none.
func (e *env) roots(namespace string) (has corev1.ConfigMap) {
	if err := e.client.Get(e.t.Context(), mapsGVR, namespace, rootsName, &has); err != nil && !apierrors.IsNotFound(err) {
		e.t.Fatal(err)
	}
	return has
}

func (e *env) awaitRoots(namespace string, want map[string]string) (has corev1.ConfigMap) {
	e.t.Helper()
	e.await("the roots of "+namespace, func() string {
		if has = e.roots(namespace); !maps.Equal(has.Data, want) {
			return fmt.Sprintf("%v", has.Data)
		}
		return ""
	})
	return has
}
