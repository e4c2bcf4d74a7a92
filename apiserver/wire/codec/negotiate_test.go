package codec

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/types/kinds"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const kubectlAccept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"

func TestNegotiate(t *testing.T) {
	asJSON, asYAML, asProto := Format{MediaType: JSON}, Format{MediaType: YAML}, Format{MediaType: Protobuf}
	table := Format{MediaType: JSON, As: AsTable, AsVersion: "v1", IncludeObject: metav1.IncludeMetadata}
	partial := func(media string) Format { return Format{MediaType: media, As: AsMetadata, AsVersion: "v1"} }
	stream := func(f Format) Format { f.Stream = true; return f }
	pretty := func(f Format) Format { f.Pretty = true; return f }
	const all = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"
	const streams = "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
	rows := []struct {
		accept, query, agent string
		res                  *kinds.Resource
		shape                Shape
		want                 Format
		code                 int32
		text                 string
	}{
		{accept: "", want: asJSON},
		{accept: "*/*", want: asJSON},
		{accept: "application/*", want: asJSON},
		{accept: "application/json", want: asJSON},
		{accept: "application/json;charset=utf-8;unknown=1", want: asJSON},
		{accept: "application/yaml", want: asYAML},
		{accept: "application/vnd.kubernetes.protobuf,application/json", res: pods, want: asProto},
		{accept: "application/vnd.kubernetes.protobuf,application/json", res: widgets, want: asJSON},
		{accept: "application/vnd.kubernetes.protobuf", res: widgets, code: 406, text: "only the following media types are accepted: application/json, application/yaml"},
		{accept: "application/json;q=0.1,application/yaml;q=0.9", want: asYAML},
		{accept: "text/html,application/xhtml+xml", code: 406, text: all},
		{accept: "application/cbor,application/json", want: asJSON},
		{accept: kubectlAccept, res: pods, shape: ShapeList, want: table},
		{accept: kubectlAccept, res: pods, shape: ShapeWatch, want: stream(table)},
		{accept: kubectlAccept, res: pods, shape: ShapeOther, want: asJSON},
		{accept: kubectlAccept, res: reviews, want: asJSON},
		{accept: "application/json;as=Table;v=v1;g=meta.k8s.io", res: reviews, code: 406, text: all},
		{accept: "application/json;as=Table;v=v2;g=meta.k8s.io,application/json", res: pods, want: asJSON},
		{accept: "application/json;as=Chart;v=v1;g=meta.k8s.io,application/json", res: pods, want: asJSON},
		{accept: "application/json;as=Table;v=v1;g=example.com,application/json", res: pods, want: asJSON},
		{accept: "application/json;v=v1,application/json", res: pods, want: asJSON},
		{accept: "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json", res: pods, want: asJSON},
		{accept: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", res: widgets, want: partial(Protobuf)},
		{accept: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", res: pods, shape: ShapeList, want: partial(JSON)},
		{accept: "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", res: pods, shape: ShapeWatch, want: stream(partial(JSON))},
		{accept: "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", res: pods, shape: ShapeList, code: 406,
			text: "you requested PartialObjectMetadata, but the requested object is a list (*v1.PodList)"},
		{accept: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", res: pods, code: 406,
			text: "you requested PartialObjectMetadataList, but the requested object is not a list (*v1.Pod)"},
		{accept: "application/yaml", shape: ShapeWatch, code: 406, text: streams},
		{accept: "application/yaml,application/json", shape: ShapeWatch, code: 406, text: streams},
		{accept: "application/json;stream=watch", shape: ShapeWatch, want: stream(asJSON)},
		{accept: "application/json;stream=other,application/vnd.kubernetes.protobuf;stream=watch", res: pods, shape: ShapeWatch, want: stream(asProto)},
		{accept: "application/vnd.kubernetes.protobuf;stream=watch", res: widgets, shape: ShapeWatch, code: 406,
			text: "only the following media types are accepted: application/json;stream=watch"},
		{accept: "application/json;sv=v2,application/yaml", want: asYAML},
		{query: "?pretty=true", want: pretty(asJSON)},
		{query: "?pretty=1", want: pretty(asJSON)},
		{query: "?pretty=true", shape: ShapeWatch, want: stream(asJSON)},
		{query: "?pretty=false", agent: "curl/8.0", want: asJSON},
		{query: "?pretty=nonsense", agent: "curl/8.0", want: asJSON},
		{query: "?pretty=", agent: "curl/8.0", want: pretty(asJSON)},
		{agent: "Wget/1", want: pretty(asJSON)},
		{agent: "Mozilla/5.0 (X)", want: pretty(asJSON)},
		{agent: "kubectl/v1.36", want: asJSON},
		{accept: "application/json;pretty=1", want: pretty(asJSON)},
		{accept: "application/yaml;pretty=1", want: asYAML},
		{accept: kubectlAccept, query: "?includeObject=Object", res: pods, shape: ShapeList,
			want: Format{MediaType: JSON, As: AsTable, AsVersion: "v1", IncludeObject: metav1.IncludeObject}},
		{accept: kubectlAccept, query: "?includeObject=Nonsense", res: pods, shape: ShapeList, code: 400,
			text: `Unable to convert to Table as requested: includeObject: Invalid value: "Nonsense": must be 'Metadata', 'Object', 'None', or empty`},
		{query: "?includeObject=Nonsense", want: asJSON},
	}
	for _, row := range rows {
		name := fmt.Sprintf("%s %s %s %d", row.accept, row.query, row.agent, row.shape)
		got, err := Negotiate(request("/x"+row.query, "Accept", row.accept, "User-Agent", row.agent), row.res, row.shape)
		if row.code != 0 {
			var e *apierrors.StatusError
			if !errors.As(err, &e) || e.ErrStatus.Code != row.code || e.ErrStatus.Message != row.text {
				t.Errorf("%s: %v, want %d %s", name, err, row.code, row.text)
			}
			continue
		}
		if err != nil || got != row.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, row.want)
		}
	}
}

