//lint:file-ignore SA1019 Endpoints are deprecated for clients, not for servers

package codec

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestCostOfHonest: what is made in earnest is far from the limit, in all three media.
func TestCostOfHonest(t *testing.T) {
	var addresses corev1.Endpoints
	addresses.Subsets = make([]corev1.EndpointSubset, 1)
	for i := range 1000 {
		node := fmt.Sprint("node-", i)
		addresses.Subsets[0].Addresses = append(addresses.Subsets[0].Addresses, corev1.EndpointAddress{
			IP: fmt.Sprintf("10.0.%d.%d", i/256, i%256), NodeName: &node,
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: fmt.Sprint("pod-", i), UID: "bee04885-6c2e-4f03-8fdc-b045f2bb7b27"},
		})
	}
	message, err := addresses.Marshal()
	must.OK(t, err)
	text, _, err := treeOf(&addresses)
	must.OK(t, err)
	encoded, _, err := Encode(text)
	must.OK(t, err)
	dashboards := bytes.Repeat([]byte(`{\"a\":[1,2],`), 1<<20/13)
	escaped := append(append([]byte(`{"metadata":{"name":"m"},"data":{"a":"`), dashboards...), `"}}`...)
	properties := strings.Repeat(`"p":{"type":"object","description":"as long as they are in the mean, or so"},`, 11_000)
	definition := []byte(`{"spec":{"x":{` + strings.TrimSuffix(properties, ",") + `}}}`)
	for _, row := range []struct {
		name, contentType string
		way               Way
		body              []byte
		res               *kinds.Resource
		most              int64 // MiB
	}{
		{"1000 addresses", JSON, Whole, encoded, pods, 6},
		{"1000 addresses in protobuf", Protobuf, Whole, appendDocument(nil, "v1", "Endpoints", message), pods, 16},
		{"1 MiB of text", JSON, Whole, escaped, pods, 8},
		{"1 MiB of text, applied", "", Applied, escaped, pods, 10},
		{"a large definition", JSON, Whole, definition, definitionKind, 40},
		{"a large definition, applied", "", Applied, definition, definitionKind, 60},
	} {
		cost, err := Cost(row.way, row.contentType, row.body, row.res)
		if err != nil || cost > row.most<<20 {
			t.Errorf("%s, %d bytes: %.1f MiB, want at most %d, %v", row.name, len(row.body), float64(cost)/(1<<20), row.most, err)
		}
	}
}

var definitionKind = &kinds.Resource{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// TestCostOfProtobuf: messages cost what their Go types do; what looks like messages and is text, or
// has no field, costs its bytes.
func TestCostOfProtobuf(t *testing.T) {
	containers := bytes.Repeat([]byte{0x12, 0x00}, 50_000)
	text := bytes.Repeat([]byte{'\n', 0x00}, 500_000)
	unknown := bytes.Repeat([]byte{0xfa, 0x3f, 0x00}, 500_000)
	for _, row := range []struct {
		name string
		body []byte
		code int
	}{
		{"containers", appendDocument(nil, "v1", "Pod", field2(containers)), http.StatusRequestEntityTooLarge},
		{"containers of nothing that is said", appendDocument(nil, "", "", field2(containers)), http.StatusRequestEntityTooLarge},
		{"labels", appendDocument(nil, "v1", "Pod", field1(bytes.Repeat([]byte{0x5a, 0x00}, 100_000))), http.StatusRequestEntityTooLarge},
		{"a revision with JSON in it", appendDocument(nil, "apps/v1", "ControllerRevision", field2(field1(bytes.Repeat([]byte(`{},`), 66_666)))), http.StatusRequestEntityTooLarge},
		{"text", appendDocument(nil, "v1", "ConfigMap", field2(append([]byte{0x0a, 0x01, 'a', 0x12, 0xc0, 0x84, 0x3d}, text...))), 0},
		{"unknown fields", appendDocument(nil, "v1", "Pod", field2(unknown)), 0},
	} {
		cost, err := Cost(Whole, Protobuf, row.body, pods)
		code := 0
		if s, ok := err.(apierrors.APIStatus); ok {
			code = int(s.Status().Code)
		}
		if code != row.code {
			t.Errorf("%s: %d MiB, %v", row.name, cost>>20, err)
		}
	}
}

func field1(b []byte) []byte { return appendField(nil, 0x0a, string(b)) }
func field2(b []byte) []byte { return appendField(nil, 0x12, string(b)) }

// TestAliases: what aliases stand for is counted without making it.
func TestAliases(t *testing.T) {
	for _, row := range []struct {
		name, body, says string
	}{
		{"few", "a: &a {x: 1}\nb: [*a, *a]", ""},
		{"many of a list", "a: &a [" + strings.Repeat("{},", 1000) + "1]\nb: [" + strings.Repeat("*a,", 300) + "1]", "excessive aliasing"},
		{"of aliases", "a: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d]", "excessive aliasing"},
		{"of a long text", "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 20) + "1]", "too many bytes"},
		{"of itself", "a: &a [*a]", "anchor 'a' value contains itself"},
	} {
		_, _, err := YAMLToJSON([]byte(row.body))
		if text := fmt.Sprint(err); row.says == "" && err != nil || !strings.Contains(text, row.says) {
			t.Errorf("%s: %v, want %q", row.name, err, row.says)
		}
		// The library refuses some in the same words, and only when it has made them. An anchor
		// within itself is left to it.
		if counted := checkAliases([]byte(row.body)); row.name != "of itself" && (counted == nil) != (row.says == "") {
			t.Errorf("%s: %v when it was counted, want %q", row.name, counted, row.says)
		}
	}
}

// BenchmarkCost is what a look at bodies costs.
func BenchmarkCost(b *testing.B) {
	pod := []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"spec":{"containers":[` + strings.TrimSuffix(strings.Repeat(`{"name":"a","image":"b","env":[{"name":"c","value":"d"}],"resources":{}},`, 40), ",") + `]}}`)
	m := &corev1.Pod{}
	m.Name = "a"
	for range 10 {
		m.Spec.Containers = append(m.Spec.Containers, corev1.Container{Name: "a", Image: "b", Env: []corev1.EnvVar{{Name: "c", Value: "d"}}})
	}
	message, err := m.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	for _, row := range []struct {
		contentType string
		body        []byte
	}{{JSON, pod}, {Protobuf, appendDocument(nil, "v1", "Pod", message)}} {
		b.Run(fmt.Sprintf("look %s, %d bytes", row.contentType, len(row.body)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Cost(Whole, row.contentType, row.body, pods); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("decode %s, %d bytes", row.contentType, len(row.body)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode(row.contentType, row.body, pods); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
