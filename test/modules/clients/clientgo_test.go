package clients

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/retry"
)

// within bounds the waits of these tests.
const within = 20 * time.Second

// surroundings are a cluster, a namespace of one test's own, and the configuration
// for one of its nodes.
type surroundings struct {
	c      *cluster.Cluster
	ns     string
	config *rest.Config
	typed  kubernetes.Interface
}

// TestClientGo makes the calls of client-go's clients, one after the other on one
// cluster. Each kind of client speaks to another node than the one before.
func TestClientGo(t *testing.T) {
	c := cluster.Start(t, 3)
	for i, x := range []struct {
		name  string
		calls func(*testing.T, *surroundings)
	}{
		{"typed", typedCalls},
		{"dynamic", dynamicCalls},
		{"metadata", metadataCalls},
		{"discovery", discoveryCalls},
		{"mapper", mapperCalls},
		{"every-kind", everyKind},
		{"informers", informerCalls},
		{"leader-election", leaderElection},
		{"events", eventRecorders},
		{"apply", applyCalls},
		{"k9s", k9sCalls},
		{"controller-runtime-client", runtimeClient},
		{"controller-runtime-cache", runtimeCache},
	} {
		t.Run(x.name, func(t *testing.T) {
			n := c.Nodes()[i%len(c.Nodes())]
			config := n.Config()
			s := &surroundings{c: c, ns: "go-" + x.name, config: config, typed: kubernetes.NewForConfigOrDie(config)}
			cluster.Namespace(t, n, s.ns)
			x.calls(t, s)
		})
	}
}

// deployment is one that is valid.
func deployment(name string) *appsv1.Deployment {
	l := map[string]string{"app": name}
	replicas := int32(2)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: l},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: l},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: l},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
}

// must fails the test at an error.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// awaitEvents reads events until they are as wanted: types and names.
func awaitEvents(t *testing.T, w apiwatch.Interface, want ...string) {
	t.Helper()
	defer w.Stop()
	var got []string
	for range want {
		select {
		case e := <-w.ResultChan():
			o, ok := e.Object.(metav1.Object)
			if !ok {
				t.Fatalf("after %q: %s %v", got, e.Type, e.Object)
			}
			got = append(got, fmt.Sprintf("%s %s", e.Type, o.GetName()))
		case <-time.After(within):
			t.Fatalf("no event after %q, want %q", got, want)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

func typedCalls(t *testing.T, s *surroundings) {
	ctx, d := t.Context(), s.typed.AppsV1().Deployments(s.ns)
	must := must[*appsv1.Deployment](t)
	list, err := d.List(ctx, metav1.ListOptions{})
	noError(t, err)
	made := must(d.Create(ctx, deployment("a"), metav1.CreateOptions{}))
	stale := made.DeepCopy()
	*made.Spec.Replicas = 3
	if changed := must(d.Update(ctx, made, metav1.UpdateOptions{})); changed.Generation != 2 {
		t.Errorf("generation %d after an update, want 2", changed.Generation)
	}
	if _, err := d.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of what has changed: %v, want a conflict", err)
	}
	noError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		newest, err := d.Get(ctx, "a", metav1.GetOptions{})
		if err != nil {
			return err
		}
		newest.Annotations = map[string]string{"note": "x"}
		_, err = d.Update(ctx, newest, metav1.UpdateOptions{})
		return err
	}))
	newest := must(d.Get(ctx, "a", metav1.GetOptions{}))
	newest.Status.Replicas, newest.Spec.MinReadySeconds = 3, 7
	if after := must(d.UpdateStatus(ctx, newest, metav1.UpdateOptions{})); after.Status.Replicas != 3 || after.Spec.MinReadySeconds != 0 {
		t.Errorf("an update of the status made %+v", after)
	}
	scale, err := d.GetScale(ctx, "a", metav1.GetOptions{})
	noError(t, err)
	scale.Spec.Replicas = 5
	_, err = d.UpdateScale(ctx, "a", scale, metav1.UpdateOptions{})
	noError(t, err)
	for _, p := range []struct {
		kind types.PatchType
		body string
	}{
		{types.JSONPatchType, `[{"op":"test","path":"/spec/replicas","value":5},{"op":"add","path":"/metadata/labels/json","value":"y"}]`},
		{types.MergePatchType, `{"metadata":{"labels":{"merge":"y"}}}`},
		{types.StrategicMergePatchType, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"other"}]}}}}`},
	} {
		must(d.Patch(ctx, "a", p.kind, []byte(p.body), metav1.PatchOptions{}))
	}
	if l := must(d.Get(ctx, "a", metav1.GetOptions{})).Labels; l["json"] != "y" || l["merge"] != "y" {
		t.Errorf("labels %v after patches", l)
	}
	must(d.Create(ctx, deployment("b"), metav1.CreateOptions{DryRun: []string{"All"}}))
	if _, err := d.Get(ctx, "b", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after a dry run: %v", err)
	}
	must(d.Create(ctx, deployment("b"), metav1.CreateOptions{}))
	noError(t, d.Delete(ctx, "b", *metav1.NewPreconditionDeleteOptions(string(must(d.Get(ctx, "b", metav1.GetOptions{})).UID))))
	noError(t, d.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=a"}))
	w, err := d.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	noError(t, err)
	const changed = "MODIFIED a"
	awaitEvents(t, w, "ADDED a", changed, changed, changed, changed, changed, changed, changed, "ADDED b", "DELETED b", "DELETED a")
}

var configMapsGVR = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// withoutRoots leaves out the ConfigMap that a controller has written.
const withoutRoots = "metadata.name!=" + cluster.RootsName

func dynamicCalls(t *testing.T, s *surroundings) {
	ctx, must := t.Context(), must[*unstructured.Unstructured](t)
	client := dynamic.NewForConfigOrDie(s.config).Resource(configMapsGVR).Namespace(s.ns)
	object := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": name, "labels": map[string]any{"x": "y"}}, "data": map[string]any{"k": "1"}}}
	}
	w, err := client.Watch(ctx, metav1.ListOptions{FieldSelector: withoutRoots})
	noError(t, err)
	made := must(client.Create(ctx, object("a"), metav1.CreateOptions{}))
	noError(t, unstructured.SetNestedField(made.Object, "2", "data", "k"))
	made = must(client.Update(ctx, made, metav1.UpdateOptions{}))
	patched := must(client.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"m":"3"}}`), metav1.PatchOptions{}))
	if data, _, _ := unstructured.NestedStringMap(patched.Object, "data"); data["k"] != "2" || data["m"] != "3" {
		t.Errorf("data %v", data)
	}
	if _, err := client.Update(ctx, made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of what has changed: %v", err)
	}
	list, err := client.List(ctx, metav1.ListOptions{LabelSelector: "x=y"})
	noError(t, err)
	if len(list.Items) != 1 || list.GetKind() != "ConfigMapList" || list.Items[0].GetKind() != "ConfigMap" {
		t.Errorf("the list is %v", list)
	}
	noError(t, client.Delete(ctx, "a", metav1.DeleteOptions{}))
	awaitEvents(t, w, "ADDED a", "MODIFIED a", "MODIFIED a", "DELETED a")
}

