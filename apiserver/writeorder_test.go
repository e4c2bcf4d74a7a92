package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/internal/must"
)

// written is a write of TestWriteOrder, before it is sent.
type written struct {
	method, media, accept, name string
	query                       []string
	body                        map[string]any
	cut                         bool // the body ends early
}

func (w *written) meta() map[string]any { return w.body["metadata"].(map[string]any) }

// mistakes are what can be wrong with a write, by their names.
var mistakes = map[string]func(w *written){
	"accept":   func(w *written) { w.accept = "text/plain" },
	"protobuf": func(w *written) { w.accept = "application/vnd.kubernetes.protobuf" },
	"media":    func(w *written) { w.media = "text/plain" },
	"options":  func(w *written) { w.query = append(w.query, "fieldValidation=Bogus") },
	"force":    func(w *written) { w.query = append(w.query, "force=true") },
	"no-manager": func(w *written) {
		w.query = slices.DeleteFunc(w.query, func(s string) bool { return s == "fieldManager=m" })
	},
	"strict": func(w *written) {
		w.query = append(w.query, "fieldValidation=Strict")
		w.body["unknown"] = true
	},
	"cut":        func(w *written) { w.cut = true },
	"kind":       func(w *written) { w.body["kind"] = "Other" },
	"version":    func(w *written) { w.body["apiVersion"] = "other.example.com/v1" },
	"name":       func(w *written) { w.meta()["name"] = "other" },
	"namespace":  func(w *written) { w.meta()["namespace"] = "other" },
	"uid":        func(w *written) { w.meta()["uid"] = "other" },
	"no-version": func(w *written) { delete(w.meta(), "resourceVersion") },
	"stale":      func(w *written) { w.meta()["resourceVersion"] = "1" },
	"unreadable": func(w *written) { w.meta()["resourceVersion"] = "x" },
	"absent":     func(w *written) { w.name, w.meta()["name"] = "absent", "absent" },
	"type":       func(w *written) { w.body["spec"].(map[string]any)["replicas"] = "many" },
	"negative":   func(w *written) { w.body["spec"].(map[string]any)["replicas"] = -1 },
	"labels":     func(w *written) { w.meta()["labels"] = map[string]any{"": "x"} },
}

