package codec

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"sigs.k8s.io/yaml"
)

// samples are stored objects and the resources that serve them.
func samples(t testing.TB) map[*kinds.Resource]*mvcc.Version {
	return map[*kinds.Resource]*mvcc.Version{
		pods:       stored(t, pods, readFile(t, "pod.json"), 41),
		configMaps: stored(t, configMaps, readFile(t, "configmap.json"), 42),
		deploys:    stored(t, deploys, readFile(t, "deployment.json"), 43),
		events:     stored(t, events, readFile(t, "event.json"), 44),
	}
}

// upstreamObject is the typed object that upstream would send.
func upstreamObject(t testing.TB, res *kinds.Resource, v *mvcc.Version) runtime.Object {
	t.Helper()
	tree, err := DecodeStored(res, v)
	must.OK(t, err)
	m, err := newMessage(res.GVK())
	must.OK(t, err)
	raw, err := json.Marshal(tree)
	must.OK(t, err)
	must.OK(t, json.Unmarshal(raw, m))
	return m
}

func upstreamProtobuf(t testing.TB, obj runtime.Object) []byte {
	t.Helper()
	var b bytes.Buffer
	must.OK(t, protobuf.NewSerializer(scheme, scheme).Encode(obj, &b))
	return b.Bytes()
}

func TestObjectsInProtobufEqualUpstreams(t *testing.T) {
	for res, v := range samples(t) {
		want := upstreamProtobuf(t, upstreamObject(t, res, v))
		for range 2 { // made, then shared
			w := httptest.NewRecorder()
			must.OK(t, Respond(w, request("/"), Format{MediaType: Protobuf}).Object(200, res, v))
			if !bytes.Equal(w.Body.Bytes(), want) {
				t.Errorf("%s: got %q, upstream %q", res.Kind, w.Body, want)
			}
		}
		back, err := Decode(Protobuf, want, res)
		must.OK(t, err)
		var again bytes.Buffer
		must.OK(t, protobuf.NewSerializer(scheme, scheme).Encode(typedTree(t, res, back.Object), &again))
		if !bytes.Equal(again.Bytes(), want) {
			t.Errorf("%s: a protobuf body lost something: %s", res.Kind, cmp.Diff(string(want), again.String()))
		}
	}
}

func typedTree(t testing.TB, res *kinds.Resource, tree map[string]any) message {
	t.Helper()
	raw, err := json.Marshal(tree)
	must.OK(t, err)
	m, err := typed(res.GVK(), raw)
	must.OK(t, err)
	return m
}

func TestObjectInJSON(t *testing.T) {
	for res, v := range samples(t) {
		w := httptest.NewRecorder()
		must.OK(t, Respond(w, request("/"), Format{MediaType: JSON}).Object(201, res, v))
		prefix := fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":{"name":`, res.Kind, res.GroupVersion())
		if got := w.Body.String(); !strings.HasPrefix(got, prefix) || !strings.HasSuffix(got, "}\n") || w.Code != 201 {
			t.Errorf("%s: %d %s", res.Kind, w.Code, got)
		}
		if !strings.Contains(w.Body.String(), fmt.Sprintf(`"resourceVersion":"%d"`, v.Revision)) {
			t.Errorf("%s: no resourceVersion in %s", res.Kind, w.Body)
		}
		var got map[string]any
		must.OK(t, json.Unmarshal(w.Body.Bytes(), &got))
		var want map[string]any
		file := map[string]string{"Pod": "pod.json", "ConfigMap": "configmap.json", "Deployment": "deployment.json", "Event": "event.json"}[res.Kind]
		must.OK(t, json.Unmarshal([]byte(readFile(t, file)), &want))
		want["metadata"].(map[string]any)["resourceVersion"] = v.Revision.String()
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", res.Kind, d)
		}
	}
}

