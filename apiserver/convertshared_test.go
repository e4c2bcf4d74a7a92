package apiserver_test

import (
	"github.com/quorate/quorate/apiserver/backends/services"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/raftstore/view"

	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/proto"
)

// routes is a definition of which v1 is stored and v1beta1 needs the webhook; client is
// its clientConfig.
func routes(client string) string {
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"routes.stable.example.com"},
"spec":{"group":"stable.example.com","scope":"Namespaced","names":{"plural":"routes","kind":"Route"},
"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":%s}},
"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}},
{"name":"v1beta1","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}]}}`, client)
}

func (h *convertHook) client() string {
	return fmt.Sprintf(`{"url":"%s","caBundle":"%s"}`, h.http.URL, h.ca())
}

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// define stores a definition and waits until it is served.
func (e *env) define(definition, path string) {
	e.t.Helper()
	if w, body := e.do(http.MethodPost, definitionsPath, nil, definition); w.StatusCode != http.StatusCreated {
		e.t.Fatalf("%d %s", w.StatusCode, body)
	}
	e.await(path, http.StatusOK)
}

// await asks until a GET has a code.
func (e *env) await(path string, code int) (body string) {
	e.t.Helper()
	must.Await(e.t, patience, "GET "+path, func() string {
		var w *http.Response
		if w, body = e.do(http.MethodGet, path, nil, ""); w.StatusCode != code {
			return fmt.Sprint(w.StatusCode, " ", clip(body))
		}
		return ""
	})
	return body
}

func (e *env) route(name string) {
	e.t.Helper()
	w, body := e.do(http.MethodPost, routesV1, nil, fmt.Sprintf(`{"apiVersion":"stable.example.com/v1","kind":"Route","metadata":{"name":%q},"spec":{"host":"h","port":"1"}}`, name))
	if w.StatusCode != http.StatusCreated {
		e.t.Fatalf("%d %s", w.StatusCode, body)
	}
}

const (
	routesV1   = "/apis/stable.example.com/v1/namespaces/default/routes"
	routesBeta = "/apis/stable.example.com/v1beta1/namespaces/default/routes"
)

