package discovery

import (
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
	v2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

var update = flag.Bool("update", false, "rewrite testdata")

const acceptV2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// small is a registry in which every property of the documents occurs.
func small() *kinds.Registry {
	all := []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	return kinds.NewRegistry([]*kinds.Resource{
		{Version: "v1", Kind: "Pod", Plural: "pods", Singular: "pod", ShortNames: []string{"po"}, Categories: []string{"all"}, Namespaced: true,
			Verbs: []string{"watch", "update", "patch", "list", "get", "deletecollection", "delete", "create"},
			Subresources: []kinds.Subresource{
				{Name: "status", Verbs: []string{"update", "get", "patch"}},
				{Name: "eviction", Kind: "Eviction", Group: "policy", Version: "v1", Verbs: []string{"create"}},
			}},
		{Version: "v1", Kind: "Node", Plural: "nodes", Singular: "node", Verbs: all},
		{Group: "apps", Version: "v1", Kind: "Deployment", Plural: "deployments", Singular: "deployment", Namespaced: true, Verbs: all,
			Subresources: []kinds.Subresource{{Name: "scale", Kind: "Scale", Group: "autoscaling", Version: "v1", Verbs: []string{"get"}}}},
		{Group: "autoscaling", Version: "v1", Kind: "HorizontalPodAutoscaler", Plural: "horizontalpodautoscalers", Singular: "horizontalpodautoscaler", Namespaced: true, Verbs: all},
		{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler", Plural: "horizontalpodautoscalers", Singular: "horizontalpodautoscaler", Namespaced: true, Verbs: all,
			StorageGroup: "autoscaling", StorageVersion: "v1"},
		{Group: "authorization.k8s.io", Version: "v1", Kind: "SelfSubjectAccessReview", Plural: "selfsubjectaccessreviews", Singular: "selfsubjectaccessreview", Verbs: []string{"create"}, Virtual: true},
		{Group: "a.example.com", Version: "v1beta1", Kind: "Thing", Plural: "things", Singular: "thing", Namespaced: true, Verbs: all, Custom: true},
		{Group: "a.example.com", Version: "v1", Kind: "Thing", Plural: "things", Singular: "thing", Namespaced: true, Verbs: all, Custom: true},
	})
}

func get(h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "192.0.2.1:6443"
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func handlerOf(r *kinds.Registry) *Handler { return New(func() *kinds.Registry { return r }) }

func TestDocuments(t *testing.T) {
	h := handlerOf(small())
	for _, c := range []struct{ name, path, accept string }{
		{"api", "/api", ""},
		{"api_v1", "/api/v1", ""},
		{"apis", "/apis", "application/json"},
		{"apis_apps", "/apis/apps", "*/*"},
		{"apis_apps_v1", "/apis/apps/v1/", ""},
		{"apis_autoscaling", "/apis/autoscaling", ""},
		{"apis_autoscaling_v2", "/apis/autoscaling/v2", ""},
		{"apis_authorization", "/apis/authorization.k8s.io/v1", ""},
		{"aggregated_api", "/api", acceptV2},
		{"aggregated_apis", "/apis", acceptV2},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := get(h, c.path, "Accept", c.accept)
			if w.Code != 200 {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			var tree any
			must.OK(t, json.Unmarshal(w.Body.Bytes(), &tree))
			got, err := json.MarshalIndent(tree, "", "  ")
			must.OK(t, err)
			file := filepath.Join("testdata", c.name+".json")
			if *update {
				must.OK(t, os.WriteFile(file, append(got, '\n'), 0o644))
			}
			want, err := os.ReadFile(file)
			must.OK(t, err)
			if string(got)+"\n" != string(want) {
				t.Errorf("differs from %s:\n%s", file, got)
			}
		})
	}
}

func TestNegotiation(t *testing.T) {
	h := handlerOf(small())
	const pb = "application/vnd.kubernetes.protobuf"
	for _, c := range []struct{ path, accept, contentType string }{
		{"/apis", "", "application/json"},
		{"/apis", "application/yaml", "application/yaml"},
		{"/apis", pb, pb},
		{"/apis", acceptV2, acceptV2},
		{"/apis", "application/vnd.kubernetes.protobuf;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io", pb + ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"},
		// What kubectl sends.
		{"/apis", acceptV2 + ",application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json", acceptV2},
		{"/apis", acceptV2 + ";profile=nopeer", acceptV2},
		// A form that is not served is passed over.
		{"/apis", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json", "application/json"},
		{"/apis/apps", acceptV2 + ",application/json", "application/json"},
		{"/apis", "application/json;q=0.5," + pb, pb},
		{"/apis", "text/html,*/*;q=0.1", "application/json"},
		{"/apis", "text/html", ""},
		{"/apis", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList", ""},
	} {
		w := get(h, c.path, "Accept", c.accept)
		if c.contentType == "" {
			if w.Code != 406 {
				t.Errorf("%s %q: %d, want 406", c.path, c.accept, w.Code)
			}
			continue
		}
		if got := w.Header().Get("Content-Type"); w.Code != 200 || got != c.contentType {
			t.Errorf("%s %q: %d %q, want %q", c.path, c.accept, w.Code, got, c.contentType)
		}
	}
}

func TestAggregatedCaching(t *testing.T) {
	h := handlerOf(small())
	w := get(h, "/apis", "Accept", acceptV2)
	tag := w.Header().Get("ETag")
	if !regexp.MustCompile(`^"[0-9A-F]{128}"$`).MatchString(tag) || w.Header().Get("Vary") != "Accept" || w.Header().Get("Cache-Control") != "public" {
		t.Errorf("%v", w.Header())
	}
	w = get(h, "/apis", "Accept", acceptV2, "If-None-Match", tag)
	if w.Code != 304 || w.Body.Len() > 0 {
		t.Errorf("If-None-Match: %d with %d bytes", w.Code, w.Body.Len())
	}
	// Two nodes agree.
	if other := get(handlerOf(small()), "/apis", "Accept", acceptV2).Header().Get("ETag"); other != tag {
		t.Errorf("another node says %s, this one %s", other, tag)
	}
}

func TestChangeOfRegistry(t *testing.T) {
	current := small()
	h := New(func() *kinds.Registry { return current })
	before := get(h, "/apis", "Accept", acceptV2).Header().Get("ETag")
	if w := get(h, "/apis/b.example.com/v1"); w.Code != 404 || w.Body.String() != "404 page not found\n" {
		t.Errorf("unknown group: %d %q", w.Code, w.Body)
	}
	current = kinds.NewRegistry(append(slices.Clone(current.All()),
		&kinds.Resource{Group: "b.example.com", Version: "v1", Kind: "B", Plural: "bs", Singular: "b", Verbs: []string{"get"}}))
	if w := get(h, "/apis/b.example.com/v1"); w.Code != 200 {
		t.Errorf("new group: %d", w.Code)
	}
	if after := get(h, "/apis", "Accept", acceptV2).Header().Get("ETag"); after == before {
		t.Error("the ETag has not changed")
	}
}

func TestProtobuf(t *testing.T) {
	h := handlerOf(small())
	scheme := runtime.NewScheme()
	must.OK(t, v2.AddToScheme(scheme))
	metav1.AddToGroupVersion(scheme, metav1.Unversioned)
	scheme.AddKnownTypes(metav1.Unversioned, &metav1.APIResourceList{}, &metav1.APIGroupList{})
	s := protobuf.NewSerializer(scheme, scheme)
	w := get(h, "/apis", "Accept", "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	obj, _, err := s.Decode(w.Body.Bytes(), nil, nil)
	must.OK(t, err)
	if list := obj.(*v2.APIGroupDiscoveryList); list.Items[0].Name != "apps" {
		t.Errorf("first group %q", list.Items[0].Name)
	}
	w = get(h, "/apis/apps/v1", "Accept", "application/vnd.kubernetes.protobuf")
	if obj, _, err = s.Decode(w.Body.Bytes(), nil, nil); err != nil {
		t.Fatal(err)
	}
	if list := obj.(*metav1.APIResourceList); list.GroupVersion != "apps/v1" || len(list.APIResources) != 2 {
		t.Errorf("%+v", list)
	}
}

func TestPrettyForPeople(t *testing.T) {
	h := handlerOf(small())
	if body := get(h, "/apis", "User-Agent", "curl/8").Body.String(); !strings.Contains(body, "\n  \"kind\"") {
		t.Errorf("curl: %.60s", body)
	}
	if body := get(h, "/apis?pretty=0", "User-Agent", "curl/8").Body.String(); strings.Contains(body, "\n  ") {
		t.Errorf("pretty=0: %.60s", body)
	}
}

// The built-in resources as client-go sees them.
func TestClientGo(t *testing.T) {
	registry, err := kinds.Builtin()
	must.OK(t, err)
	for name, legacy := range map[string]bool{"aggregated": false, "legacy": true} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(handlerOf(registry))
			defer s.Close()
			plain := discovery.NewDiscoveryClientForConfigOrDie(&rest.Config{Host: s.URL, QPS: 1000, Burst: 1000})
			plain.UseLegacyDiscovery = legacy
			c := memory.NewMemCacheClient(plain)
			_, lists, err := c.ServerGroupsAndResources()
			must.OK(t, err)
			count := 0
			for _, l := range lists {
				for _, r := range l.APIResources {
					if !strings.Contains(r.Name, "/") {
						count++
					}
				}
			}
			if count != len(registry.All()) {
				t.Errorf("client-go sees %d resources, the registry has %d", count, len(registry.All()))
			}
			mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(c), c, nil)
			for short, want := range map[string]string{"po": "/v1/Pod", "events": "/v1/Event", "deploy": "apps/v1/Deployment", "hpa": "autoscaling/v2/HorizontalPodAutoscaler"} {
				gvr, err := mapper.ResourceFor(schema.GroupVersionResource{Resource: short})
				if err != nil {
					t.Errorf("%s: %v", short, err)
					continue
				}
				gvk, err := mapper.KindFor(gvr)
				if got := gvk.Group + "/" + gvk.Version + "/" + gvk.Kind; err != nil || got != want {
					t.Errorf("%s is %s (%v), want %s", short, got, err, want)
				}
			}
		})
	}
}

func TestVersion(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join("..", "..", "..", "go.mod"))
	must.OK(t, err)
	m := regexp.MustCompile(`k8s\.io/api (v0\.(\d+)\.(\S+))`).FindStringSubmatch(string(mod))
	if m == nil || m[1] != fallbackAPI {
		t.Fatalf("go.mod has k8s.io/api %v, fallbackAPI is %s", m, fallbackAPI)
	}
	info := VersionInfo("v0.1.0+dirty")
	if info.Major != "1" || info.Minor != m[2] || info.GitVersion != "v1."+m[2]+"."+m[3]+"+quorate-0.1.0-dirty" {
		t.Errorf("%+v", info)
	}
	s := httptest.NewServer(Version(info))
	defer s.Close()
	got, err := discovery.NewDiscoveryClientForConfigOrDie(&rest.Config{Host: s.URL}).ServerVersion()
	if err != nil || *got != info {
		t.Errorf("client-go reads %+v (%v)", got, err)
	}
	res, err := http.Get(s.URL)
	must.OK(t, err)
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || !strings.HasPrefix(string(body), "{\n  \"major\": \"1\",") {
		t.Errorf("%s %v", body, err)
	}
	for method, code := range map[string]int{http.MethodHead: 200, http.MethodPost: 405, http.MethodTrace: 405, "get": 405} {
		w := httptest.NewRecorder()
		Version(info).ServeHTTP(w, httptest.NewRequest(method, "/version", nil))
		if w.Code != code {
			t.Errorf("%s: %d, want %d", method, w.Code, code)
		}
	}
}