func TestMovedFieldsAreStoredInTheOtherForm(t *testing.T) {
	v := samples(t)[events]
	for _, want := range []string{`"message":"hello"`, `"involvedObject":{`, `"reportingComponent":`, `"count":2`} {
		if !bytes.Contains(v.Value(), []byte(want)) {
			t.Errorf("%s is not in %s", want, v.Value())
		}
	}
	core := &kinds.Resource{Version: "v1", Kind: "Event", Plural: "events", Namespaced: true}
	w := httptest.NewRecorder()
	must.OK(t, Respond(w, request("/"), Format{MediaType: Protobuf}).Object(200, core, v))
	if want := upstreamProtobuf(t, upstreamObject(t, core, v)); !bytes.Equal(w.Body.Bytes(), want) {
		t.Errorf("core event: got %q want %q", w.Body, want)
	}
}

func TestLists(t *testing.T) {
	remaining := int64(7)
	meta := ListMeta{Revision: 99, Continue: "to<ken", Remaining: remaining}
	listMeta := metav1.ListMeta{ResourceVersion: "99", Continue: "to<ken", RemainingItemCount: &remaining}
	for res, v := range samples(t) {
		for _, n := range []int{0, 1, 300} {
			items := make([]*mvcc.Version, n)
			var objects []runtime.Object
			for i := range items {
				items[i] = v
				objects = append(objects, upstreamObject(t, res, v))
			}
			list, err := scheme.New(res.GroupVersion().WithKind(res.ListKindName()))
			must.OK(t, err)
			setList(t, list, listMeta, objects)
			w := httptest.NewRecorder()
			must.OK(t, Respond(w, request("/"), Format{MediaType: Protobuf}).List(res, meta, items))
			list.GetObjectKind().SetGroupVersionKind(res.GroupVersion().WithKind(res.ListKindName()))
			if !bytes.Equal(w.Body.Bytes(), upstreamProtobuf(t, list)) {
				t.Errorf("%s: protobuf list of %d differs from upstream's", res.Kind, n)
			}
			checkJSONList(t, res, meta, items)
		}
	}
}

// checkJSONList compares the streamed forms with those made in one piece.
func checkJSONList(t *testing.T, res *kinds.Resource, meta ListMeta, items []*mvcc.Version) {
	t.Helper()
	var parts []string
	for _, v := range items {
		value, err := content(res, v, v.Revision)
		must.OK(t, err)
		parts = append(parts, string(value))
	}
	want := fmt.Sprintf(`{"kind":"%sList","apiVersion":"%s","metadata":{"resourceVersion":"99","continue":"to\u003cken","remainingItemCount":7},"items":[%s]}`+"\n",
		res.Kind, res.GroupVersion(), strings.Join(parts, ","))
	w := httptest.NewRecorder()
	must.OK(t, Respond(w, request("/"), Format{MediaType: JSON}).List(res, meta, items))
	if w.Body.String() != want {
		t.Errorf("%s: JSON list of %d differs", res.Kind, len(items))
	}
	var pretty bytes.Buffer
	must.OK(t, json.Indent(&pretty, []byte(strings.TrimSpace(want)), "", "  "))
	w = httptest.NewRecorder()
	must.OK(t, Respond(w, request("/"), Format{MediaType: JSON, Pretty: true}).List(res, meta, items))
	if w.Body.String() != pretty.String() {
		t.Errorf("%s: pretty list of %d: %s", res.Kind, len(items), cmp.Diff(pretty.String(), w.Body.String()))
	}
	if len(items) > 1 {
		return
	}
	w = httptest.NewRecorder()
	must.OK(t, Respond(w, request("/"), Format{MediaType: YAML}).List(res, meta, items))
	asYAML, err := yaml.JSONToYAML([]byte(want))
	must.OK(t, err)
	if !bytes.Equal(w.Body.Bytes(), asYAML) {
		t.Errorf("%s: YAML list %s", res.Kind, w.Body)
	}
}