// TestConversionShared: a list is converted in few calls, an event once for all its
// watches, and a webhook that hangs keeps only those waiting who need it.
func TestConversionShared(t *testing.T) {
	e := newEnv(t, nil)
	e.lead()
	h := newConvertHook(t)
	e.define(routes(h.client()), routesV1)
	const objects, watches = 250, 20
	for i := range objects {
		e.route(fmt.Sprintf("r%03d", i))
	}
	if _, body := e.do(http.MethodGet, routesBeta, nil, ""); strings.Count(body, `"hostPort":"h:1"`) != objects {
		t.Fatalf("not all are converted: %s", clip(body))
	}
	if calls, n := h.calls.Swap(0), h.objects.Swap(0); calls != 3 || n != objects {
		t.Errorf("a list of %d objects took %d calls with %d objects", objects, calls, n)
	}
	var streams []*stream
	for range watches {
		s := e.watch(routesBeta + "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
		for !strings.Contains(e.next(s), "initial-events-end") {
		}
		streams = append(streams, s)
	}
	if calls := h.calls.Swap(0); calls != 0 {
		t.Errorf("what was converted for the list is converted again, in %d calls", calls)
	}
	e.route("new")
	for _, s := range streams {
		for !strings.Contains(e.next(s), `"name":"new"`) {
		}
	}
	if calls := h.calls.Swap(0); calls != 1 {
		t.Errorf("one event for %d watches took %d calls", watches, calls)
	}

	other := e.watch(routesV1 + "?watch=1&resourceVersion=0&allowWatchBookmarks=true")
	h.set("hang")
	e.route("held")
	for !strings.Contains(e.next(other), `"name":"held"`) {
	}
	if w, _ := e.do(http.MethodGet, routesV1+"/held", nil, ""); w.StatusCode != http.StatusOK {
		t.Errorf("a get in the stored version: %d", w.StatusCode)
	}
	h.release()
	for _, s := range streams {
		for !strings.Contains(e.next(s), `"hostPort":"h:1"`) {
		}
	}
}

// TestConversionSideBySide: a long list asks the webhook four times at a time, and is in order
// whichever answer comes first; what one call is refused for, the list is.
func TestConversionSideBySide(t *testing.T) {
	e := newEnv(t, nil)
	e.lead()
	h := newConvertHook(t)
	e.define(routes(h.client()), routesV1)
	const objects = 950
	for i := range objects {
		e.route(fmt.Sprintf("r%03d", i))
	}
	h.set("hang")
	type answer struct {
		code int
		body string
	}
	answers := make(chan answer)
	list := func() {
		w, body := e.do(http.MethodGet, routesBeta, nil, "")
		answers <- answer{w.StatusCode, body}
	}
	go list()
	must.Await(t, patience, "calls", func() string {
		if n := h.calls.Load(); n != 4 {
			return fmt.Sprintf("%d are under way, want 4", n)
		}
		return ""
	})
	h.release()
	a := <-answers
	if n := h.calls.Swap(0); n != 10 {
		t.Errorf("a list of %d objects took %d calls", objects, n)
	}
	last := -1
	for i := range objects {
		at := strings.Index(a.body, fmt.Sprintf(`"name":"r%03d"`, i))
		if at <= last {
			t.Fatalf("r%03d is at %d, behind %d", i, at, last)
		}
		last = at
	}
	if n := strings.Count(a.body, `"hostPort":"h:1"`); n != objects {
		t.Errorf("%d objects are converted", n)
	}

	// Other revisions, which nobody has converted, and an answer that is wrong.
	for i := range objects {
		e.do(http.MethodPatch, fmt.Sprintf("%s/r%03d", routesV1, i), http.Header{"Content-Type": {"application/merge-patch+json"}}, `{"metadata":{"labels":{"a":"b"}}}`)
	}
	h.set("500")
	go list()
	if a := <-answers; a.code != http.StatusInternalServerError || !strings.Contains(a.body, "conversion webhook for") {
		t.Errorf("a list whose conversions fail: %d %s", a.code, clip(a.body))
	}
	if n := h.calls.Load(); n > 4 {
		t.Errorf("%d calls for a list that could not succeed", n)
	}
}

// TestConversionDecidedAgain: a patch in the other version whose object changes meanwhile is decided
// again on the newer one, which is converted; nothing of what was converted before is taken for it.
func TestConversionDecidedAgain(t *testing.T) {
	e := newEnv(t, nil)
	e.lead()
	h := newConvertHook(t)
	e.define(routes(h.client()), routesV1)
	e.route("a")
	patch := func(path, body string) string {
		w, answer := e.do(http.MethodPatch, path, http.Header{"Content-Type": {"application/merge-patch+json"}}, body)
		if w.StatusCode != http.StatusOK {
			t.Errorf("PATCH %s: %d %s", path, w.StatusCode, answer)
		}
		return answer
	}
	h.set("hang")
	answer := make(chan string)
	go func() { answer <- patch(routesBeta+"/a", `{"spec":{"extra":"b"}}`) }()
	must.Await(t, patience, "the first review", func() string {
		if h.calls.Load() == 0 {
			return "none yet"
		}
		return ""
	})
	patch(routesV1+"/a", `{"spec":{"port":"2"}}`)
	h.release()
	if got := <-answer; !strings.Contains(got, `"hostPort":"h:2"`) || !strings.Contains(got, `"extra":"b"`) {
		t.Errorf("patched: %s", got)
	}
	if _, got := e.do(http.MethodGet, routesV1+"/a", nil, ""); !strings.Contains(got, `"port":"2"`) || !strings.Contains(got, `"extra":"b"`) {
		t.Errorf("stored: %s", got)
	}
}

// TestConversionHangs: a write waits once for a webhook that hangs, though its fields, for which the
// webhook is asked first, need not be tracked.
func TestConversionHangs(t *testing.T) {
	e := newEnv(t, func(c *apiserver.Config) { c.Limits.Conversion = 200 * time.Millisecond })
	e.lead()
	h := newConvertHook(t)
	e.define(routes(h.client()), routesV1)
	e.route("a")
	e.await(routesBeta+"/a", http.StatusOK) // so that to read it needs no webhook
	h.calls.Store(0)
	h.set("hang")
	w, body := e.do(http.MethodPatch, routesBeta+"/a", http.Header{"Content-Type": {"application/merge-patch+json"}}, `{"spec":{"hostPort":"h:2"}}`)
	if w.StatusCode != http.StatusInternalServerError || !strings.Contains(body, "conversion webhook for stable.example.com/v1beta1, Kind=Route failed: Post") {
		t.Errorf("%d %s", w.StatusCode, body)
	}
	if n := h.calls.Load(); n != 1 {
		t.Errorf("%d calls, each of which takes all the time there is", n)
	}
	h.set("right")
	if w, body := e.do(http.MethodPatch, routesBeta+"/a", http.Header{"Content-Type": {"application/merge-patch+json"}}, `{"spec":{"hostPort":"h:2"}}`); w.StatusCode != http.StatusOK || !strings.Contains(body, `"manager"`) {
		t.Errorf("when it answers again: %d %s", w.StatusCode, body)
	}
}

// TestConversionPages: pages and limits of a list whose selector is about converted
// objects.
func TestConversionPages(t *testing.T) {
	e := newEnv(t, nil)
	e.lead()
	h := newConvertHook(t)
	e.define(routes(h.client()), routesV1)
	for i := range 230 {
		h.set("right")
		e.route(fmt.Sprintf("r%03d", i))
	}
	h.set("meta") // every converted object has the label
	var got int
	for next, pages := "", 0; ; pages++ {
		_, body := e.do(http.MethodGet, routesBeta+"?limit=60&labelSelector=added&continue="+next, nil, "")
		got += strings.Count(body, `"hostPort"`)
		next, _ = field(t, body, "metadata", "continue").(string)
		if next == "" {
			if pages != 3 {
				t.Errorf("%d pages before the last", pages)
			}
			break
		}
	}
	if got != 230 {
		t.Errorf("%d objects in all pages", got)
	}
	if _, body := e.do(http.MethodGet, routesV1+"?labelSelector=added", nil, ""); strings.Contains(body, `"host"`) {
		t.Errorf("the stored version is selected by another one's labels: %s", clip(body))
	}
}

// TestConversionService: a service is reached at its cluster IP, or with endpoint
// routing at a ready endpoint; what is missing is told.
func TestConversionService(t *testing.T) {
	e := newEnv(t, func(c *apiserver.Config) { c.Resolve = services.New(c.Store.(view.Store), true).Resolve })
	e.lead()
	h := newConvertHook(t)
	e.define(routes(fmt.Sprintf(`{"service":{"namespace":"default","name":"converter","path":"/convert"},"caBundle":"%s"}`, h.ca())), routesV1)
	e.route("a")
	refused := func(want string) {
		t.Helper()
		if w, body := e.do(http.MethodGet, routesBeta+"/a", nil, ""); w.StatusCode != http.StatusInternalServerError || !strings.Contains(body, want) {
			t.Errorf("%d %s, want %s", w.StatusCode, body, want)
		}
	}
	post := func(path, body string) {
		t.Helper()
		if w, answer := e.do(http.MethodPost, path, nil, body); w.StatusCode != http.StatusCreated {
			t.Fatalf("%d %s", w.StatusCode, answer)
		}
	}
	refused(`Post \"https://converter.default.svc:443/convert?timeout=30s\": service \"converter\" not found`)
	post("/api/v1/namespaces/default/services", `{"metadata":{"name":"converter"},"spec":{"ports":[{"name":"web","port":80},{"name":"hook","port":443}]}}`)
	refused(`no endpoints available for service \"converter\"`)
	host, port, err := net.SplitHostPort(h.http.Listener.Addr().String())
	must.OK(t, err)
	slice := `{"metadata":{"name":"%s","labels":{"kubernetes.io/service-name":"converter"}},"addressType":"IPv4","ports":[{"name":"hook","port":%s}],"endpoints":[{"addresses":["%s"],"conditions":{"ready":%v}}]}`
	// Past the API, which takes no endpoints on loopback.
	put := func(name, port, host string, ready bool) {
		t.Helper()
		if _, err := e.store.Propose(t.Context(), &proto.Write{
			Table: "endpointslices.discovery.k8s.io", Key: "default/" + name, Op: proto.Op_OP_PUT, Value: fmt.Appendf(nil, slice, name, port, host, ready),
			Labels: []*proto.Attribute{{Name: "kubernetes.io/service-name", Value: "converter"}}, RequestId: []byte(strings.Repeat(name, 4)),
		}); err != nil {
			t.Fatal(err)
		}
	}
	put("gone", "1", "127.0.0.2", false)
	refused(`no endpoints available for service \"converter\"`)
	put("here", port, host, true)
	// The endpoint is found; its certificate is for other names.
	refused("not converter.default.svc")
}
