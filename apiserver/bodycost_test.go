package apiserver_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/access/auth/token"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/internal/must"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// full measures bodies as expensive as they may be, instead of an eighth of that.
var full = flag.Bool("full", false, "TestBodiesCost with bodies up to the limit: takes a minute or two")

// liveHeap is what the last cycle of the garbage collector found in use.
func liveHeap() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// peakOf is by how much the heap in use grows in the time of f, at the most. The collector works
// whenever the process has made a twelfth more (a twenty-fifth with -full), so the peak can be
// higher by as much: by less than a megabyte of ten (of twenty). The process must stop meanwhile:
// else all that is made then counts as in use.
func peakOf(f func()) uint64 {
	runtime.GC()
	runtime.GC() // what the first one only finished
	percent := 8
	if *full {
		percent = 4
	}
	defer debug.SetGCPercent(debug.SetGCPercent(percent))
	before := liveHeap()
	var peak atomic.Uint64
	var over atomic.Bool
	onCollection(func() bool {
		peak.Store(max(peak.Load(), liveHeap())) // the finalizers have one goroutine
		return !over.Load()
	})
	f()
	peak.Store(max(peak.Load(), liveHeap()))
	over.Store(true)
	return max(peak.Load(), before) - before
}

// onCollection calls seen after each cycle of the garbage collector, until it returns false: each
// cycle finalizes an object that nothing refers to. A loop that reads the metric would take as
// much CPU time as the test itself.
func onCollection(seen func() bool) {
	var arm func()
	arm = func() {
		// An object with a pointer: one without may be part of a bigger block, which lives longer.
		runtime.SetFinalizer(new([]byte), func(*[]byte) {
			if seen() {
				arm()
			}
		})
	}
	arm()
}

// stopping are the settings of a process that stops while the collector works.
const stopping = "gcstoptheworld=1"

// inStopping runs a test again in a process that stops for the collector, unless this is one, and
// reports whether this is it.
func inStopping(t *testing.T) bool {
	t.Helper()
	if strings.Contains(os.Getenv("GODEBUG"), stopping) {
		return true
	}
	t.Parallel() // the other process measures, and is alone in itself
	self, err := os.Executable()
	must.OK(t, err)
	again := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v", fmt.Sprintf("-full=%v", *full), fmt.Sprintf("-test.short=%v", testing.Short()))
	again.Env = append(os.Environ(), "GODEBUG="+stopping)
	out, err := again.CombinedOutput()
	if err != nil || testing.Verbose() {
		t.Logf("%s", out)
	}
	if err != nil {
		t.Error(err)
	}
	return false
}

// filledWith is head, as many units as fit, and tail. %s in a unit is a number of its own.
func filledWith(head, unit, tail string, size int) string {
	var b strings.Builder
	b.WriteString(head)
	before, after, numbered := strings.Cut(unit, "%s")
	for i := 0; b.Len()+len(unit)+10+len(tail) < size; i++ {
		b.WriteString(before)
		if numbered {
			fmt.Fprintf(&b, "%06d", i)
		}
		b.WriteString(after)
	}
	return strings.TrimSuffix(b.String(), ",") + tail
}

// noTokens issues tokens that are none.
type noTokens struct{}

func (noTokens) Issue(token.Spec) (string, error) {
	return "token", nil
}
func (noTokens) Audiences() []string { return []string{"api"} }

// costly is a body of the worst shape for one sort of request.
type costly struct {
	name, method, path, contentType string
	way                             codec.Way
	head, unit, tail                string
	// wrap makes the document of what is filled with units, if that is not all of it.
	wrap func(name, filled string) string
}

const (
	reviews     = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	accessOf    = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
	podsPath    = "/api/v1/namespaces/default/pods"
	widgets     = "/apis/x.example/v1/namespaces/default/widgets"
	definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

	asJSON, asYAML, asProtobuf = codec.JSON, codec.YAML, codec.Protobuf
	asJSONPatch                = "application/json-patch+json"
	asMerge, asStrategic       = "application/merge-patch+json", "application/strategic-merge-patch+json"
	asApply                    = "application/apply-patch+yaml"

	review = `{"spec":{"nonResourceAttributes":{"verb":"get","path":"/x"}}`
	widget = `{"apiVersion":"x.example/v1","kind":"Widget","metadata":{"name":"NAME"}`
)