// setList fills a typed list by way of JSON, which knows all its types.
func setList(t *testing.T, list runtime.Object, meta metav1.ListMeta, objects []runtime.Object) {
	t.Helper()
	if objects == nil {
		objects = []runtime.Object{}
	}
	raw, err := json.Marshal(map[string]any{"metadata": meta, "items": objects})
	must.OK(t, err)
	must.OK(t, json.Unmarshal(raw, list))
	// Upstream's items carry no type in protobuf, and none is compared here.
}

func TestCustomItemsCarryTheirType(t *testing.T) {
	v := stored(t, widgets, `{"metadata":{"name":"w","namespace":"n"},"spec":{"size":1}}`, 5)
	w := httptest.NewRecorder()
	must.OK(t, Respond(w, request("/"), Format{MediaType: JSON}).List(widgets, ListMeta{Revision: 6, Remaining: -1}, []*mvcc.Version{v}))
	const want = `{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"6"},"items":[` +
		`{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"w","namespace":"n","resourceVersion":"5"},"spec":{"size":1}}]}` + "\n"
	if w.Body.String() != want {
		t.Errorf("got %s want %s", w.Body, want)
	}
}

func TestMetadataForms(t *testing.T) {
	v := samples(t)[configMaps]
	for _, version := range []string{"v1", "v1beta1"} {
		f := Format{MediaType: JSON, As: AsMetadata, AsVersion: version}
		w := httptest.NewRecorder()
		must.OK(t, Respond(w, request("/"), f).Object(200, configMaps, v))
		var p metav1.PartialObjectMetadata
		must.OK(t, json.Unmarshal(w.Body.Bytes(), &p))
		if p.Kind != "PartialObjectMetadata" || p.APIVersion != "meta.k8s.io/"+version || p.Name != "settings" || len(p.ManagedFields) != 1 {
			t.Errorf("%s: %s", version, w.Body)
		}
		f.MediaType = Protobuf
		w = httptest.NewRecorder()
		must.OK(t, Respond(w, request("/"), f).Object(200, configMaps, v))
		if want := upstreamProtobuf(t, &p); !bytes.Equal(w.Body.Bytes(), want) {
			t.Errorf("%s: got %q want %q", version, w.Body, want)
		}
		w = httptest.NewRecorder()
		must.OK(t, Respond(w, request("/"), f).List(configMaps, ListMeta{Revision: 9, Remaining: -1}, []*mvcc.Version{v, v}))
		listGVK := schema.GroupVersionKind{Group: "meta.k8s.io", Version: version, Kind: "PartialObjectMetadataList"}
		var list runtime.Object = &metav1.PartialObjectMetadataList{
			ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []metav1.PartialObjectMetadata{p, p}}
		if version == "v1beta1" {
			list = &metav1beta1.PartialObjectMetadataList{
				ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []metav1.PartialObjectMetadata{p, p}}
		}
		list.GetObjectKind().SetGroupVersionKind(listGVK)
		if want := upstreamProtobuf(t, list); !bytes.Equal(w.Body.Bytes(), want) {
			t.Errorf("%s list: got %q want %q", version, w.Body, want)
		}
	}
}

func TestMetadataCutSurvivesBracesInStrings(t *testing.T) {
	raw := `{"metadata":{"name":"a}\"{","x":{"y":"\\"}},"spec":{}}`
	got, err := metadataOf("k", []byte(raw))
	if err != nil || string(got) != `{"name":"a}\"{","x":{"y":"\\"}}` {
		t.Errorf("%s, %v", got, err)
	}
	for _, bad := range []string{``, `{}`, `{"spec":{}}`, `{"metadata":{"a":"}`} {
		if _, err := metadataOf("k", []byte(bad)); err == nil {
			t.Errorf("%q has no metadata", bad)
		}
	}
}

