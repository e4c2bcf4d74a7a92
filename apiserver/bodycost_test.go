package apiserver_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/auth/token"
	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/kinds"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// liveHeap is what the last cycle of the garbage collector found in use.
func liveHeap() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// peakOf is by how much the heap in use grows in the time of f, at the most.
func peakOf(f func()) uint64 {
	runtime.GC()
	runtime.GC() // what the first one only finished
	before, peak := liveHeap(), uint64(0)
	var over atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(200 * time.Microsecond); !over.Load(); <-tick.C {
			peak = max(peak, liveHeap())
		}
	}()
	f()
	over.Store(true)
	<-done
	return max(peak, before) - before
}

// filledWith is head, as many units as fit, and tail. %s in a unit is a number of its own.
func filledWith(head, unit, tail string, size int) string {
	var b strings.Builder
	b.WriteString(head)
	before, after, numbered := strings.Cut(unit, "%s")
	for i := 0; b.Len()+len(unit)+10+len(tail) < size; i++ {
		b.WriteString(before)
		if numbered {
			b.WriteString(strconv.FormatInt(int64(i), 16))
		}
		b.WriteString(after)
	}
	return strings.TrimSuffix(b.String(), ",") + tail
}

// noTokens issues tokens that are none.
type noTokens struct{}

func (noTokens) Issue(token.Claims, string, []string, time.Time, time.Duration, time.Duration) (string, error) {
	return "token", nil
}
func (noTokens) Audiences() []string { return []string{"api"} }