func metadataCalls(t *testing.T, s *surroundings) {
	ctx, must := t.Context(), must[*metav1.PartialObjectMetadata](t)
	_, err := s.typed.CoreV1().ConfigMaps(s.ns).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "1"}}, metav1.CreateOptions{})
	noError(t, err)
	client := metadata.NewForConfigOrDie(s.config).Resource(configMapsGVR).Namespace(s.ns)
	got := must(client.Get(ctx, "a", metav1.GetOptions{}))
	if got.UID == "" || got.ResourceVersion == "" {
		t.Errorf("got %+v", got)
	}
	list, err := client.List(ctx, metav1.ListOptions{FieldSelector: withoutRoots})
	noError(t, err)
	if len(list.Items) != 1 || list.ResourceVersion == "" {
		t.Errorf("the list is %+v", list)
	}
	w, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	noError(t, err)
	must(client.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"annotations":{"x":"y"}}}`), metav1.PatchOptions{}))
	noError(t, client.Delete(ctx, "a", metav1.DeleteOptions{}))
	awaitEvents(t, w, "MODIFIED a", "DELETED a")
}

func discoveryCalls(t *testing.T, s *surroundings) {
	client := discovery.NewDiscoveryClientForConfigOrDie(s.config)
	groups, lists, err := client.ServerGroupsAndResources()
	noError(t, err)
	if len(groups) < 15 || len(lists) < len(groups) {
		t.Errorf("%d groups, %d lists of resources", len(groups), len(lists))
	}
	preferred, err := client.ServerPreferredResources()
	noError(t, err)
	// The documents of each group version say the same as the aggregated ones.
	for _, aggregated := range lists {
		alone, err := client.ServerResourcesForGroupVersion(aggregated.GroupVersion)
		noError(t, err)
		if a, b := kindsOf(aggregated), kindsOf(alone); !slices.Equal(a, b) {
			t.Errorf("%s: %v aggregated, %v alone", aggregated.GroupVersion, a, b)
		}
	}
	namespaced, err := client.ServerPreferredNamespacedResources()
	noError(t, err)
	if len(namespaced) == 0 || len(namespaced) >= len(preferred)+1 {
		t.Errorf("%d lists of namespaced resources", len(namespaced))
	}
	version, err := client.ServerVersion()
	noError(t, err)
	if version.Major != "1" || version.Minor != "36" {
		t.Errorf("version %+v", version)
	}
	v2, err := client.OpenAPISchema()
	noError(t, err)
	paths, err := client.OpenAPIV3().Paths()
	noError(t, err)
	for _, name := range []string{"api/v1", "apis/apps/v1"} {
		if paths[name] == nil {
			t.Fatalf("OpenAPI v3 has no %s", name)
		}
		for _, media := range []string{"application/json", "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"} {
			if b, err := paths[name].Schema(media); err != nil || len(b) < 10_000 {
				t.Errorf("%s as %s: %d bytes, %v", name, media, len(b), err)
			}
		}
	}
	if n := len(v2.GetDefinitions().GetAdditionalProperties()); n < 500 {
		t.Errorf("OpenAPI v2 has %d definitions", n)
	}
}

// kindsOf says of each resource what a client needs to use it.
func kindsOf(l *metav1.APIResourceList) (out []string) {
	for _, r := range l.APIResources {
		if strings.Contains(r.Name, "/") {
			r.SingularName = "" // the client invents one for the aggregated documents
		}
		verbs := slices.Sorted(slices.Values([]string(r.Verbs)))
		out = append(out, fmt.Sprintf("%s %s %s %t %v", r.Name, r.SingularName, r.Kind, r.Namespaced, verbs))
	}
	slices.Sort(out)
	return out
}

func mapperCalls(t *testing.T, s *surroundings) {
	cached := memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(s.config))
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
	for _, x := range []struct{ resource, kind string }{
		{"deploy", "apps/v1, Kind=Deployment"}, {"cm", "/v1, Kind=ConfigMap"}, {"pods", "/v1, Kind=Pod"},
		{"ingress", "networking.k8s.io/v1, Kind=Ingress"}, {"hpa", "autoscaling/v2, Kind=HorizontalPodAutoscaler"},
	} {
		gvk, err := mapper.KindFor(schema.GroupVersionResource{Resource: x.resource})
		if err != nil || gvk.String() != x.kind {
			t.Errorf("%s is a %s (%v), want %s", x.resource, gvk, err, x.kind)
		}
	}
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"})
	noError(t, err)
	if mapping.Resource.Resource != "clusterroles" || mapping.Scope.Name() != "root" {
		t.Errorf("ClusterRole is at %s, scope %s", mapping.Resource, mapping.Scope.Name())
	}
	if _, err := mapper.RESTMapping(schema.GroupKind{Group: "none.example.com", Kind: "None"}); err == nil {
		t.Error("a mapping of what there is not")
	}
}

// everyKind lists and watches every resource that discovery says can be, with the
// clients that know no kinds.
func everyKind(t *testing.T, s *surroundings) {
	_, lists, err := discovery.NewDiscoveryClientForConfigOrDie(s.config).ServerGroupsAndResources()
	noError(t, err)
	config := rest.CopyConfig(s.config)
	config.QPS = -1
	client, metadataClient, n := dynamic.NewForConfigOrDie(config), metadata.NewForConfigOrDie(config), 0
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		noError(t, err)
		for _, r := range l.APIResources {
			if !slices.Contains(r.Verbs, "list") {
				continue
			}
			n++
			gvr := gv.WithResource(r.Name)
			list, err := client.Resource(gvr).List(t.Context(), metav1.ListOptions{Limit: 10})
			if err != nil || list.GetKind() != r.Kind+"List" || list.GetAPIVersion() != l.GroupVersion || list.GetResourceVersion() == "" {
				t.Errorf("list %s: %v, kind %s of %s at %q", gvr, err, list.GetKind(), list.GetAPIVersion(), list.GetResourceVersion())
				continue
			}
			if _, err := metadataClient.Resource(gvr).List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Errorf("list the metadata of %s: %v", gvr, err)
			}
			w, err := client.Resource(gvr).Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), AllowWatchBookmarks: true})
			if err != nil {
				t.Errorf("watch %s: %v", gvr, err)
				continue
			}
			w.Stop()
			streamedList(t, client.Resource(gvr), r.Kind)
			if _, err := client.Resource(gvr).Namespace(map[bool]string{true: s.ns}[r.Namespaced]).Get(t.Context(), "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("get what is not there of %s: %v", gvr, err)
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d resources", n)
	}
}

// streamedList reads a list as a watch, to the bookmark of the kind that ends it.
func streamedList(t *testing.T, c dynamic.ResourceInterface, kind string) {
	t.Helper()
	yes := true
	w, err := c.Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true})
	if err != nil {
		t.Errorf("a streaming list of %s: %v", kind, err)
		return
	}
	defer w.Stop()
	for {
		select {
		case e := <-w.ResultChan():
			o, ok := e.Object.(*unstructured.Unstructured)
			if !ok || o.GetKind() != kind || e.Type != apiwatch.Added && e.Type != apiwatch.Bookmark {
				t.Errorf("a streaming list of %s: %+v", kind, e)
				return
			}
			if e.Type == apiwatch.Bookmark && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
				return
			}
		case <-time.After(within):
			t.Errorf("a streaming list of %s has no end", kind)
			return
		}
	}
}
