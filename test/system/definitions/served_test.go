package definitions

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestCustomResources is the life of a custom resource through kubectl. Every step
// goes through another node.
func TestCustomResources(t *testing.T) {
	r := &cluster.Round{Cluster: cluster.Shared(t)}
	definition, object := filepath.Join("testdata", "crontab", "definition.yaml"), filepath.Join("testdata", "crontab", "object.yaml")
	has := func(got string, fragments ...string) {
		t.Helper()
		for _, f := range fragments {
			if !strings.Contains(got, f) {
				t.Fatalf("no %q in\n%s", f, got)
			}
		}
	}
	// caughtUp makes sure that each node has what was written through the others: a list is
	// linearizable, and what a node serves follows from the same state.
	caughtUp := func() {
		t.Helper()
		for _, n := range r.Cluster.Nodes() {
			n.MustGet(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
		}
	}
	r.Kubectl(t, "apply", "-f", definition)
	r.Kubectl(t, "wait", "--for=condition=Established", "crd/crontabs.stable.example.com", "--timeout=20s")
	caughtUp()
	has(r.Kubectl(t, "api-resources", "--api-group=stable.example.com"), "crontabs", "ct", "CronTab")
	has(r.Kubectl(t, "explain", "crontab.spec"), "When it runs.", "-required-")
	has(r.Kubectl(t, "apply", "-f", object), "created")
	has(r.Kubectl(t, "apply", "-f", object), "unchanged")
	has(r.Kubectl(t, "get", "ct", "-n", "tabs"), "SPEC", "REPLICAS", "0 2 * * *")
	has(r.Kubectl(t, "get", "tables", "-n", "tabs", "-o", "name"), "crontab.stable.example.com/nightly")
	has(r.Kubectl(t, "scale", "ct/nightly", "-n", "tabs", "--replicas=3"), "scaled")
	has(r.Kubectl(t, "get", "ct/nightly", "-n", "tabs", "-o", "jsonpath={.spec.replicas} {.metadata.generation}"), "3 2")
	if out := r.Try(t, nil, "patch", "ct/nightly", "-n", "tabs", "--type=merge", "-p", `{"spec":{"replicas":11}}`); out.Code == 0 {
		t.Error("more replicas than the schema allows were accepted")
	} else {
		has(out.Stderr, "spec.replicas in body should be less than or equal to 10")
	}
	has(r.Kubectl(t, "apply", "--server-side", "--force-conflicts", "-f", object), "serverside-applied")
	has(r.Kubectl(t, "delete", "-f", definition), "deleted")
	caughtUp()
	if out := r.Try(t, nil, "get", "crontabs", "-A"); out.Code == 0 {
		t.Errorf("a resource is served after its definition was deleted: %s", out.Stdout)
	}
}

// TestEstablishedIsServed: a client that sees on a node that a definition is established
// finds its resource there in discovery and OpenAPI, and can use it.
func TestEstablishedIsServed(t *testing.T) {
	c := cluster.Shared(t)
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	const rounds = 10
	for i := range rounds {
		group := fmt.Sprintf("round%d.example.com", i)
		name := "things." + group
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var wg sync.WaitGroup
		for _, n := range c.Nodes() {
			w, err := n.Dynamic(t).Resource(definitions).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
			must.OK(t, err)
			wg.Go(func() {
				defer w.Stop()
				for e := range w.ResultChan() {
					u, ok := e.Object.(*unstructured.Unstructured)
					if ok && isEstablished(u) {
						servesThings(t, n, group)
						return
					}
				}
				t.Errorf("node %s: the watch ended before the definition was established", n.Name)
			})
		}
		d := &unstructured.Unstructured{}
		must.OK(t, json.Unmarshal([]byte(fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":%q},
			"spec":{"group":%q,"scope":"Cluster","names":{"plural":"things","kind":"Thing"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, name, group)), &d.Object))
		through := c.Nodes()[i%len(c.Nodes())].Dynamic(t).Resource(definitions)
		if _, err := through.Create(ctx, d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if err := through.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		cancel()
	}
}

func isEstablished(u *unstructured.Unstructured) bool {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, x := range list {
		if c, ok := x.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			return true
		}
	}
	return false
}

// servesThings asks a node for everything that shows a resource. It may be called
// from any goroutine.
func servesThings(t *testing.T, n *cluster.Node, group string) {
	for path, fragment := range map[string]string{
		"/apis":                             group,
		"/apis/" + group:                    group + "/v1",
		"/apis/" + group + "/v1":            "things",
		"/openapi/v3":                       "apis/" + group + "/v1",
		"/openapi/v3/apis/" + group + "/v1": "Thing",
		"/apis/" + group + "/v1/things":     "ThingList",
	} {
		body, answer, err := n.Get(t, path)
		if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(body), fragment) {
			t.Errorf("node %s: %s without %s (%v)", n.Name, path, fragment, err)
		}
	}
}
