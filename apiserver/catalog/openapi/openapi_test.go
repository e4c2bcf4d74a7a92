package openapi

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
	"google.golang.org/protobuf/proto"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/spec3"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func builtin(t testing.TB) *kinds.Registry {
	t.Helper()
	r, err := kinds.Builtin()
	must.OK(t, err)
	if len(r.All()) == 0 {
		t.Fatal("no built-in resources")
	}
	return r
}

// shared is one handler for all tests: building is what takes time.
var shared = sync.OnceValue(func() *Handler {
	r, err := kinds.Builtin()
	if err != nil {
		panic(err)
	}
	return New(func() *kinds.Registry { return r }, "v1.36.3")
})

func serveBuiltin(t testing.TB) *httptest.Server {
	t.Helper()
	builtin(t)
	s := httptest.NewServer(shared())
	t.Cleanup(s.Close)
	return s
}

func get(t testing.TB, url, accept string, header ...string) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must.OK(t, err)
	r.Header.Set("Accept", accept)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(r)
	must.OK(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must.OK(t, err)
	return res, body
}

var refPattern = regexp.MustCompile(`"\$ref":"([^"]*)"`)

// checkRefs fails for every reference that the document does not resolve.
func checkRefs(t *testing.T, name string, doc []byte, prefix string, schemas map[string]json.RawMessage) {
	t.Helper()
	matches := refPattern.FindAllSubmatch(doc, -1)
	if len(matches) == 0 {
		t.Errorf("%s: no references at all", name)
	}
	for _, m := range matches {
		model, ok := strings.CutPrefix(string(m[1]), prefix)
		if _, found := schemas[model]; !ok || !found {
			t.Errorf("%s: %s does not resolve", name, m[1])
		}
	}
}

type v3doc struct {
	Paths      map[string]map[string]json.RawMessage
	Components struct{ Schemas map[string]json.RawMessage }
}