// costly is a body of the worst shape for one sort of request.
type costly struct {
	name, method, path, contentType string
	way                             codec.Way
	head, unit, tail                string
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
	{"a review with objects that nobody knows", "POST", reviews, asJSON, codec.Whole, review + `,"x":[`, `{"a":1},`, `]}`},
	{"a review with fields that nobody knows", "POST", reviews, asJSON, codec.Whole, review, `,"%s":1`, `}`},
	{"a review with fields given twice", "POST", reviews, asJSON, codec.Whole, review + `,"x":[`, `{"a":1,"a":1},`, `]}`},
	{"a review of requirements", "POST", reviews, asJSON, codec.Whole, `{"spec":{"resourceAttributes":{"verb":"get","fieldSelector":{"requirements":[`, `{},`, `]}}}}`},
	{"a review with managed fields", "POST", reviews, asJSON, codec.Whole, review + `,"metadata":{"managedFields":[`, `{},`, `]}}`},
	{"a review with more of a user", "POST", accessOf, asJSON, codec.Whole, `{"spec":{"user":"x","nonResourceAttributes":{"verb":"get","path":"/x"},"extra":{`, `"%s":[""],`, `}}}`},
	{"a review in YAML", "POST", reviews, asYAML, codec.Whole, "spec: {nonResourceAttributes: {verb: get, path: /x}}\nx:\n", "- a:\n", ""},
	{"a review in YAML, questions", "POST", reviews, asYAML, codec.Whole, "spec: {nonResourceAttributes: {verb: get, path: /x}}\nx:\n", "- ? \n", ""},

	{"containers", "POST", podsPath, asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"spec":{"containers":[`, `{},`, `]}}`},
	{"containers in YAML", "POST", podsPath, asYAML, codec.Whole, "metadata: {name: NAME}\nspec:\n containers:\n", " - {}\n", ""},
	{"probes", "POST", podsPath, asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"spec":{"containers":[`, `{"livenessProbe":{"httpGet":{}}},`, `]}}`},
	{"arguments", "POST", podsPath, asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"spec":{"containers":[{"name":"a","image":"x","args":[`, `"",`, `]}]}}`},
	{"ports of a Service", "POST", "/api/v1/namespaces/default/services", asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"spec":{"ports":[`, `{},`, `]}}`},
	{"properties of a definition", "POST", definitions, asJSON, codec.Whole, `{"metadata":{"name":"as.b.c"},"spec":{"group":"b.c","scope":"Cluster","names":{"plural":"as","kind":"A"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{`, `"%s":{},`, `}}}}]}}`},
	{"data", "POST", maps, asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"data":{`, `"%s":"",`, `}}`},
	{"one long string of escapes", "POST", maps, asJSON, codec.Whole, `{"metadata":{"name":"NAME"},"data":{"a":"`, `\u0001`, `"}}`},

	{"custom objects", "POST", widgets, asJSON, codec.Whole, widget + `,"spec":{"x":[`, `{"a":1},`, `]}}`},
	{"custom fields", "POST", widgets, asJSON, codec.Whole, widget + `,"spec":{"a":1`, `,"%s":1`, `}}`},
	{"custom objects in YAML", "POST", widgets, asYAML, codec.Whole, "apiVersion: x.example/v1\nkind: Widget\nmetadata: {name: NAME}\nspec:\n x:\n", " - a:\n", ""},

	{"a JSON patch of objects", "PATCH", maps + "/NAME", asJSONPatch, codec.Merged, `[{"op":"add","path":"/x","value":[`, `{"a":1},`, `]}]`},
	{"a JSON patch of operations", "PATCH", maps + "/NAME", asJSONPatch, codec.Merged, `[`, `{},`, `]`},
	{"a merge patch", "PATCH", maps + "/NAME", asMerge, codec.Merged, `{"x":[`, `{"a":1},`, `]}`},
	{"a merge patch of a custom object", "PATCH", widgets + "/NAME", asMerge, codec.Merged, `{"spec":{"x":[`, `{"a":1},`, `]}}`},
	{"a strategic merge patch", "PATCH", maps + "/NAME", asStrategic, codec.Merged, `{"x":[`, `{"a":1},`, `]}`},
	{"an apply of objects", "PATCH", maps + "/NAME?fieldManager=x", asApply, codec.Applied, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"NAME"},"x":[`, `{"a":1},`, `]}`},
	{"an apply of fields", "PATCH", maps + "/NAME?fieldManager=x", asApply, codec.Applied, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"NAME"},"data":{`, `"%s":"",`, `}}`},
	{"an apply of containers", "PATCH", podsPath + "/NAME?fieldManager=x", asApply, codec.Applied, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"NAME"},"spec":{"containers":[`, `{"name":"%s"},`, `]}}`},
	{"an apply of a custom object", "PATCH", widgets + "/NAME?fieldManager=x", asApply, codec.Applied, `{"apiVersion":"x.example/v1","kind":"Widget","metadata":{"name":"NAME"},"spec":{"x":[`, `{"a":1},`, `]}}`},
	{"an apply of custom fields", "PATCH", widgets + "/NAME?fieldManager=x", asApply, codec.Applied, `{"apiVersion":"x.example/v1","kind":"Widget","metadata":{"name":"NAME"},"spec":{"a":1`, `,"%s":1`, `}}`},
	{"an apply in YAML", "PATCH", widgets + "/NAME?fieldManager=x", asApply, codec.Applied, "apiVersion: x.example/v1\nkind: Widget\nmetadata: {name: NAME}\nspec:\n x:\n", " - a:\n", ""},

	{"options of a delete", "DELETE", maps + "/nothing", asJSON, codec.Whole, `{"x":[`, `{"a":1},`, `]}`},
	{"a request for a token", "POST", "/api/v1/namespaces/default/serviceaccounts/default/token", asJSON, codec.Whole, `{"spec":{"audiences":[`, `"",`, `]}}`},
}

// estimated is a body of a shape that is estimated at no more than that cost, and nearly that.
func (s *costly) estimated(t *testing.T, res *kinds.Resource, want int64) string {
	t.Helper()
	size := 16 << 10
	for range 8 {
		body := s.body(size)
		cost, err := codec.Cost(s.way, s.contentType, []byte(body), res)
		switch {
		case err != nil:
			t.Fatalf("%d bytes: %v", size, err)
		case cost <= want && float64(cost) > 0.9*float64(want):
			return body
		}
		size = int(0.97 * float64(size) * float64(want) / float64(cost))
	}
	t.Fatalf("no body is estimated at %d bytes", want)
	return ""
}