func TestNegotiateWithoutAllocation(t *testing.T) {
	for _, accept := range []string{"", JSON, kubectlAccept, "application/vnd.kubernetes.protobuf,application/json"} {
		r := request("/x?limit=500", "Accept", accept, "User-Agent", "kubectl/v1.36")
		n := testing.AllocsPerRun(100, func() {
			if _, err := Negotiate(r, pods, ShapeList); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%q: %v allocations", accept, n)
		}
	}
}

func TestAcceptCacheIsBounded(t *testing.T) {
	for i := range 3 * maxAccepts {
		clauses(fmt.Sprintf("application/json;x=%d", i))
		if n := len(*accepts.Load()); n > maxAccepts {
			t.Fatalf("%d headers are kept", n)
		}
	}
	long := strings.Repeat("a", maxAcceptLength+1)
	clauses(long)
	if _, kept := (*accepts.Load())[long]; kept {
		t.Error("a long header is kept")
	}
}

func FuzzNegotiate(f *testing.F) {
	for _, s := range []string{"", "*/*", kubectlAccept, "application/json;q=0.5, a/b;q=x;;=,;", "application/vnd.kubernetes.protobuf;stream=watch", ";;,,==\"", "a/b/c;q"} {
		f.Add(s, "")
		f.Add(s, "pretty=1&includeObject=None")
	}
	f.Fuzz(func(t *testing.T, accept, query string) {
		r := request("/")
		r.Header["Accept"] = []string{accept}
		r.URL.RawQuery = query
		for _, res := range []*kinds.Resource{nil, pods, widgets} {
			for shape := ShapeObject; shape <= ShapeOther; shape++ {
				got, err := Negotiate(r, res, shape)
				if err != nil {
					continue
				}
				if got.As != AsObject && (res == nil || shape == ShapeOther) || got.MediaType == "" ||
					got.As == AsTable && got.MediaType == Protobuf || got.Stream && got.MediaType == YAML {
					t.Errorf("%q: %+v", accept, got)
				}
			}
		}
	})
}