// mistakeNames are in order.
func mistakeNames() (names []string) {
	for name := range mistakes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// writeSources are the ways to say what an object is to be.
var writeSources = []struct{ name, method, media string }{
	{"put", http.MethodPut, "application/json"},
	{"merge", http.MethodPatch, "application/merge-patch+json"},
	{"strategic", http.MethodPatch, "application/strategic-merge-patch+json"},
	{"apply", http.MethodPatch, "application/apply-patch+yaml"},
}

// TestWriteOrder sends each sort of write to an object, its status and its scale, with each
// mistake and with each two. testdata/writes/order.golden has the answers, and which of two
// mistakes is told: the order in which a write is checked, and what is not.
func TestWriteOrder(t *testing.T) {
	e := newEnv(t, func(c *apiserver.Config) { c.Log = testLog(t) })
	e.lead()
	const (
		deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","namespace":"default"},"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
		box        = `{"apiVersion":"stable.example.com/v1","kind":"Box","metadata":{"name":"a","namespace":"default"},"spec":{"replicas":1}}`
		definition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"boxes.stable.example.com"},"spec":{"group":"stable.example.com","scope":"Namespaced","names":{"plural":"boxes","kind":"Box"},"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"replicas":{"type":"integer","minimum":0}}},"status":{"type":"object","properties":{"replicas":{"type":"integer"}}}}}}}]}}`
	)
	do := func(method, path, body string) string {
		w, answer := e.do(method, path, http.Header{"Content-Type": {"application/json"}}, body)
		if w.StatusCode > 299 {
			t.Fatalf("%s %s: %d %s", method, path, w.StatusCode, answer)
		}
		return answer
	}
	do(http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
	boxes := "/apis/stable.example.com/v1/namespaces/default/boxes"
	must.Await(t, patience, "boxes", func() string {
		if w, answer := e.do(http.MethodGet, boxes, nil, ""); w.StatusCode != http.StatusOK {
			return answer
		}
		return ""
	})
	var out strings.Builder
	for _, kind := range []struct{ path, body string }{{deployments, deployment}, {boxes, box}} {
		do(http.MethodPost, kind.path, kind.body)
		for _, target := range []string{"", "/status", "/scale"} {
			shown := do(http.MethodGet, kind.path+"/a"+target, "")
			for _, source := range writeSources {
				fmt.Fprintf(&out, "== %s %s\n", source.name, strings.TrimPrefix(kind.path, "/apis/")+"/a"+target)
				orderOf(t, e, &out, func() *written {
					w := &written{method: source.method, media: source.media, accept: "application/json", name: "a", query: []string{"dryRun=All", "fieldManager=m"}}
					must.OK(t, json.Unmarshal([]byte(shown), &w.body))
					delete(w.meta(), "managedFields")
					if source.name == "apply" {
						w.query = append(w.query, "force=true")
					}
					return w
				}, kind.path+"/NAME"+target)
			}
		}
	}
	golden(t, "testdata/writes/order.golden", out.String())
}

// orderOf writes what comes of one write with each mistake, and with each two.
func orderOf(t *testing.T, e *env, out *strings.Builder, base func() *written, path string) {
	t.Helper()
	names := mistakeNames()
	alone := map[string]string{}
	fmt.Fprintf(out, "%s\n", sent(t, e, base(), path))
	var refused []string
	for _, name := range names {
		w := base()
		mistakes[name](w)
		alone[name] = sent(t, e, w, path)
		fmt.Fprintf(out, "%s: %s\n", name, alone[name])
		if !strings.HasPrefix(alone[name], "20") {
			refused = append(refused, name)
		}
	}
	beats := map[string][]string{}
	var strange []string
	for i, a := range refused {
		for _, b := range refused[i+1:] {
			if a == "strict" && b == "type" {
				continue // the library of apply tells one of the two, or both
			}
			both := base()
			mistakes[a](both)
			mistakes[b](both)
			first, second := a, b
			switch answer := sent(t, e, both, path); {
			case alone[a] == alone[b]:
				continue
			case answer == alone[a]:
			case answer == alone[b]:
				first, second = b, a
			default:
				strange = append(strange, fmt.Sprintf("%s and %s: %s", a, b, answer))
				continue
			}
			beats[first] = append(beats[first], second)
		}
	}
	for _, first := range refused {
		if before := beats[first]; len(before) > 0 {
			fmt.Fprintf(out, "%s before %s\n", first, strings.Join(before, ", "))
		}
	}
	for _, s := range strange {
		fmt.Fprintln(out, s)
	}
	fmt.Fprintln(out)
}

// changing is what differs from run to run.
var changing = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|"resourceVersion":"\d+"|"(creationTimestamp|time)":"[^"]*"`)

// sent sends a write and returns the code and the message of the answer.
func sent(t *testing.T, e *env, w *written, path string) string {
	t.Helper()
	body, err := json.Marshal(w.body)
	must.OK(t, err)
	if w.cut {
		body = body[:len(body)-1]
	}
	r := httptest.NewRequest(w.method, strings.Replace(path, "NAME", w.name, 1)+"?"+strings.Join(w.query, "&"), strings.NewReader(string(body)))
	r.Header.Set("Content-Type", w.media)
	r.Header.Set("Accept", w.accept)
	answer := httptest.NewRecorder()
	e.api.ServeHTTP(answer, r)
	var status struct{ Kind, Message string }
	_ = json.Unmarshal(answer.Body.Bytes(), &status) // not all answers are JSON
	text := fmt.Sprintf("%d %s %s", answer.Code, status.Kind, strings.Join(answer.Header()["Warning"], " "))
	if status.Kind == "Status" {
		message := status.Message
		for _, quoted := range [...]string{`"{`, `"map[`} { // a body
			if before, _, long := strings.Cut(message, quoted); long {
				message = before + quoted
			}
		}
		text = fmt.Sprintf("%d %.300s", answer.Code, message)
	}
	return strings.Join(strings.Fields(changing.ReplaceAllString(text, "...")), " ")
}
