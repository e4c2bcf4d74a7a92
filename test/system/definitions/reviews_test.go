package definitions

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
	"github.com/quorate/quorate/test/harness/kubeapiserver"
)

const countedGroup = "counted.example.com"

// routes are the custom resources of a server, stored in v1, in both of their versions.
type routes struct {
	ctx      context.Context
	t        *testing.T
	hook     *hostHook
	dynamic  dynamic.Interface
	v1, beta dynamic.ResourceInterface
}

// serveRoutes defines them.
func serveRoutes(t *testing.T, ctx context.Context, client dynamic.Interface) *routes {
	t.Helper()
	r := &routes{ctx: ctx, t: t, hook: newHostHook(t, "counted.example.com"), dynamic: client}
	const open = `"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}`
	definition := &unstructured.Unstructured{}
	must.OK(t, definition.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"routes.%[1]s"},
		"spec":{"group":%[1]q,"scope":"Namespaced","names":{"plural":"routes","kind":"Route"},"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],
		"clientConfig":{"url":"https://127.0.0.1:%[2]s/convert","caBundle":%[3]q}}},
		"versions":[{"name":"v1","served":true,"storage":true,%[4]s},{"name":"v1beta1","served":true,"storage":false,%[4]s}]}}`, countedGroup, r.hook.port, r.hook.ca, open)))
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := definitions.Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = definitions.Delete(context.WithoutCancel(ctx), "routes."+countedGroup, metav1.DeleteOptions{})
	})
	gvr := schema.GroupVersionResource{Group: countedGroup, Version: "v1", Resource: "routes"}
	r.v1 = client.Resource(gvr).Namespace("default")
	gvr.Version = "v1beta1"
	r.beta = client.Resource(gvr).Namespace("default")
	for _, version := range []dynamic.ResourceInterface{r.v1, r.beta} {
		cluster.Await(t, 30*time.Second, "the resource", func() string {
			if _, err := version.List(ctx, metav1.ListOptions{}); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	return r
}

func route(version, name, spec string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":"%s/%s","kind":"Route","metadata":{"name":%q},"spec":%s}`, countedGroup, version, name, spec)); err != nil {
		panic(err) // what this file says
	}
	return u
}

// stored creates an object in v1, which needs no webhook.
func (r *routes) stored(name string) {
	r.t.Helper()
	if _, err := r.v1.Create(r.ctx, route("v1", name, `{"host":"one","port":"80"}`), metav1.CreateOptions{FieldManager: "creator"}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *routes) patch(kind types.PatchType, body string, dryRun ...string) func(name string) error {
	return func(name string) error {
		options := metav1.PatchOptions{FieldManager: "patcher", DryRun: dryRun}
		if kind == types.ApplyPatchType {
			force := true
			options.Force = &force
		}
		_, err := r.beta.Patch(r.ctx, name, kind, []byte(body), options)
		return err
	}
}

// counted is a request and how often Quorate may ask the webhook for it.
type counted struct {
	what    string
	reviews int
	do      func(name string) error
	// after is what is done to the object before, besides its creation in v1.
	after func(name string) error
}

func (r *routes) requests() []counted {
	merge := r.patch(types.MergePatchType, `{"spec":{"hostPort":"two:81"}}`)
	mergeAgain := r.patch(types.MergePatchType, `{"spec":{"hostPort":"three:82"}}`)
	configuration := func(spec string) string {
		return fmt.Sprintf(`{"apiVersion":"%s/v1beta1","kind":"Route","spec":%s}`, countedGroup, spec)
	}
	apply := r.patch(types.ApplyPatchType, configuration(`{"hostPort":"two:81"}`))
	get := func(name string) error {
		_, err := r.beta.Get(r.ctx, name, metav1.GetOptions{})
		return err
	}
	return []counted{
		{what: "create", reviews: 2, do: func(name string) error {
			_, err := r.beta.Create(r.ctx, route("v1beta1", name+"-other", `{"hostPort":"one:80"}`), metav1.CreateOptions{FieldManager: "creator"})
			return err
		}},
		{what: "get", reviews: 1, do: get},
		{what: "get, again", reviews: 0, do: get, after: get},
		{what: "list", reviews: 1, do: func(string) error {
			_, err := r.beta.List(r.ctx, metav1.ListOptions{})
			return err
		}},
		{what: "update", reviews: 4, do: func(name string) error {
			u := route("v1beta1", name, `{"hostPort":"two:81"}`)
			u.SetResourceVersion(r.revision(name))
			_, err := r.beta.Update(r.ctx, u, metav1.UpdateOptions{FieldManager: "patcher"})
			return err
		}},
		{what: "merge patch", reviews: 4, do: merge},
		{what: "merge patch, again", reviews: 3, do: mergeAgain, after: merge},
		{what: "merge patch, after one in v1", reviews: 4, do: merge, after: func(name string) error {
			_, err := r.v1.Patch(r.ctx, name, types.MergePatchType, []byte(`{"spec":{"port":"82"}}`), metav1.PatchOptions{FieldManager: "second"})
			return err
		}},
		{what: "merge patch that changes nothing", reviews: 2, do: r.patch(types.MergePatchType, `{"spec":{"hostPort":"one:80"}}`)},
		{what: "merge patch, dry run", reviews: 4, do: r.patch(types.MergePatchType, `{"spec":{"hostPort":"two:81"}}`, metav1.DryRunAll)},
		{what: "JSON patch", reviews: 4, do: r.patch(types.JSONPatchType, `[{"op":"replace","path":"/spec/hostPort","value":"two:81"}]`)},
		{what: "apply", reviews: 4, do: apply},
		{what: "apply, again with another value", reviews: 4, do: r.patch(types.ApplyPatchType, configuration(`{"hostPort":"three:82"}`)), after: apply},
		{what: "apply, again without a field", reviews: 5, do: apply, after: r.patch(types.ApplyPatchType, configuration(`{"hostPort":"two:81","more":"a"}`))},
		{what: "apply that changes nothing", reviews: 2, do: apply, after: apply},
		{what: "delete", reviews: 0, do: func(name string) error { return r.beta.Delete(r.ctx, name, metav1.DeleteOptions{}) }},
	}
}

func (r *routes) revision(name string) string {
	u, err := r.v1.Get(r.ctx, name, metav1.GetOptions{})
	must.OK(r.t, err)
	return u.GetResourceVersion()
}

// reviewsOf are what the webhook is asked for a request. settle returns when nothing more comes.
func (r *routes) reviewsOf(n int, c counted, settle func(*hostHook)) []string {
	r.t.Helper()
	name := fmt.Sprintf("route-%02d", n)
	r.stored(name)
	if c.after != nil {
		if err := c.after(name); err != nil {
			r.t.Fatalf("before %s: %v", c.what, err)
		}
	}
	settle(r.hook)
	r.hook.take()
	if err := c.do(name); err != nil {
		r.t.Fatalf("%s: %v", c.what, err)
	}
	settle(r.hook)
	return r.hook.take()
}

// take are the reviews since the last call.
func (h *hostHook) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.reviews
	h.reviews = nil
	return out
}

