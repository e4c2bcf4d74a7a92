package differential

import (
	"context"
	"encoding/pem"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// requestOf is the key of the user's extra values that names the request. Webhooks see it, and
// nothing else depends on it.
const requestOf = "request"

// phases are what webhooks are for; each shows the object at another time.
var phases = []string{"mutating", "validating"}

// reviewers are two webhooks of each server. They allow everything and keep what they were asked.
type reviewers struct {
	mu sync.Mutex
	// seen is by the request, the server and the phase. A write that is decided again is seen as it
	// was decided last.
	seen map[string]map[string]any
}

// newReviewers has both servers ask webhooks about each write.
func newReviewers(t *testing.T, b both) *reviewers {
	t.Helper()
	v := &reviewers{seen: map[string]map[string]any{}}
	s := httptest.NewTLSServer(v)
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	for _, to := range b.all() {
		for _, phase := range phases {
			kind := strings.ToUpper(phase[:1]) + phase[1:] + "WebhookConfiguration"
			config := map[string]any{
				"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": map[string]any{"name": "differential"},
				"webhooks": []any{map[string]any{
					"name":         "reviews.differential.test",
					"clientConfig": map[string]any{"url": s.URL + "/" + to.name + "/" + phase, "caBundle": ca},
					"rules": []any{map[string]any{
						"apiGroups": []string{"*"}, "apiVersions": []string{"*"}, "operations": []string{"*"}, "resources": []string{"*/*"},
					}},
					"sideEffects": "None", "admissionReviewVersions": []string{"v1"}, "timeoutSeconds": 30,
				}},
			}
			path := "/apis/admissionregistration.k8s.io/v1/" + strings.ToLower(kind) + "s"
			a, err := to.send(t.Context(), http.MethodPost, path, "application/json", encode(config))
			must.OK(t, err)
			if a.code != http.StatusCreated {
				t.Fatalf("%s: POST %s: %d %s", to.name, path, a.code, a.body)
			}
		}
		v.await(t, to)
	}
	return v
}

// await returns when a server asks in both phases.
func (v *reviewers) await(t *testing.T, s *server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const first = "the first"
	for range time.Tick(50 * time.Millisecond) {
		a, err := s.sendAs(ctx, first, http.MethodPost, "/api/v1/namespaces/default/configmaps?dryRun=All", "application/json", []byte(`{"metadata":{"name":"reviews"}}`))
		must.OK(t, err)
		all := true
		for _, phase := range phases {
			all = v.take(first, s.name, phase) != nil && all
		}
		if a.code == http.StatusCreated && all {
			return
		}
	}
}

// ServeHTTP answers /SERVER/PHASE.
func (v *reviewers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	review, err := decode(raw)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	asked, _ := review["request"].(map[string]any)
	if ids, _ := field(asked, "userInfo", "extra", requestOf).([]any); len(ids) == 1 {
		v.mu.Lock()
		v.seen[text(ids[0])+r.URL.Path] = asked
		v.mu.Unlock()
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(encode(map[string]any{ // a server that has gone is not answered
		"apiVersion": review["apiVersion"], "kind": review["kind"],
		"response": map[string]any{"uid": asked["uid"], "allowed": true},
	}))
}

// take is what a webhook was asked last about a request, once; nil if it was not asked.
func (v *reviewers) take(id, server, phase string) map[string]any {
	key := id + "/" + server + "/" + phase
	v.mu.Lock()
	defer v.mu.Unlock()
	asked := v.seen[key]
	delete(v.seen, key)
	return asked
}

// compare holds against each other what the webhooks of both were asked.
func (v *reviewers) compare(b both, q *request, o *outcome) {
	var all []line
	for _, phase := range phases {
		there, here := v.take(q.id, b.there.name, phase), v.take(q.id, b.here.name, phase)
		switch {
		case there == nil && here == nil:
			continue
		case there == nil:
			all = append(all, line{'+', phase + " is asked"})
			continue
		case here == nil && phase == "mutating" && o.codes[0] >= 300:
			continue // what is refused in any case may be refused before
		case here == nil:
			all = append(all, line{'-', phase + " is asked"})
			continue
		}
		generated := text(field(there, "object", "metadata", "generateName"))
		for _, asked := range []map[string]any{there, here} {
			if phase == "mutating" {
				q.onlyWritten(asked["object"])
			}
			for _, part := range []string{"object", "oldObject"} {
				if meta, _ := field(asked, part, "metadata").(map[string]any); strings.HasSuffix(q.verb, "/scale") {
					delete(meta, "managedFields") // nobody manages the fields of a Scale here
				}
			}
		}
		for _, part := range []string{"object", "oldObject", "options", "rest"} {
			x, y := there[part], here[part]
			if part == "rest" {
				x, y = there, here
			}
			d := differ{generated: generated, later: q.later}
			d.compare(nil, x, y)
			for _, l := range d.lines {
				all = append(all, line{l.sign, phase + " " + part + " " + l.detail})
			}
			delete(there, part)
			delete(here, part)
		}
	}
	if o.codes[0] == o.codes[1] && all != nil {
		o.differ[otherReviews] = all
	}
}

// onlyWritten takes out of what mutating webhooks see what the request cannot write: kube-apiserver shows
// that as the client has sent it, Quorate as it will be.
func (q *request) onlyWritten(object any) {
	obj, _ := object.(map[string]any)
	meta, _ := obj["metadata"].(map[string]any)
	for _, name := range []string{"generation", "resourceVersion", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		delete(meta, name)
	}
	_, subresource, _ := strings.Cut(q.verb, "/")
	switch subresource {
	case "":
		delete(obj, "status")
	case "scale":
		maps.DeleteFunc(obj, func(name string, _ any) bool { return name != "spec" })
	case "status":
		maps.DeleteFunc(obj, func(name string, _ any) bool { return name != "status" })
	default: // what it writes of the spec, validating webhooks see
		delete(obj, "metadata")
		delete(obj, "spec")
		delete(obj, "status")
	}
}
