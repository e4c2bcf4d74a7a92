package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeproto "k8s.io/kube-openapi/pkg/util/proto"
)

const portModel = "io.k8s.api.core.v1.ContainerPort"

// other is a version of another server, with a document in which a Widget has a field of a type, and a port.
func other(group, kind string, port map[string]any) aggregator.Version {
	definitions := map[string]any{
		"com.example.Widget": map[string]any{"type": "object", "properties": map[string]any{
			"field": map[string]any{"type": kind}, "port": map[string]any{"$ref": refV2 + portModel},
		}},
		portModel: port,
	}
	response := map[string]any{"200": map[string]any{"description": "OK", "schema": map[string]any{"$ref": refV2 + "com.example.Widget"}}}
	doc, err := json.Marshal(map[string]any{
		"swagger": "2.0", "info": map[string]any{"title": "x", "version": "1"},
		"paths": map[string]any{"/apis/" + group + "/v1/widgets": map[string]any{"get": map[string]any{
			"responses": response, "parameters": []any{map[string]any{"$ref": "#/parameters/p"}},
		}}},
		"definitions": definitions,
		"parameters":  map[string]any{"p": map[string]any{"name": "p", "in": "query", "type": kind}},
	})
	if err != nil {
		panic(err) // maps of strings
	}
	return aggregator.Version{GroupVersion: schema.GroupVersion{Group: group, Version: "v1"}, OpenAPIV2: &aggregator.DocumentV2{JSON: doc, Sum: fmt.Sprint(kind, len(port))}}
}

type merged struct {
	Paths map[string]map[string]struct {
		Parameters []map[string]any
		Responses  map[string]struct{ Schema map[string]string }
	}
	Definitions map[string]json.RawMessage
	Parameters  map[string]any
}