func TestEveryDocumentResolvesAndEncodes(t *testing.T) {
	s := serveBuiltin(t)
	res, body := get(t, s.URL+"/openapi/v3", "application/json")
	var root struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal(body, &root); err != nil || res.StatusCode != 200 {
		t.Fatalf("%d %v", res.StatusCode, err)
	}
	if root.Paths["api/v1"].ServerRelativeURL == "" || root.Paths["apis/apps/v1"].ServerRelativeURL == "" {
		t.Fatalf("root: %s", body)
	}
	ids := map[string]string{}
	for name, p := range root.Paths {
		res, doc := get(t, s.URL+p.ServerRelativeURL, "application/json")
		if res.StatusCode != 200 || res.Header.Get("Cache-Control") != "public, immutable" || res.Header.Get("Expires") == "" {
			t.Errorf("%s: %d %v", name, res.StatusCode, res.Header)
		}
		var d v3doc
		if err := json.Unmarshal(doc, &d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(d.Components.Schemas) > 0 { // the keys of tokens are text
			checkRefs(t, name, doc, refV3, d.Components.Schemas)
		}
		checkSiblings(t, name, doc)
		for path, item := range d.Paths {
			for method, raw := range item {
				var o struct{ OperationID string }
				must.OK(t, json.Unmarshal(raw, &o))
				if before, twice := ids[o.OperationID]; twice || o.OperationID == "" {
					t.Errorf("operation id %q: %s %s and %s", o.OperationID, method, path, before)
				}
				ids[o.OperationID] = method + " " + path
			}
		}
		accepts := []string{"application/" + protobufV3}
		if name == "apis/apps/v1" { // one is enough: the bytes are the same, and encoding them is what this test takes its time for
			accepts = append(accepts, "application/"+oldProtobufV3)
		}
		for _, accept := range accepts {
			res, doc := get(t, s.URL+p.ServerRelativeURL, accept)
			if err := proto.Unmarshal(doc, &openapi_v3.Document{}); err != nil || res.Header.Get("Content-Type") != "application/"+protobufV3 {
				t.Errorf("%s %s: %s %v", name, accept, res.Header.Get("Content-Type"), err)
			}
		}
	}
}

// checkSiblings fails if anything stands beside a reference, which OpenAPI v3
// ignores.
func checkSiblings(t *testing.T, name string, doc []byte) {
	t.Helper()
	if i := regexp.MustCompile(`\{"[^{}\[\]]*,"\$ref":|"\$ref":"[^"]*",`).FindIndex(doc); i != nil {
		t.Errorf("%s: something stands beside a reference: %s", name, doc[max(0, i[0]-50):min(len(doc), i[1]+100)])
	}
}

func TestOperations(t *testing.T) {
	s := serveBuiltin(t)
	for _, c := range []struct{ doc, path, method, id, action, gvk, tag string }{
		{"api/v1", "/api/v1/namespaces/{namespace}/pods", "get", "listCoreV1NamespacedPod", "list", "/v1/Pod", "core_v1"},
		{"api/v1", "/api/v1/pods", "get", "listCoreV1PodForAllNamespaces", "list", "/v1/Pod", "core_v1"},
		{"api/v1", "/api/v1/namespaces/{namespace}/pods", "post", "createCoreV1NamespacedPod", "post", "/v1/Pod", "core_v1"},
		{"api/v1", "/api/v1/namespaces/{namespace}/pods", "delete", "deleteCoreV1CollectionNamespacedPod", "deletecollection", "/v1/Pod", "core_v1"},
		{"api/v1", "/api/v1/namespaces/{namespace}/pods/{name}", "patch", "patchCoreV1NamespacedPod", "patch", "/v1/Pod", "core_v1"},
		{"api/v1", "/api/v1/namespaces/{namespace}/pods/{name}/status", "put", "replaceCoreV1NamespacedPodStatus", "put", "/v1/Pod", "core_v1"},
		{"api/v1", "/api/v1/nodes/{name}", "get", "readCoreV1Node", "get", "/v1/Node", "core_v1"},
		{"apis/apps/v1", "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale", "get", "readAppsV1NamespacedDeploymentScale", "get", "autoscaling/v1/Scale", "apps_v1"},
		{"apis/rbac.authorization.k8s.io/v1", "/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}", "put", "replaceRbacAuthorizationV1ClusterRole", "put", "rbac.authorization.k8s.io/v1/ClusterRole", "rbacAuthorization_v1"},
	} {
		_, body := get(t, s.URL+"/openapi/v3/"+c.doc, "application/json")
		var d v3doc
		must.OK(t, json.Unmarshal(body, &d))
		var o struct {
			OperationID string
			Tags        []string
			Action      string                  `json:"x-kubernetes-action"`
			GVK         schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
			RequestBody struct{ Content map[string]any }
		}
		raw, ok := d.Paths[c.path][c.method]
		if !ok {
			t.Errorf("%s %s is missing", c.method, c.path)
			continue
		}
		must.OK(t, json.Unmarshal(raw, &o))
		gvk := fmt.Sprintf("%s/%s/%s", o.GVK.Group, o.GVK.Version, o.GVK.Kind)
		if o.OperationID != c.id || o.Action != c.action || gvk != c.gvk || !slices.Equal(o.Tags, []string{c.tag}) {
			t.Errorf("%s %s: %s %s %s %s", c.method, c.path, o.OperationID, o.Action, gvk, o.Tags)
		}
		if c.method == "patch" && len(o.RequestBody.Content) != 4 {
			t.Errorf("patch types: %v", o.RequestBody.Content)
		}
	}
}

func TestCaching(t *testing.T) {
	s := serveBuiltin(t)
	u := s.URL + "/openapi/v3/apis/apps/v1"
	res, plain := get(t, u, "application/json")
	tag := res.Header.Get("Etag")
	if !regexp.MustCompile(`^"[0-9A-F]{128}"$`).MatchString(tag) || res.Header.Get("Cache-Control") != "" {
		t.Errorf("etag %s, cache %s", tag, res.Header.Get("Cache-Control"))
	}
	if res, body := get(t, u, "application/json", "If-None-Match", tag); res.StatusCode != 304 || len(body) > 0 {
		t.Errorf("If-None-Match: %d", res.StatusCode)
	}
	res, _ = get(t, u+"?hash=WRONG", "application/json")
	if want := "/openapi/v3/apis/apps/v1?hash=" + strings.Trim(tag, `"`); res.StatusCode != 301 || res.Header.Get("Location") != want {
		t.Errorf("wrong hash: %d %s", res.StatusCode, res.Header.Get("Location"))
	}
	res, body := get(t, u, "application/json", "Accept-Encoding", "br, gzip")
	z, err := gzip.NewReader(strings.NewReader(string(body)))
	if err != nil || res.Header.Get("Content-Encoding") != "gzip" {
		t.Fatalf("gzip: %v %v", err, res.Header)
	}
	if unzipped, err := io.ReadAll(z); err != nil || string(unzipped) != string(plain) {
		t.Errorf("gzip holds something else: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	s := serveBuiltin(t)
	for _, c := range []struct {
		path, accept string
		code         int
	}{
		{"/openapi/v3/apis/apps/v1", "text/html", 406},
		{"/openapi/v3/apis/apps/v1", "application/json;q=0", 406},
		{"/openapi/v3/apis/apps/v1", "text/html, */*;q=0.1", 200},
		{"/openapi/v3/apis/nothing/v1", "*/*", 404},
		{"/openapi/v3/metrics", "*/*", 404},
		{"/openapi/v4", "*/*", 404},
		{"/openapi", "*/*", 404},
		{"/openapi/v3", "application/" + protobufV3, 406},
		{"/openapi/v3/", "", 200},
	} {
		if res, _ := get(t, s.URL+c.path, c.accept); res.StatusCode != c.code {
			t.Errorf("%s %q: %d, want %d", c.path, c.accept, res.StatusCode, c.code)
		}
	}
}

func TestV2(t *testing.T) {
	s := serveBuiltin(t)
	_, body := get(t, s.URL+"/openapi/v2", "application/json")
	var d struct {
		Definitions         map[string]json.RawMessage
		SecurityDefinitions map[string]any
		Paths               map[string]map[string]json.RawMessage
	}
	must.OK(t, json.Unmarshal(body, &d))
	checkRefs(t, "v2", body, refV2, d.Definitions)
	if strings.Contains(string(body), `"oneOf":[`) || d.SecurityDefinitions["BearerToken"] == nil {
		t.Error("not in the form of version 2")
	}
	c := discovery.NewDiscoveryClientForConfigOrDie(&rest.Config{Host: s.URL})
	doc, err := c.OpenAPISchema()
	must.OK(t, err)
	for _, gvk := range []schema.GroupVersionKind{{Version: "v1", Kind: "Namespace"}, {Group: "apps", Version: "v1", Kind: "Deployment"}} {
		if !supportsV2(doc, gvk, "fieldValidation") {
			t.Errorf("%s: PATCH does not offer fieldValidation in v2", gvk)
		}
	}
}

// supportsV2 looks for a query parameter of the PATCH of a kind, as kubectl does
// when the server has no version 3.
func supportsV2(doc *openapi_v2.Document, gvk schema.GroupVersionKind, name string) bool {
	for _, path := range doc.GetPaths().GetPath() {
		patch := path.GetValue().GetPatch()
		for _, x := range patch.GetVendorExtension() {
			if x.GetName() != gvkX || !names(x.GetValue().GetYaml(), gvk) {
				continue
			}
			for _, p := range patch.GetParameters() {
				if p.GetParameter().GetNonBodyParameter().GetQueryParameterSubSchema().GetName() == name {
					return true
				}
			}
		}
	}
	return false
}

// names reads the flat YAML of the extension.
func names(yaml string, gvk schema.GroupVersionKind) bool {
	got := map[string]string{}
	for line := range strings.SplitSeq(yaml, "\n") {
		k, v, _ := strings.Cut(line, ":")
		got[strings.TrimSpace(k)] = strings.Trim(strings.TrimSpace(v), `"`)
	}
	return got["group"] == gvk.Group && got["version"] == gvk.Version && got["kind"] == gvk.Kind
}

// Every resource that has a patch verb must offer server-side validation in v3, or
// kubectl falls back to client-side validation.
func TestFieldValidationIsOfferedForEveryKind(t *testing.T) {
	s := serveBuiltin(t)
	root := openapi3.NewRoot(openapi.NewClient(discovery.NewDiscoveryClientForConfigOrDie(&rest.Config{Host: s.URL}).RESTClient()))
	checked := 0
	specs := map[schema.GroupVersion]*spec3.OpenAPI{}
	for _, r := range builtin(t).All() {
		if !r.HasVerb("patch") {
			continue
		}
		gv := r.GroupVersion()
		spec := specs[gv]
		if spec == nil {
			var err error
			if spec, err = root.GVSpec(gv); err != nil {
				t.Fatal(err)
			}
			specs[gv] = spec
		}
		found := false
		for _, p := range spec.Paths.Paths {
			if p.Patch == nil {
				continue
			}
			var gvk schema.GroupVersionKind
			if err := p.Patch.Extensions.GetObject(gvkX, &gvk); err != nil || gvk != r.GVK() {
				continue
			}
			for _, x := range p.Patch.Parameters {
				found = found || x.Name == "fieldValidation" && x.In == "query"
			}
		}
		if !found {
			t.Errorf("%s: PATCH does not offer fieldValidation", r.GVK())
		}
		checked++
	}
	if checked < 20 {
		t.Errorf("only %d resources have patch", checked)
	}
}

// Kinds are found by their extension: those that are served, and the options.
func TestKindsAreNamed(t *testing.T) {
	s := serveBuiltin(t)
	docs := map[string]v3doc{}
	named := func(doc, model string, gvk schema.GroupVersionKind) bool {
		if _, ok := docs[doc]; !ok {
			_, body := get(t, s.URL+"/openapi/v3/"+doc, "application/json")
			var d v3doc
			must.OK(t, json.Unmarshal(body, &d))
			docs[doc] = d
		}
		var x struct {
			GVK []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
		}
		if err := json.Unmarshal(docs[doc].Components.Schemas[model], &x); err != nil {
			return false
		}
		return slices.Contains(x.GVK, gvk)
	}
	for _, r := range builtin(t).All() {
		doc := prefixOf(r.Group, r.Version)[1:]
		if !named(doc, r.Model, r.GVK()) {
			t.Errorf("%s is not named in %s", r.GVK(), r.Model)
		}
		if r.HasVerb("list") && !named(doc, listModel(r), r.GroupVersion().WithKind(r.ListKindName())) {
			t.Errorf("the list of %s is not named", r.GVK())
		}
		if r.HasVerb("delete") && !named(doc, modelDeleteOptions, r.GroupVersion().WithKind("DeleteOptions")) {
			t.Errorf("DeleteOptions is not named in %s", r.GroupVersion())
		}
	}
}

func BenchmarkAllV3(b *testing.B) {
	r := builtin(b)
	for b.Loop() {
		if _, err := newDocuments(r, "v1.36.3", true, nil).root.json.plain(); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzHeaders(f *testing.F) {
	for _, s := range []string{"", "*/*", "gzip;q=0", "br, gzip", "gzip;q=x", "application/json;q=;,", "application/" + oldProtobufV2} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if pb, ok := negotiate(s, oldProtobufV3, protobufV3); pb && (!ok || !strings.Contains(s, "protobuf")) {
			t.Errorf("%q: protobuf that nobody asked for", s)
		}
		if acceptsGzip([]string{s}) && !strings.Contains(s, "gzip") {
			t.Errorf("%q: gzip that nobody asked for", s)
		}
	})
}

// TestParametersAreDescribed: kubectl's contract suite looks for the first two sentences.
func TestParametersAreDescribed(t *testing.T) {
	s := serveBuiltin(t)
	_, document := get(t, s.URL+"/openapi/v2", "application/json")
	for _, sentence := range []string{
		"A selector to restrict the list of returned objects by their labels.",
		"Watch for changes to the described resources and return them as a stream of add, update, and remove notifications.",
		"The duration in seconds before the object should be deleted.",
	} {
		if !strings.Contains(string(document), sentence) {
			t.Errorf("/openapi/v2 does not say %q", sentence)
		}
	}
	for _, list := range [][]param{getParams, writeParams, patchParams, listParams, deleteParams, deleteCollectionParams} {
		for _, p := range list {
			if p.description == "" {
				t.Errorf("%s is not described", p.name)
			}
		}
	}
}