// of is the request for the object of a name.
func (s costly) of(name string) costly {
	s.path, s.head = strings.Replace(s.path, "NAME", name, 1), strings.Replace(s.head, "NAME", name, 1)
	return s
}

func (s *costly) body(size int) string { return filledWith(s.head, s.unit, s.tail, size) }

// defineWidgets makes a resource of which nothing is known but its name.
func (e *env) defineWidgets() *kinds.Resource {
	e.t.Helper()
	e.lead()
	w, answer := e.do(http.MethodPost, definitions, nil, `{"metadata":{"name":"widgets.x.example"},"spec":{"group":"x.example","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}]}}`)
	if w.StatusCode != http.StatusCreated {
		e.t.Fatalf("define: %d %s", w.StatusCode, answer)
	}
	for limit := time.Now().Add(patience); ; {
		res := e.definitions().Lookup(schema.GroupVersionResource{Group: "x.example", Version: "v1", Resource: "widgets"})
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
// codec.MaxCost: bodies that would take more are refused before they are decoded.
func TestBodiesCost(t *testing.T) {
	// Cost grows with the parts of a body, so an eighth of the limit tells as much, sooner. What
	// is in use is known only as of the last cycle, and has what was made since.
	const charged, slack = codec.MaxCost / 8, 2 << 20
	e := newEnv(t, func(c *apiserver.Config) { c.Tokens = noTokens{} })
	custom := e.defineWidgets()
	defer debug.SetGCPercent(debug.SetGCPercent(5))
	send := func(s *costly, body string) (code int) {
		r := httptest.NewRequest(s.method, s.path, strings.NewReader(body))
		r.Header.Set("Content-Type", s.contentType)
		w := &discard{header: http.Header{}}
		e.api.ServeHTTP(w, r)
		return w.code
	}
	for number, s := range costlyBodies {
		t.Run(s.name, func(t *testing.T) {
			// What is made once for a kind is not the body's.
			first := s.of(fmt.Sprintf("first%d", number))
			send(&first, first.body(len(first.head)+len(first.tail)+100))
			name := fmt.Sprintf("w%d", number)
			s := s.of(name)
			res := &kinds.Resource{Version: "v1", Kind: "Pod"}
			switch {
			case strings.HasPrefix(s.path, widgets):
				res = custom
			case strings.HasPrefix(s.path, definitions):
				res = &kinds.Resource{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
			}
			if s.method == http.MethodPatch && s.way == codec.Merged {
				kind := strings.TrimSuffix(s.path, "/"+name)
				if w, answer := e.do(http.MethodPost, kind, nil, fmt.Sprintf(`{"metadata":{"name":%q}}`, name)); w.StatusCode != http.StatusCreated {
					t.Fatalf("%d %s", w.StatusCode, answer)
				}
			}
			body, code := s.estimated(t, res, charged), 0
			peak := peakOf(func() { code = send(&s, body) })
			t.Logf("%7d bytes took %4.1f MiB: %d", len(body), float64(peak)/(1<<20), code)
			if peak > charged+slack {
				t.Errorf("it took %.1f MiB, and was charged with %d", float64(peak)/(1<<20), charged>>20)
			}
			full := s.body(3 << 20)
			if _, err := codec.Cost(s.way, s.contentType, []byte(full), res); err == nil {
				return // all bodies of that shape are accepted
			}
			if code = send(&s, full); code != http.StatusRequestEntityTooLarge {
				t.Errorf("%d bytes: %d", len(full), code)
			}
		})
	}
}

// TestBodiesAtOnce: sixty requests of one user at the same time, each as dear as may be,
// take no more than his share; some wait, the others are to try again, and another user is served.
func TestBodiesAtOnce(t *testing.T) {
	e := newEnv(t, nil)
	s := costly{"", "POST", reviews, asJSON, codec.Whole, review + `,"x":[`, `{"a":1},`, `]}`}
	body := s.estimated(t, &kinds.Resource{Version: "v1", Kind: "SelfSubjectAccessReview"}, codec.MaxCost/2)
	defer debug.SetGCPercent(debug.SetGCPercent(20))
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