// quiet waits until a webhook was not asked for a while: kube-apiserver converts events for its
// watch caches when the request is over.
func (h *hostHook) quiet() {
	for {
		select {
		case <-h.asked:
		case <-time.After(400 * time.Millisecond):
			return
		}
	}
}

// TestReviews: how often a conversion webhook is asked for each kind of request in a version that
// is not stored. With PEERS, the directory of kube-apiserver and etcd, it must not be more often
// than kube-apiserver asks.
func TestReviews(t *testing.T) {
	c := cluster.Shared(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	here := serveRoutes(t, ctx, c.Nodes()[0].Dynamic(t))
	var there *routes
	if programs := os.Getenv("PEERS"); programs != "" {
		k, err := kubeapiserver.Start(ctx, programs, cluster.RunDir(), func(string) ([]string, error) { return nil, nil })
		must.OK(t, err)
		t.Cleanup(func() {
			if err := k.Stop(); err != nil {
				t.Error(err)
			}
		})
		client, err := dynamic.NewForConfigAndClient(&rest.Config{Host: k.URL, QPS: -1}, k.Client)
		must.OK(t, err)
		there = serveRoutes(t, ctx, client)
	}
	requests := here.requests()
	var theirs []counted
	if there != nil {
		theirs = there.requests()
	}
	for i, request := range requests {
		got := here.reviewsOf(i, request, func(*hostHook) {})
		if len(got) != request.reviews {
			t.Errorf("%s: the webhook is asked %d times, not %d: %s", request.what, len(got), request.reviews, strings.Join(got, ", "))
		}
		if there == nil {
			continue
		}
		upstream := there.reviewsOf(i, theirs[i], (*hostHook).quiet)
		t.Logf("%-36s Quorate %d (%s), kube-apiserver %d (%s)", request.what, len(got), strings.Join(got, ", "), len(upstream), strings.Join(upstream, ", "))
		if len(got) > len(upstream) && request.what != "get" && request.what != "list" {
			t.Errorf("%s: Quorate asks %d times, kube-apiserver %d", request.what, len(got), len(upstream))
		}
	}

	// An event of a watch, of a write by anybody: what was converted for the writer is not asked for again.
	w, err := here.beta.Watch(ctx, metav1.ListOptions{ResourceVersion: here.revision("route-01")})
	must.OK(t, err)
	defer w.Stop()
	event := func(name string) {
		t.Helper()
		for e := range w.ResultChan() {
			if o, _ := e.Object.(*unstructured.Unstructured); e.Type == watch.Added && o.GetName() == name {
				return
			}
		}
		t.Fatalf("the watch ends before %s", name)
	}
	here.stored("marker")
	event("marker")
	here.hook.take()
	here.stored("seen")
	event("seen")
	if got := here.hook.take(); !slices.Equal(got, []string{"v1beta1×1"}) {
		t.Errorf("an event of a write in v1: %v", got)
	}
	if _, err := here.beta.Create(ctx, route("v1beta1", "both", `{"hostPort":"one:80"}`), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	event("both")
	if got := here.hook.take(); len(got) != 2 {
		t.Errorf("an event of a write in v1beta1, and the write: %v", got)
	}
}