// TestV2OfOthers: what other servers say is merged as upstream's library does it, in both formats, and what
// this server says stays what it is, byte by byte where nobody else is.
func TestV2OfOthers(t *testing.T) {
	var asked atomic.Int64
	var few []*kinds.Resource // enough, and quicker
	for _, r := range things(t, 2, "a", &asked).All() {
		if r.Group == "" || r.Custom {
			few = append(few, r)
		}
	}
	registry := kinds.NewRegistry(few)
	var now atomic.Pointer[aggregator.Discovered]
	now.Store(&aggregator.Discovered{})
	h := New(func() *kinds.Registry { return registry }, "v1.36.3", WithOthers(now.Load))
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	read := func(headers ...string) (*http.Response, merged, []byte) {
		t.Helper()
		res, body := get(t, s.URL+"/openapi/v2", "application/json", headers...)
		var m merged
		if res.StatusCode == 200 {
			must.OK(t, json.Unmarshal(body, &m))
		}
		return res, m, body
	}
	alone, own, text := read()
	if h.v2(h.documents()) != h.documents().v2 {
		t.Error("without others it is made again")
	}

	// A definition without kinds that says them: the library would write to a map that is nil.
	same := map[string]any{}
	must.OK(t, json.Unmarshal(own.Definitions[portModel], &same))
	same[gvkX] = []any{map[string]any{"group": "x", "version": "v1", "kind": "ContainerPort"}}
	theirs := map[string]any{"type": "object", "description": "of another server"}
	others := []aggregator.Version{
		other("a.example.com", "string", same), other("b.example.com", "string", same), other("c.example.com", "integer", theirs), other("g1.example.com", "string", same),
	}
	now.Store(&aggregator.Discovered{Versions: others})
	res, all, body := read()
	if tag := res.Header.Get("Etag"); tag == alone.Header.Get("Etag") || tag == "" {
		t.Errorf("the ETag is %s with others", tag)
	}
	widgets := func(group string) string {
		return all.Paths["/apis/"+group+".example.com/v1/widgets"]["get"].Responses["200"].Schema["$ref"]
	}
	if got := []string{widgets("a"), widgets("b"), widgets("c"), widgets("g1")}; !slices.Equal(got, []string{
		refV2 + "com.example.Widget", refV2 + "com.example.Widget", refV2 + "com.example.Widget_v2", refV2 + "com.example.Widget",
	}) {
		t.Errorf("definitions %v", got)
	}
	if p := all.Paths["/apis/c.example.com/v1/widgets"]["get"].Parameters[0]["$ref"]; p != "#/parameters/p_v2" || len(all.Parameters) != 2 {
		t.Errorf("parameter %v of %v", p, all.Parameters)
	}
	for name, d := range own.Definitions {
		if name != "com.example.g1.v1.Thing" && name != "com.example.g1.v1.ThingList" && !bytes.Equal(all.Definitions[name], d) {
			t.Errorf("%s is another one", name)
		}
	}
	if !bytes.Contains(all.Definitions["com.example.Widget_v2"], []byte(refV2+portModel+"_v2")) || !bytes.Contains(all.Definitions[portModel+"_v2"], []byte("of another server")) {
		t.Errorf("%s %s", all.Definitions["com.example.Widget_v2"], all.Definitions[portModel+"_v2"])
	}
	if n := len(all.Definitions) - len(own.Definitions); n != 1 { // two Widgets and a port more, two of g1 less
		t.Errorf("%d definitions more: %v", n, slices.Sorted(maps.Keys(all.Definitions)))
	}
	if all.Paths["/apis/g1.example.com/v1/things"] != nil || all.Paths["/apis/g0.example.com/v1/things"] == nil {
		t.Error("a version of custom resources does not give way to an APIService")
	}
	wanted, err := openapi_v2.ParseDocument(body)
	must.OK(t, err)
	if _, err := kubeproto.NewOpenAPIData(wanted); err != nil {
		t.Errorf("kubectl cannot read it: %v", err)
	}
	_, encoded := get(t, s.URL+"/openapi/v2", "application/"+protobufV2)
	var doc openapi_v2.Document
	if err := proto.Unmarshal(encoded, &doc); err != nil || !proto.Equal(&doc, wanted) {
		t.Errorf("protobuf (%v) and JSON differ", err)
	}

	// The same again: nothing is made. Another document: another ETag.
	before := h.v2(h.documents())
	now.Store(&aggregator.Discovered{Versions: slices.Clone(others)})
	if h.v2(h.documents()) != before {
		t.Error("it is made again though nothing has changed")
	}
	tag := res.Header.Get("Etag")
	if res, _, _ := read("If-None-Match", tag); res.StatusCode != 304 {
		t.Errorf("If-None-Match: %d", res.StatusCode)
	}
	others = slices.Clone(others)
	others[0] = other("a.example.com", "boolean", theirs)
	now.Store(&aggregator.Discovered{Versions: others})
	if res, _, _ := read("If-None-Match", tag); res.StatusCode != 200 || res.Header.Get("Etag") == tag {
		t.Errorf("another document: %d %s", res.StatusCode, res.Header.Get("Etag"))
	}
	// One that cannot be merged is left out, and the rest is there.
	broken := others[1]
	broken.OpenAPIV2 = &aggregator.DocumentV2{JSON: []byte("{{{"), Sum: "broken"}
	now.Store(&aggregator.Discovered{Versions: []aggregator.Version{broken, others[2]}})
	if _, m, _ := read(); m.Paths["/apis/c.example.com/v1/widgets"] == nil || m.Paths["/apis/b.example.com/v1/widgets"] != nil {
		t.Error("a broken document keeps others out")
	}
	now.Store(&aggregator.Discovered{})
	if res, _, body := read(); res.Header.Get("Etag") != alone.Header.Get("Etag") || !bytes.Equal(body, text) {
		t.Error("without others it is not what it was")
	}
}

// TestV2OfOthersOnce: many who ask at once get what is made once.
func TestV2OfOthersOnce(t *testing.T) {
	discovered := &aggregator.Discovered{Versions: []aggregator.Version{other("a.example.com", "string", map[string]any{"type": "object"})}}
	h := New(shared().current, "v1.36.3", WithOthers(func() *aggregator.Discovered { return discovered }))
	own := h.documents()
	var wg sync.WaitGroup
	got := make(chan []byte, 16)
	for range cap(got) {
		wg.Go(func() {
			data, err := h.v2(own).json.plain()
			if err != nil {
				t.Error(err)
				return
			}
			got <- data
		})
	}
	wg.Wait()
	close(got)
	first := <-got
	for data := range got {
		if &data[0] != &first[0] {
			t.Error("it was made twice")
		}
	}
}

// BenchmarkV2OfOthers is what the first request costs after a definition or another server's document
// has changed, this server's parts being made.
func BenchmarkV2OfOthers(b *testing.B) {
	h := shared()
	own := h.documents()
	if _, err := own.v2.protobuf.plain(); err != nil {
		b.Fatal(err)
	}
	o := other("a.example.com", "string", map[string]any{"type": "object"})
	for b.Loop() {
		if _, err := mergedV2(own, []otherV2{{"apis/a.example.com/v1", o.OpenAPIV2}}).protobuf.plain(); err != nil {
			b.Fatal(err)
		}
	}
}