func FuzzNegotiate(f *testing.F) {
	for _, s := range []string{"", "*/*", acceptV2, "application/json;q=2;;", ";=;,", "a/b/c", "application/json;as", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		if format, aggregated, ok := negotiate(accept, false); aggregated || ok && (format < 0 || format >= formats) {
			t.Errorf("%q: %v %v %v", accept, format, aggregated, ok)
		}
	})
}

// The order that upstream publishes, as far as the groups are served.
func TestGroupOrder(t *testing.T) {
	upstream := []string{"apiregistration.k8s.io", "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "autoscaling", "batch",
		"certificates.k8s.io", "networking.k8s.io", "policy", "rbac.authorization.k8s.io", "storage.k8s.io",
		"admissionregistration.k8s.io", "apiextensions.k8s.io", "scheduling.k8s.io", "coordination.k8s.io", "node.k8s.io",
		"discovery.k8s.io", "flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "resource.k8s.io",
		"storagemigration.k8s.io"}
	registry, err := kinds.Builtin()
	must.OK(t, err)
	at := -1
	for _, g := range groupsOf(registry, nil) {
		if g.name == "" || g.name == "quorate.io" { // upstream has no group of ours: it is the last
			continue
		}
		i := slices.Index(upstream, g.name)
		if i <= at {
			t.Errorf("%s comes after %s", g.name, upstream[at])
		}
		at = i
	}
}

// TestBuiltinVersionsFirst: a definition in a group that is built in does not become
// what clients mean when they name no version.
func TestBuiltinVersionsFirst(t *testing.T) {
	all := kinds.NewRegistry([]*kinds.Resource{
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role", Plural: "roles", Verbs: []string{"list"}},
		{Group: "rbac.authorization.k8s.io", Version: "v2", Kind: "Evil", Plural: "roles", Verbs: []string{"list"}, Custom: true},
		{Group: "rbac.authorization.k8s.io", Version: "v1beta1", Kind: "Role", Plural: "roles", Verbs: []string{"list"}},
	})
	var got []string
	for _, gv := range groupsOf(all, nil)[0].versions {
		got = append(got, gv.version)
	}
	if want := []string{"v1", "v1beta1", "v2"}; !slices.Equal(got, want) {
		t.Errorf("versions in the order %v, want %v", got, want)
	}
}