func TestGzipAboveTheLimit(t *testing.T) {
	big := stored(t, configMaps, `{"metadata":{"name":"big"},"data":{"a":"`+strings.Repeat("z", gzipAbove)+`"}}`, 3)
	small := samples(t)[configMaps]
	rows := []struct {
		encoding string
		v        *mvcc.Version
		n        int
		gzip     bool
	}{
		{"gzip", big, 1, true}, {"deflate, gzip ,br", big, 1, true}, {"gzip;q=1", big, 1, false}, {"", big, 1, false},
		{"gzip", small, 1, false}, {"gzip", small, 200, true}, {"gzip", small, 2, false}, {"", small, 400, false},
	}
	for _, row := range rows {
		items := make([]*mvcc.Version, row.n)
		for i := range items {
			items[i] = row.v
		}
		plain, packed := httptest.NewRecorder(), httptest.NewRecorder()
		for w, encoding := range map[*httptest.ResponseRecorder]string{plain: "", packed: row.encoding} {
			r := request("/", "Accept-Encoding", encoding)
			must.OK(t, Respond(w, r, Format{MediaType: JSON}).List(configMaps, ListMeta{Remaining: -1}, items))
		}
		body := packed.Body.Bytes()
		if got := packed.Header().Get("Content-Encoding") == "gzip"; got != row.gzip || got != (packed.Header().Get("Vary") == "Accept-Encoding") {
			t.Errorf("%q × %d: header %v", row.encoding, row.n, packed.Header())
			continue
		}
		if row.gzip {
			z, err := gzip.NewReader(packed.Body)
			must.OK(t, err)
			if body, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(body, plain.Body.Bytes()) {
			t.Errorf("%q × %d: the body differs", row.encoding, row.n)
		}
	}
}

func TestTables(t *testing.T) {
	widgets := &kinds.Resource{Group: "example.com", Version: "v1", Kind: "Widget", Plural: "widgets", Custom: true,
		Columns: []kinds.Column{
			{Name: "Name", Type: "string", Format: "name", Description: "a <name>", JSONPath: ".metadata.name"},
			{Name: "Size", Type: "integer", Priority: 1, JSONPath: ".spec.size"},
		}}
	v := stored(t, widgets, `{"metadata":{"name":"w"},"spec":{"size":3}}`, 5)
	const columns = `[{"name":"Name","type":"string","format":"name","description":"a \u003cname\u003e","priority":0},` +
		`{"name":"Size","type":"integer","format":"","description":"","priority":1}]`
	objects := map[metav1.IncludeObjectPolicy]string{
		metav1.IncludeNone:     `null`,
		metav1.IncludeMetadata: `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"w","resourceVersion":"5"}}`,
		metav1.IncludeObject:   `{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"w","resourceVersion":"5"},"spec":{"size":3}}`,
	}
	for policy, object := range objects {
		f := Format{MediaType: JSON, As: AsTable, AsVersion: "v1", IncludeObject: policy}
		w := httptest.NewRecorder()
		must.OK(t, Respond(w, request("/"), f).List(widgets, ListMeta{Revision: 8, Remaining: -1}, []*mvcc.Version{v}))
		row := `{"cells":["w",3],"object":` + object + `}`
		want := `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"8"},"columnDefinitions":` + columns + `,"rows":[` + row + `]}` + "\n"
		if got := w.Header().Get("Content-Type"); w.Body.String() != want || got != JSON {
			t.Errorf("%s: %s: got %s want %s", policy, got, w.Body, want)
		}
		w = httptest.NewRecorder()
		tree, err := DecodeStored(widgets, v)
		must.OK(t, err)
		must.OK(t, Respond(w, request("/"), f).Tree(200, widgets, tree))
		if want := strings.Replace(want, `"8"`, `"5"`, 1); w.Body.String() != want {
			t.Errorf("%s tree: got %s want %s", policy, w.Body, want)
		}
	}
	w := httptest.NewRecorder()
	must.OK(t, Respond(w, request("/"), Format{MediaType: JSON, As: AsTable, AsVersion: "v1beta1"}).List(widgets, ListMeta{Revision: 8, Remaining: -1}, nil))
	if !strings.HasSuffix(w.Body.String(), `"rows":[]}`+"\n") || !strings.Contains(w.Body.String(), "meta.k8s.io/v1beta1") {
		t.Errorf("empty table: %s", w.Body)
	}
}

func TestWriteStatus(t *testing.T) {
	s := status.From(status.NotReady(3))
	const compact = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"storage is (re)initializing","reason":"TooManyRequests","details":{"retryAfterSeconds":3},"code":429}` + "\n"
	rows := []struct{ accept, agent, want string }{
		{"", "", compact}, {"application/json", "", compact}, {"application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "", compact},
		{"text/html", "", "{\n  \"kind\": \"Status\",\n"}, {"", "curl/8", "{\n  \"kind\": \"Status\",\n"},
		{"application/yaml", "", "apiVersion: v1\ncode: 429\n"}, {Protobuf, "", string(upstreamProtobuf(t, s))},
	}
	for _, row := range rows {
		w := httptest.NewRecorder()
		WriteStatus(w, request("/", "Accept", row.accept, "User-Agent", row.agent), s)
		if w.Code != 429 || w.Header().Get("Retry-After") != "3" || !strings.HasPrefix(w.Body.String(), row.want) {
			t.Errorf("%q: %d %v %q, want %q", row.accept, w.Code, w.Header(), w.Body, row.want)
		}
	}
	// A webhook chooses the code of its refusal, and net/http panics at what is none.
	for code, want := range map[int32]int{0: 200, 200: 200, 422: 422, 999: 999, -1: 500, 99: 500, 101: 500, 1000: 500, 99999: 500} {
		w := httptest.NewRecorder()
		WriteStatus(w, request("/"), &metav1.Status{Status: metav1.StatusFailure, Code: code})
		if w.Code != want {
			t.Errorf("code %d is sent as %d, want %d", code, w.Code, want)
		}
	}
}

func TestTreesKeepWhatTheySay(t *testing.T) {
	tree := map[string]any{"kind": "Scale", "apiVersion": "autoscaling/v1", "spec": map[string]any{"replicas": int64(2)},
		"metadata": map[string]any{"resourceVersion": "12", "name": "web"}}
	w := httptest.NewRecorder()
	must.OK(t, Respond(w, request("/"), Format{MediaType: JSON}).Tree(200, deploys, tree))
	if want := `{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"web","resourceVersion":"12"},"spec":{"replicas":2}}` + "\n"; w.Body.String() != want {
		t.Errorf("got %s want %s", w.Body, want)
	}
	w = httptest.NewRecorder()
	must.OK(t, Respond(w, request("/"), Format{MediaType: Protobuf}).Tree(200, deploys, tree))
	b, err := Decode(Protobuf, w.Body.Bytes(), nil)
	must.OK(t, err)
	if b.Object["kind"] != "Scale" || b.Object["spec"].(map[string]any)["replicas"] != int64(2) {
		t.Errorf("%v", b.Object)
	}
	w = httptest.NewRecorder()
	tree["kind"] = "Unheard"
	if err := Respond(w, request("/"), Format{MediaType: Protobuf}).Tree(200, nil, tree); err == nil {
		t.Error("a kind without a Go type was written as protobuf")
	}
}

func BenchmarkProtobuf(b *testing.B) {
	for res, v := range samples(b) {
		b.Run("encode/"+res.Kind, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v.SetMemo(nil)
				if _, err := objectMessage(res, v, v.Revision); err != nil {
					b.Fatal(err)
				}
			}
		})
		body := upstreamProtobuf(b, upstreamObject(b, res, v))
		b.Run("decode/"+res.Kind, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode(Protobuf, body, res); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