// costlyBodies are those that were found to be the worst.
var costlyBodies = []costly{
	{"a review with objects that nobody knows", "POST", reviews, asJSON, codec.Whole, review + `,"x":[`, `{"a":1},`, `]}`, nil},
	{"a review with fields that nobody knows", "POST", reviews, asJSON, codec.Whole, review, `,"%s":1`, `}`, nil},
	{"a review with fields given twice", "POST", reviews, asJSON, codec.Whole, review + `,"x":[`, `{"a":1,"a":1},`, `]}`, nil},
	{"a review of requirements", "POST", reviews, asJSON, codec.Whole, `{"spec":{"resourceAttributes":{"verb":"get","fieldSelector":{"requirements":[`, `{},`, `]}}}}`, nil},
	{"a review of requirements of labels", "POST", reviews, asJSON, codec.Whole, `{"spec":{"resourceAttributes":{"verb":"get","labelSelector":{"requirements":[`, `{},`, `]}}}}`, nil},
	{"a review with managed fields", "POST", reviews, asJSON, codec.Whole, review + `,"metadata":{"managedFields":[`, `{},`, `]}}`, nil},
	{"a review with more of a user", "POST", accessOf, asJSON, codec.Whole, `{"spec":{"user":"x","nonResourceAttributes":{"verb":"get","path":"/x"},"extra":{`, `"%s":[""],`, `}}}`, nil},
	{"a review in YAML", "POST", reviews, asYAML, codec.Whole, "spec: {nonResourceAttributes: {verb: get, path: /x}}\nx:\n", "- a:\n", "", nil},
	{"a review in YAML, questions", "POST", reviews, asYAML, codec.Whole, "spec: {nonResourceAttributes: {verb: get, path: /x}}\nx:\n", "- ? \n", "", nil},

	{"containers", "POST", podsPath, asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"spec":{"containers":[`, `{},`, `]}}`, nil},
	{"containers in YAML", "POST", podsPath, asYAML, codec.Whole, "metadata: {name: NAME}\nspec:\n containers:\n", " - {}\n", "", nil},
	{"probes", "POST", podsPath, asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"spec":{"containers":[`, `{"livenessProbe":{"httpGet":{}}},`, `]}}`, nil},
	{"arguments", "POST", podsPath, asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"spec":{"containers":[{"name":"a","image":"x","args":[`, `"",`, `]}]}}`, nil},
	{"ports of a Service", "POST", "/api/v1/namespaces/default/services", asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"spec":{"ports":[`, `{},`, `]}}`, nil},
	{"webhooks", "POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"webhooks":[`, `{},`, `]}`, nil},
	{"limits of a range", "POST", "/api/v1/namespaces/default/limitranges", asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"spec":{"limits":[`, `{},`, `]}}`, nil},
	{"metrics of an autoscaler", "POST", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"spec":{"metrics":[`, `{},`, `]}}`, nil},
	{"subsets of Endpoints", "POST", "/api/v1/namespaces/default/endpoints", asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"subsets":[`, `{},`, `]}`, nil},
	{"rules of an Ingress", "POST", "/apis/networking.k8s.io/v1/namespaces/default/ingresses", asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"spec":{"rules":[`, `{},`, `]}}`, nil},
	{"rules of a network policy", "POST", "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"spec":{"ingress":[`, `{},`, `]}}`, nil},
	{"rules of a role", "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"rules":[`, `{},`, `]}`, nil},
	{"rules of a flow schema", "POST", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"spec":{"rules":[`, `{},`, `]}}`, nil},
	{"endpoints of a slice", "POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"endpoints":[`, `{},`, `]}`, nil},
	{"devices of a slice", "POST", "/apis/resource.k8s.io/v1/resourceslices", asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"spec":{"devices":[`, `{},`, `]}}`, nil},
	{"variables of a container", "POST", "/api/v1/namespaces/default/pods", asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"spec":{"containers":[{"name":"a","image":"x","env":[`, `{},`, `]}]}}`, nil},
	{"projected sources", "POST", "/api/v1/namespaces/default/pods", asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"spec":{"containers":[{"name":"a","image":"x"}],"volumes":[{"name":"v","projected":{"sources":[`, `{},`, `]}}]}}`, nil},
	{"properties of a definition", "POST", definitions, asJSON, codec.Whole, `{"metadata":{"name":"as.b.c"},"spec":{"group":"b.c","scope":"Cluster","names":{"plural":"as","kind":"A"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{`, `"%s":{},`, `}}}}]}}`, nil},
	{"data", "POST", maps, asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"data":{`, `"%s":"",`, `}}`, nil},
	{"one long string of escapes", "POST", maps, asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"data":{"a":"`, `\u0001`, `"}}`, nil},

	{"custom objects", "POST", widgets, asJSON, codec.Whole, widget + `,"spec":{"x":[`, `{"a":1},`, `]}}`, nil},
	{"custom fields", "POST", widgets, asJSON, codec.Whole, widget + `,"spec":{"a":1`, `,"%s":1`, `}}`, nil},
	{"custom objects in YAML", "POST", widgets, asYAML, codec.Whole, "apiVersion: x.example/v1\nkind: Widget\nmetadata: {name: NAME}\nspec:\n x:\n", " - a:\n", "", nil},

	{"a JSON patch of objects", "PATCH", maps + "/NAME", asJSONPatch, codec.Merged, `[{"op":"add","path":"/x","value":[`, `{"a":1},`, `]}]`, nil},
	{"a JSON patch of operations", "PATCH", maps + "/NAME", asJSONPatch, codec.Merged, `[`, `{},`, `]`, nil},
	{"a merge patch", "PATCH", maps + "/NAME", asMerge, codec.Merged, `{"x":[`, `{"a":1},`, `]}`, nil},
	{"a merge patch of a custom object", "PATCH", widgets + "/NAME", asMerge, codec.Merged, `{"spec":{"x":[`, `{"a":1},`, `]}}`, nil},
	{"a strategic merge patch", "PATCH", maps + "/NAME", asStrategic, codec.Merged, `{"x":[`, `{"a":1},`, `]}`, nil},
	{"an apply of objects", "PATCH", maps + "/NAME?fieldManager=x", asApply, codec.Applied, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"NAME"},"x":[`, `{"a":1},`, `]}`, nil},
	{"an apply of fields", "PATCH", maps + "/NAME?fieldManager=x", asApply, codec.Applied, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"NAME"},"data":{`, `"%s":"",`, `}}`, nil},
	{"an apply of containers", "PATCH", podsPath + "/NAME?fieldManager=x", asApply, codec.Applied, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"NAME"},"spec":{"containers":[`, `{"name":"%s"},`, `]}}`, nil},
	{"an apply of a custom object", "PATCH", widgets + "/NAME?fieldManager=x", asApply, codec.Applied, `{"apiVersion":"x.example/v1","kind":"Widget","metadata":{"name":"NAME"},"spec":{"x":[`, `{"a":1},`, `]}}`, nil},
	{"an apply of custom fields", "PATCH", widgets + "/NAME?fieldManager=x", asApply, codec.Applied, `{"apiVersion":"x.example/v1","kind":"Widget","metadata":{"name":"NAME"},"spec":{"a":1`, `,"%s":1`, `}}`, nil},
	{"an apply in YAML", "PATCH", widgets + "/NAME?fieldManager=x", asApply, codec.Applied, "apiVersion: x.example/v1\nkind: Widget\nmetadata: {name: NAME}\nspec:\n x:\n", " - a:\n", "", nil},

	{"containers in protobuf", "POST", podsPath, asProtobuf, codec.Whole, "", "\x12\x00", "", wireMessage("v1", "Pod", 2)},
	{"init containers in protobuf", "POST", podsPath, asProtobuf, codec.Whole, "", "\xa2\x01\x00", "", wireMessage("v1", "Pod", 2)},
	{"volumes in protobuf", "POST", podsPath, asProtobuf, codec.Whole, "", "\x0a\x00", "", wireMessage("v1", "Pod", 2)},
	{"arguments in protobuf", "POST", podsPath, asProtobuf, codec.Whole, "", "\x22\x00", "", wireMessage("v1", "Pod", 2, 2)},
	{"probes in protobuf", "POST", podsPath, asProtobuf, codec.Whole, "", "\x12\x06\x52\x04\x0a\x02\x12\x00", "", wireMessage("v1", "Pod", 2)},
	{"labels in protobuf", "POST", podsPath, asProtobuf, codec.Whole, "", "\x5a\x08\x0a\x06%s", "", wireMessage("v1", "Pod", 1)},
	{"managed fields in protobuf", "POST", podsPath, asProtobuf, codec.Whole, "", "\x8a\x01\x00", "", wireMessage("v1", "Pod", 1)},
	{"data in protobuf", "POST", maps, asProtobuf, codec.Whole, "", "\x12\x08\x0a\x06%s", "", wireMessage("v1", "ConfigMap")},
	{"ports in protobuf", "POST", "/api/v1/namespaces/default/services", asProtobuf, codec.Whole, "", "\x0a\x00", "", wireMessage("v1", "Service", 2)},
	{"addresses in protobuf", "POST", "/api/v1/namespaces/default/endpoints", asProtobuf, codec.Whole, "", "\x0a\x00", "", wireMessage("v1", "Endpoints", 2)},
	{"JSON in protobuf", "POST", "/apis/apps/v1/namespaces/default/controllerrevisions", asProtobuf, codec.Whole, `{"x":[`, `{"a":1},`, `]}`, wireMessage("apps/v1", "ControllerRevision", 2, 1)},
	{"fields that nobody knows in protobuf", "POST", maps, asProtobuf, codec.Whole, "", "\xfa\x3f\x00", "", wireMessage("v1", "ConfigMap")},
	{"a review in protobuf", "POST", accessOf, asProtobuf, codec.Whole, "\x1a\x01x\x12\x0b\x0a\x02/x\x12\x03get", "\x22\x00", "", wireMessage("authorization.k8s.io/v1", "SubjectAccessReview", 2)},

	{"finalizers", "POST", maps, asJSON, codec.Whole, `{"metadata":{"name":"NAME","finalizers":[`, `"a/%s",`, `]}}`, nil},
	{"finalizers in protobuf", "POST", maps, asProtobuf, codec.Whole, "", "\x72\x06%s", "", wireMessage("v1", "ConfigMap", 1)},
	{"finalizers of a custom object", "POST", widgets, asJSON, codec.Whole, `{"apiVersion":"x.example/v1","kind":"Widget","metadata":{"name":"NAME","finalizers":[`, `"a/%s",`, `]}}`, nil},
	{"a merge patch of finalizers", "PATCH", maps + "/NAME", asMerge, codec.Merged, `{"metadata":{"finalizers":[`, `"a/%s",`, `]}}`, nil},
	{"an apply of finalizers", "PATCH", maps + "/NAME?fieldManager=x", asApply, codec.Applied, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"NAME","finalizers":[`, `"a/%s",`, `]}}`, nil},
	{"a custom set", "POST", widgets, asJSON, codec.Whole, widget + `,"set":[`, `"%s",`, `]}`, nil},
	{"a custom set of numbers", "POST", widgets, asJSON, codec.Whole, widget + `,"numbers":[`, `1%s,`, `]}`, nil},
	{"a custom list with keys", "POST", widgets, asJSON, codec.Whole, widget + `,"keyed":[`, `{"k":"%s"},`, `]}`, nil},
	{"a merge patch of a custom set", "PATCH", widgets + "/NAME", asMerge, codec.Merged, `{"set":[`, `"%s",`, `]}`, nil},
	{"a merge patch of a custom list with keys", "PATCH", widgets + "/NAME", asMerge, codec.Merged, `{"keyed":[`, `{"k":"%s"},`, `]}`, nil},
	{"an apply of a custom set", "PATCH", widgets + "/NAME?fieldManager=x", asApply, codec.Applied, widget + `,"set":[`, `"%s",`, `]}`, nil},
	{"an apply of a custom list with keys", "PATCH", widgets + "/NAME?fieldManager=x", asApply, codec.Applied, widget + `,"keyed":[`, `{"k":"%s"},`, `]}`, nil},
	{"owners", "POST", maps, asJSON, codec.Whole, `{"metadata":{"name":"NAME","ownerReferences":[`, `{},`, `]}}`, nil},
	{"owners that are valid", "POST", maps, asJSON, codec.Whole, `{"metadata":{"name":"NAME","ownerReferences":[`, `{"apiVersion":"v1","kind":"A","name":"a","uid":"%s"},`, `]}}`, nil},
	{"a scale", "PUT", "/apis/apps/v1/namespaces/default/deployments/scaled/scale", asJSON, codec.Whole, `{"metadata":{"name":"scaled","namespace":"default"},"spec":{"replicas":1},"x":[`, `{"a":1},`, `]}`, nil},
	{"a scale of a custom object", "PUT", widgets + "/scaled/scale", asJSON, codec.Whole, `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"scaled","namespace":"default"},"spec":{"replicas":1},"x":[`, `{"a":1},`, `]}`, nil},
	{"an eviction", "POST", podsPath + "/evicted/eviction", asJSON, codec.Whole, `{"metadata":{"name":"evicted"},"x":[`, `{"a":1},`, `]}`, nil},
	{"managed fields of an eviction", "POST", podsPath + "/evicted/eviction", asJSON, codec.Whole, `{"metadata":{"name":"evicted","managedFields":[`, `{},`, `]}}`, nil},
	{"a binding", "POST", podsPath + "/evicted/binding", asJSON, codec.Whole, `{"metadata":{"name":"evicted"},"target":{"name":"n"},"x":[`, `{"a":1},`, `]}`, nil},
	{"a review of a token", "POST", "/apis/authentication.k8s.io/v1/tokenreviews", asJSON, codec.Whole, `{"spec":{"token":"x","audiences":[`, `"",`, `]}}`, nil},
	{"options of a collection's delete", "DELETE", "/api/v1/namespaces/default/secrets", asJSON, codec.Whole, `{"dryRun":[`, `"All",`, `]}`, nil},
	{"options of a delete in protobuf", "DELETE", maps + "/nothing", asProtobuf, codec.Whole, "", "\x2a\x00", "", func(_, filled string) string {
		return "k8s\x00" + wireField(1, wireField(1, "v1")+wireField(2, "DeleteOptions")) + wireField(2, filled)
	}},
	{"nulls among ports", "POST", "/api/v1/namespaces/default/services", asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"spec":{"ports":[`, `null,`, `]}}`, nil},
	{"nulls among containers", "POST", podsPath, asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"spec":{"containers":[`, `null,`, `]}}`, nil},
	{"nulls among ports in YAML", "POST", "/api/v1/namespaces/default/services", asYAML, codec.Whole, "metadata: {name: NAME}\nspec:\n ports:\n", " -\n", "", nil},
	{"nulls among ports in YAML, with a space", "POST", "/api/v1/namespaces/default/services", asYAML, codec.Whole, "metadata: {name: NAME}\nspec:\n ports:\n", " - \n", "", nil},
	{"nulls among ports in YAML, with a comment", "POST", "/api/v1/namespaces/default/services", asYAML, codec.Whole, "metadata: {name: NAME}\nspec:\n ports:\n", " - #\n", "", nil},
	{"nulls among ports in YAML, with an anchor", "POST", "/api/v1/namespaces/default/services", asYAML, codec.Whole, "metadata: {name: NAME}\nspec:\n ports:\n", " - &a\n", "", nil},
	{"nulls among ports in YAML, with a tag", "POST", "/api/v1/namespaces/default/services", asYAML, codec.Whole, "metadata: {name: NAME}\nspec:\n ports:\n", " - !!null\n", "", nil},
	{"nulls among ports in YAML, by an alias", "POST", "/api/v1/namespaces/default/services", asYAML, codec.Whole, "metadata: {name: NAME}\nspec:\n ports:\n - &a \n", " - *a\n", "", nil},
	{"nulls among ports in YAML, in one line", "POST", "/api/v1/namespaces/default/services", asYAML, codec.Whole, "metadata: {name: NAME}\nspec:\n ports: [&a ~,", "*a,", "]\n", nil},
	{"nulls among properties", "POST", definitions, asJSON, codec.Whole, `{"metadata":{"name":"as.b.c"},"spec":{"group":"b.c","scope":"Cluster","names":{"plural":"as","kind":"A"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{`, `"%s":null,`, `}}}}]}}`, nil},
	{"nulls among properties in YAML", "POST", definitions, asYAML, codec.Whole, "metadata: {name: as.b.c}\nspec:\n group: b.c\n scope: Cluster\n names: {plural: as, kind: A}\n versions:\n - name: v1\n   served: true\n   storage: true\n   schema:\n    openAPIV3Schema:\n     type: object\n     properties:\n", "      a%s:\n", "", nil},
	{"nulls among patterns of properties", "POST", definitions, asJSON, codec.Whole, `{"metadata":{"name":"as.b.c"},"spec":{"group":"b.c","scope":"Cluster","names":{"plural":"as","kind":"A"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","patternProperties":{`, `"%s":null,`, `}}}}]}}`, nil},
	{"nulls among a device's capacities", "POST", "/apis/resource.k8s.io/v1/resourceslices", asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"spec":{"driver":"a.b","nodeName":"n","pool":{"name":"p","resourceSliceCount":1},"devices":[{"name":"d","capacity":{`, `"a%s":null,`, `}}]}}`, nil},
	{"nulls among a device's attributes", "POST", "/apis/resource.k8s.io/v1/resourceslices", asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"spec":{"driver":"a.b","nodeName":"n","pool":{"name":"p","resourceSliceCount":1},"devices":[{"name":"d","attributes":{`, `"a%s":null,`, `}}]}}`, nil},
	{"nulls among requirements of a review", "POST", reviews, asJSON, codec.Whole, `{"spec":{"resourceAttributes":{"verb":"get","labelSelector":{"requirements":[`, `null,`, `]}}}}`, nil},
	{"nulls in a merge patch", "PATCH", maps + "/NAME", asMerge, codec.Merged, `{"metadata":{"ownerReferences":[`, `null,`, `]}}`, nil},
	{"nulls in a JSON patch", "PATCH", maps + "/NAME", asJSONPatch, codec.Merged, `[{"op":"add","path":"/metadata/ownerReferences","value":[`, `null,`, `]}]`, nil},
	{"options of a delete", "DELETE", maps + "/nothing", asJSON, codec.Whole, `{"x":[`, `{"a":1},`, `]}`, nil},
	{"a request for a token", "POST", "/api/v1/namespaces/default/serviceaccounts/holder/token", asJSON, codec.Whole, `{"spec":{"audiences":[`, `"",`, `]}}`, nil},
}

// estimated is a body of a shape that is estimated at no more than that cost, and nearly that, or
// the largest one if that costs less.
func (s *costly) estimated(t *testing.T, res *kinds.Resource, want int64) (body string, cost int64) {
	t.Helper()
	size := 16 << 10
	for range 12 {
		body = s.body(size)
		cost, err := codec.Cost(s.way, s.contentType, []byte(body), res)
		switch {
		case apierrors.IsRequestEntityTooLargeError(err):
			size /= 2
			continue
		case err != nil:
			t.Fatalf("%d bytes: %v", size, err)
		case cost <= want && (float64(cost) > 0.9*float64(want) || size == codec.MaxBody):
			return body, cost
		}
		size = min(codec.MaxBody, int(0.97*float64(size)*float64(want)/float64(cost)))
	}
	t.Fatalf("no body is estimated at %d bytes", want)
	return "", 0
}

// of is the request for the object of a name.
func (s costly) of(name string) costly {
	s.path, s.head = strings.Replace(s.path, "NAME", name, 1), strings.Replace(s.head, "NAME", name, 1)
	if wrap := s.wrap; wrap != nil {
		s.wrap = func(_, filled string) string { return wrap(name, filled) }
	}
	return s
}

func (s *costly) body(size int) string {
	if s.wrap == nil {
		return filledWith(s.head, s.unit, s.tail, size)
	}
	return s.wrap("NAME", filledWith(s.head, s.unit, s.tail, size-len(s.wrap("NAME", ""))-20))
}

// wireField is a field of protobuf that has a length.
func wireField(number int, inner string) string {
	b := binary.AppendUvarint(nil, uint64(number)<<3|2)
	return string(binary.AppendUvarint(b, uint64(len(inner)))) + inner
}

// wireMessage wraps what is within some fields of an object that has a name.
func wireMessage(apiVersion, kind string, numbers ...int) func(name, filled string) string {
	return func(name, filled string) string {
		for i := len(numbers) - 1; i >= 0; i-- {
			filled = wireField(numbers[i], filled)
		}
		return "k8s\x00" + wireField(1, wireField(1, apiVersion)+wireField(2, kind)) + wireField(2, wireField(1, wireField(1, name))+filled)
	}
}

// defineWidgets makes a resource of which nothing is known but its name.
func (e *env) defineWidgets() *kinds.Resource {
	e.t.Helper()
	e.lead()
	w, answer := e.do(http.MethodPost, definitions, nil, `{"metadata":{"name":"widgets.x.example"},"spec":{"group":"x.example","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
			"set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
			"numbers":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"integer"}},
			"keyed":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"}}}}}}},"subresources":{"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}}}]}}`)
	if w.StatusCode != http.StatusCreated {
		e.t.Fatalf("define: %d %s", w.StatusCode, answer)
	}
	for limit := time.Now().Add(patience); ; {
		res := e.definitions.Current().Lookup(schema.GroupVersionResource{Group: "x.example", Version: "v1", Resource: "widgets"})
		if res != nil {
			return res
		}
		if time.Now().After(limit) {
			e.t.Fatal("the definition is not served")
		}
		runtime.Gosched()
	}
}

// TestBodiesCost: no body takes more memory than it is charged with. That is at most
// codec.MaxCost (for a definition twice that): bodies that would take more are refused before
// they are decoded.
func TestBodiesCost(t *testing.T) {
	// Cost grows with the parts of a body, so an eighth of the limit tells as much, sooner. Lists
	// and maps grow by leaps, and the test has the body too: slack.
	const slack = 1 << 20
	charged := int64(codec.MaxCost / 8)
	switch {
	case *full:
		charged = codec.MaxCost
	case underRace:
		charged /= 4
	}
	if !inStopping(t) {
		return
	}
	e := newEnv(t, func(c *apiserver.Config) { c.Tokens = noTokens{} })
	custom := e.defineWidgets()
	for path, object := range map[string]string{
		"/apis/apps/v1/namespaces/default/deployments": `{"metadata":{"name":"scaled"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"b"}]}}}}`,
		podsPath: `{"metadata":{"name":"evicted"},"spec":{"containers":[{"name":"a","image":"b"}]}}`,
		widgets:  `{"apiVersion":"x.example/v1","kind":"Widget","metadata":{"name":"scaled"},"spec":{"replicas":1}}`,
		"/api/v1/namespaces/default/serviceaccounts": `{"metadata":{"name":"holder"}}`,
	} {
		if w, answer := e.do(http.MethodPost, path, nil, object); w.StatusCode != http.StatusCreated {
			t.Fatalf("%s: %d %s", path, w.StatusCode, answer)
		}
	}
	for number, s := range costlyBodies {
		if testing.Short() && number%8 != 0 {
			continue // every shape takes a quarter of a second: the collector works all the time
		}
		t.Run(s.name, func(t *testing.T) {
			// What is made once for a kind is not the body's.
			first := s.of(fmt.Sprintf("first%d", number))
			e.sendCostly(&first, first.body(len(first.head)+len(first.tail)+100))
			name := fmt.Sprintf("w%d", number)
			s := s.of(name)
			res := &kinds.Resource{Version: "v1", Kind: "Pod"}
			charged := charged
			switch {
			case strings.HasPrefix(s.path, widgets) && !strings.HasSuffix(s.path, "/scale"):
				res = custom
			case strings.HasPrefix(s.path, definitions):
				res = &kinds.Resource{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
				if *full {
					charged *= 2
				}
			}
			if s.method == http.MethodPatch && s.way == codec.Merged {
				kind := strings.TrimSuffix(s.path, "/"+name)
				object := fmt.Sprintf(`{"metadata":{"name":%q}}`, name)
				if res == custom {
					object = fmt.Sprintf(`{"apiVersion":"x.example/v1","kind":"Widget","metadata":{"name":%q}}`, name)
				}
				if w, answer := e.do(http.MethodPost, kind, nil, object); w.StatusCode != http.StatusCreated {
					t.Fatalf("%d %s", w.StatusCode, answer)
				}
			}
			body, cost := s.estimated(t, res, charged)
			code, peak := 0, uint64(0)
			peak = peakOf(func() { code = e.sendCostly(&s, body) })
			t.Logf("%7d bytes, charged with %4.1f MiB, took %4.1f MiB: %d", len(body), float64(cost)/(1<<20), float64(peak)/(1<<20), code)
			// The race detector lets a sync.Pool drop one object in four, so that a buffer of a
			// megabyte is made again where it would be reused. It is here for the races.
			if peak > uint64(cost)+slack && !underRace {
				t.Errorf("%d bytes took %.1f MiB, and were charged with %.1f", len(body), float64(peak)/(1<<20), float64(cost)/(1<<20))
			}
			largest := s.body(codec.MaxBody)
			if _, err := codec.Cost(s.way, s.contentType, []byte(largest), res); err == nil {
				return // all bodies of that shape are accepted
			}
			if code = e.sendCostly(&s, largest); code != http.StatusRequestEntityTooLarge {
				t.Errorf("%d bytes: %d", len(largest), code)
			}
		})
	}
}

func (e *env) sendCostly(s *costly, body string) (code int) {
	r := httptest.NewRequest(s.method, s.path, strings.NewReader(body))
	r.Header.Set("Content-Type", s.contentType)
	w := &discard{header: http.Header{}}
	e.api.ServeHTTP(w, r)
	return w.code
}

// TestBodiesAtOnce: sixty requests of one user at the same time, each as expensive as may be,
// take no more than his share; some wait, the others are to try again, and another user is served.
func TestBodiesAtOnce(t *testing.T) {
	e := newEnv(t, nil)
	s := costly{"", "POST", reviews, asJSON, codec.Whole, review + `,"x":[`, `{"a":1},`, `]}`, nil}
	body, _ := s.estimated(t, &kinds.Resource{Version: "v1", Kind: "SelfSubjectAccessReview"}, codec.MaxCost/2)
	var answers [600]atomic.Int64
	send := func(user, body string) int {
		r := httptest.NewRequest(s.method, s.path, strings.NewReader(body))
		r.Header.Set("Test-User", user)
		w := &discard{header: http.Header{}}
		e.api.ServeHTTP(w, r)
		return w.code
	}
	// Nobody has a right but the one that all have.
	for path, object := range map[string]string{
		"clusterroles":        `{"metadata":{"name":"basic"},"rules":[{"apiGroups":["authorization.k8s.io"],"resources":["selfsubjectaccessreviews"],"verbs":["create"]}]}`,
		"clusterrolebindings": `{"metadata":{"name":"basic"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"basic"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:authenticated"}]}`,
	} {
		if w, answer := e.do(http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/"+path, nil, object); w.StatusCode != http.StatusCreated {
			t.Fatalf("%s: %d %s", path, w.StatusCode, answer)
		}
	}
	peak := peakOf(func() {
		var wg sync.WaitGroup
		for range 60 {
			wg.Go(func() { answers[send("mallory", body)].Add(1) })
		}
		for range 20 {
			if code := send("alice", review+"}"); code != http.StatusCreated {
				t.Errorf("alice: %d", code)
			}
		}
		wg.Wait()
	})
	done, refused := answers[http.StatusCreated].Load(), answers[http.StatusTooManyRequests].Load()
	t.Logf("%d bytes, %d answered, %d refused, %d MiB", len(body), done, refused, peak>>20)
	// The bodies themselves are in memory too, once each.
	if bodies := uint64(60 * len(body)); done == 0 || done+refused != 60 || peak > codec.MaxCost+bodies+8<<20 {
		t.Errorf("%d answered, %d refused, %d MiB", done, refused, peak>>20)
	}
}
