package apiserver_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
)

// admissionHook is a webhook server. What it answers is a function of the review's request.
type admissionHook struct {
	http *httptest.Server
	mu   sync.Mutex
	// asked are the requests, as "OPERATION resource/subresource name" and what is in asks.
	asked  []string
	answer func(request map[string]any) map[string]any
	serve  http.HandlerFunc // instead of answer
}

func newAdmissionHook(t testing.TB) *admissionHook {
	h := &admissionHook{}
	h.http = httptest.NewTLSServer(h)
	t.Cleanup(h.http.Close)
	return h
}

func (h *admissionHook) set(answer func(request map[string]any) map[string]any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked, h.answer, h.serve = nil, answer, nil
}

func (h *admissionHook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review map[string]any
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	request := review["request"].(map[string]any)
	resource := request["resource"].(map[string]any)
	name, _ := request["name"].(string)
	sub, _ := request["subResource"].(string)
	h.mu.Lock()
	h.asked = append(h.asked, fmt.Sprintf("%s %v.%v/%s %s", request["operation"], resource["resource"], resource["version"], sub, name))
	answer, serve := h.answer, h.serve
	h.mu.Unlock()
	if serve != nil {
		serve(w, r)
		return
	}
	response := answer(request)
	if _, ok := response["uid"]; !ok {
		response["uid"] = request["uid"]
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": review["kind"], "apiVersion": review["apiVersion"], "response": response})
}

// allow, deny and patched are answers.
func allow(map[string]any) map[string]any { return map[string]any{"allowed": true} }

func deny(text string) func(map[string]any) map[string]any {
	return func(map[string]any) map[string]any {
		return map[string]any{"allowed": false, "status": map[string]any{"message": text}}
	}
}

func patched(patch string) func(map[string]any) map[string]any {
	return func(map[string]any) map[string]any {
		return map[string]any{"allowed": true, "patchType": "JSONPatch", "patch": base64.StdEncoding.EncodeToString([]byte(patch))}
	}
}

// configure stores a configuration with one webhook, which has more besides.
func (h *admissionHook) configure(e *env, kind, name, more string) {
	e.t.Helper()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.http.Certificate().Raw}))
	plural := strings.ToLower(kind) + "webhookconfigurations"
	body := fmt.Sprintf(`{"metadata":{"name":%q},"webhooks":[{"name":"%s.example.com","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"url":%q,"caBundle":%q}%s}]}`, name, name, h.http.URL, ca, more)
	if w, answer := e.do("POST", "/apis/admissionregistration.k8s.io/v1/"+plural, nil, body); w.StatusCode != 201 {
		e.t.Fatalf("%d %s", w.StatusCode, answer)
	}
}

// rule is a webhook's rules: one resource, all operations.
func rule(group, version, resource string) string {
	return fmt.Sprintf(`,"rules":[{"apiGroups":[%q],"apiVersions":[%q],"operations":["*"],"resources":[%q]}]`, group, version, resource)
}

// newHookedEnv is an env with the admission plugins that are on by default.
func newHookedEnv(t testing.TB) *env { return newAdmittingEnv(t, func(*apiserver.Config) {}) }

func newAdmittingEnv(t testing.TB, change func(*apiserver.Config)) *env {
	var e *env
	e = newEnv(t, func(c *apiserver.Config) {
		change(c)
		c.Admission = defaultPlugins(t, c, func(obj tree.Object, from, to *kinds.Resource) (tree.Object, error) {
			return e.api.Objects().ConvertWhole(obj, from, to)
		})
	})
	return e
}

// TestAdmissionWebhooks: a mutating and a validating webhook see what upstream's see, and what
// they answer counts.
func TestAdmissionWebhooks(t *testing.T) {
	e := newHookedEnv(t)
	mutates, validates := newAdmissionHook(t), newAdmissionHook(t)
	mutates.configure(e, "Mutating", "m", rule("", "v1", "configmaps"))
	validates.configure(e, "Validating", "v", rule("", "v1", "configmaps"))
	merge := http.Header{"Content-Type": {"application/merge-patch+json"}}
	apply := http.Header{"Content-Type": {"application/apply-patch+yaml"}}
	added := patched(`[{"op":"add","path":"/data/hook","value":"was here"}]`)
	for _, r := range []struct {
		name               string
		method, path, body string
		header             http.Header
		mutate, validate   func(map[string]any) map[string]any
		code               int
		answer             string
		mutates, validates string // what was asked
	}{
		{"create", "POST", maps, `{"metadata":{"name":"a"},"data":{"k":"v"}}`, nil, added, allow, 201, `"hook":"was here"`, "CREATE configmaps.v1/ a", "CREATE configmaps.v1/ a"},
		{"deny", "POST", maps, `{"metadata":{"name":"b"}}`, nil, allow, deny("not today"), 400, `admission webhook \"v.example.com\" denied the request: not today`, "CREATE configmaps.v1/ b", "CREATE configmaps.v1/ b"},
		{"deny early", "POST", maps, `{"metadata":{"name":"b"}}`, nil, deny("no"), allow, 400, `admission webhook \"m.example.com\" denied the request: no`, "CREATE configmaps.v1/ b", ""},
		{"put", "PUT", maps + "/a", `{"metadata":{"name":"a"},"data":{"k":"w"}}`, nil, added, allow, 200, `"hook":"was here"`, "UPDATE configmaps.v1/ a", "UPDATE configmaps.v1/ a"},
		{"patch", "PATCH", maps + "/a", `{"data":{"k":"x"}}`, merge, patched(`[{"op":"remove","path":"/data/k"}]`), allow, 200, `"data":{"hook":"was here"}`, "UPDATE configmaps.v1/ a", "UPDATE configmaps.v1/ a"},
		{"apply", "PATCH", maps + "/c?fieldManager=x", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {k: v}", apply, added, allow, 201, `"hook":"was here"`, "CREATE configmaps.v1/ c", "CREATE configmaps.v1/ c"},
		{"wrong type", "POST", maps, `{"metadata":{"name":"b"},"data":{}}`, nil, patched(`[{"op":"add","path":"/data","value":{"a":1}}]`), allow, 500, `Internal error occurred: json: cannot unmarshal number into Go struct field ConfigMap.data of type string`, "CREATE configmaps.v1/ b", ""},
		{"unknown field", "POST", maps, `{"metadata":{"name":"d"},"data":{}}`, nil, patched(`[{"op":"add","path":"/nonsense","value":1}]`), allow, 201, `"name":"d"`, "CREATE configmaps.v1/ d", "CREATE configmaps.v1/ d"},
		{"no kind", "POST", maps, `{"metadata":{"name":"e"}}`, nil, patched(`[{"op":"remove","path":"/kind"},{"op":"add","path":"/data","value":{"hook":"was here"}}]`), allow, 201, `"kind":"ConfigMap"`, "CREATE configmaps.v1/ e", "CREATE configmaps.v1/ e"},
		{"no version", "PUT", maps + "/e", `{"metadata":{"name":"e"}}`, nil, patched(`[{"op":"replace","path":"/apiVersion","value":""},{"op":"add","path":"/data","value":{"hook":"was here"}}]`), allow, 200, `"hook":"was here"`, "UPDATE configmaps.v1/ e", "UPDATE configmaps.v1/ e"},
		{"null for a kind", "PATCH", maps + "/e", `{"data":{"k":"x"}}`, merge, patched(`[{"op":"replace","path":"/kind","value":null}]`), allow, 200, `"k":"x"`, "UPDATE configmaps.v1/ e", "UPDATE configmaps.v1/ e"},
		{"an object that does not say what it is", "POST", maps, `{"metadata":{"name":"f"}}`, nil, patched(`[{"op":"replace","path":"","value":{"metadata":{"name":"f","namespace":"default"},"data":{"hook":"was here"}}}]`), allow, 201, `"hook":"was here"`, "CREATE configmaps.v1/ f", "CREATE configmaps.v1/ f"},
		{"invalid", "POST", maps, `{"metadata":{"name":"b"},"data":{"k":"v"}}`, nil, patched(`[{"op":"add","path":"/data/a~1b","value":"v"}]`), allow, 422, `data[a/b]`, "CREATE configmaps.v1/ b", ""},
		{"generated name", "POST", maps, `{"metadata":{"generateName":"g-"},"data":{"k":"v"}}`, nil, added, allow, 201, `"hook":"was here"`, "CREATE configmaps.v1/ ", "CREATE configmaps.v1/ g-"},
		{"given name", "POST", maps, `{"metadata":{"generateName":"g-"}}`, nil, patched(`[{"op":"add","path":"/metadata/name","value":"given"}]`), allow, 201, `"name":"given"`, "CREATE configmaps.v1/ ", "CREATE configmaps.v1/ given"},
		{"another name", "PUT", maps + "/a", `{"metadata":{"name":"a"}}`, nil, patched(`[{"op":"replace","path":"/metadata/name","value":"z"}]`), allow, 422, `field is immutable`, "UPDATE configmaps.v1/ a", ""},
		{"another namespace", "POST", maps, `{"metadata":{"name":"b"}}`, nil, patched(`[{"op":"replace","path":"/metadata/namespace","value":"z"}]`), allow, 400, `does not match the namespace`, "CREATE configmaps.v1/ b", ""},
		{"another version", "PUT", maps + "/a", `{"metadata":{"name":"a"},"data":{"k":"y"}}`, nil, patched(`[{"op":"add","path":"/metadata/resourceVersion","value":"1"}]`), allow, 409, `the object has been modified`, "UPDATE configmaps.v1/ a", ""},
		{"dry run", "POST", maps + "?dryRun=All", `{"metadata":{"name":"b"},"data":{"k":"v"}}`, nil, added, allow, 201, `"hook":"was here"`, "CREATE configmaps.v1/ b", "CREATE configmaps.v1/ b"},
		{"other kind", "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"b"}}`, nil, added, allow, 201, `"name":"b"`, "", ""},
		{"delete", "DELETE", maps + "/a", "", nil, allow, allow, 200, `Success`, "DELETE configmaps.v1/ a", "DELETE configmaps.v1/ a"},
		{"collection", "DELETE", maps + "?fieldSelector=metadata.name%3Dc", "", nil, allow, allow, 200, `"name":"c"`, "DELETE configmaps.v1/ ", "DELETE configmaps.v1/ "},
	} {
		t.Run(r.name, func(t *testing.T) {
			mutates.set(r.mutate)
			validates.set(r.validate)
			w, answer := e.do(r.method, r.path, r.header, r.body)
			if w.StatusCode != r.code || !strings.Contains(answer, r.answer) {
				t.Errorf("%d %s, want %d and %s", w.StatusCode, clip(answer), r.code, r.answer)
			}
			if strings.Contains(answer, "nonsense") {
				t.Errorf("%s has an unknown field", answer)
			}
			for _, h := range []struct {
				name string
				hook *admissionHook
				want string
			}{{"mutating", mutates, r.mutates}, {"validating", validates, r.validates}} {
				h.hook.mu.Lock()
				if got := strings.Join(h.hook.asked, "; "); got != h.want && (h.want == "" || r.name != "generated name" || !strings.HasPrefix(got, h.want)) {
					t.Errorf("the %s webhook was asked %q, want %q", h.name, got, h.want)
				}
				h.hook.mu.Unlock()
			}
		})
	}
}

// TestAdmissionWebhookReview is what a webhook is sent.
func TestAdmissionWebhookReview(t *testing.T) {
	e := newHookedEnv(t)
	h := newAdmissionHook(t)
	h.configure(e, "Validating", "v", rule("", "v1", "configmaps"))
	var seen map[string]any
	h.set(func(request map[string]any) map[string]any {
		seen = request
		return map[string]any{"allowed": true, "warnings": []string{"mind the gap"}}
	})
	w, answer := e.do("POST", maps+"?fieldManager=me", nil, `{"metadata":{"name":"a"},"data":{"k":"v"}}`)
	if w.StatusCode != 201 || w.Header.Get("Warning") != `299 - "mind the gap"` {
		t.Fatalf("%d %s %q", w.StatusCode, answer, w.Header)
	}
	if raw, _ := json.Marshal(seen["oldObject"]); !bytes.Equal(raw, []byte("null")) {
		t.Errorf("oldObject %s", raw)
	}
	for path, want := range map[string]string{
		"kind": `{"group":"","kind":"ConfigMap","version":"v1"}`, "requestKind": `{"group":"","kind":"ConfigMap","version":"v1"}`,
		"resource": `{"group":"","resource":"configmaps","version":"v1"}`, "requestResource": `{"group":"","resource":"configmaps","version":"v1"}`,
		"name": `"a"`, "namespace": `"default"`, "operation": `"CREATE"`, "dryRun": "false",
		"userInfo": `{"groups":["system:masters","system:authenticated"],"username":"admin"}`,
		"options":  `{"apiVersion":"meta.k8s.io/v1","fieldManager":"me","kind":"CreateOptions"}`,
	} {
		if raw, _ := json.Marshal(seen[path]); string(raw) != want {
			t.Errorf("%s is %s, want %s", path, raw, want)
		}
	}
	object := seen["object"].(map[string]any)
	if object["kind"] != "ConfigMap" || object["apiVersion"] != "v1" || object["metadata"].(map[string]any)["managedFields"] == nil {
		t.Errorf("object %v", object)
	}
}

// TestAdmissionWebhookFailures: a webhook that fails refuses writes, or is passed over, as its
// failure policy says, in upstream's words.
func TestAdmissionWebhookFailures(t *testing.T) {
	answer := func(change func(review, response map[string]any)) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			response := map[string]any{"uid": "?", "allowed": true}
			review := map[string]any{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}
			change(review, response)
			_ = json.NewEncoder(w).Encode(review)
		}
	}
	for _, c := range []struct {
		name  string
		serve http.HandlerFunc
		want  string
	}{
		{"uid", answer(func(_, _ map[string]any) {}), `received invalid webhook response: expected response.uid=`},
		{"absent", answer(func(review, _ map[string]any) { delete(review, "response") }), `received invalid webhook response: webhook response was absent`},
		{"kind", answer(func(review, _ map[string]any) { review["kind"] = "Pod" }), `failed to call webhook`},
		{"nonsense", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "nonsense") }, `failed to call webhook`},
		{"status", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
		}, `failed to call webhook: the server is currently unable to handle the request`},
		{"truncated", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `{"kind":`)
		}, `Original error: unexpected EOF`},
		{"huge", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 9<<20)) }, `Original error: the answer has more than 8388608 bytes`},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, `failed to call webhook`},
		{"slow", func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // and not an empty 200, which the client may still take
		}, `context deadline exceeded`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newHookedEnv(t)
			h := newAdmissionHook(t)
			h.serve = c.serve
			timeout := 30 // megabytes take seconds on a busy machine
			if c.name == "slow" {
				timeout = 1
			}
			h.configure(e, "Validating", "v", rule("", "v1", "configmaps")+fmt.Sprintf(`,"timeoutSeconds":%d`, timeout))
			w, answer := e.do("POST", maps, nil, `{"metadata":{"name":"a"}}`)
			if w.StatusCode != 500 || !strings.Contains(answer, `Internal error occurred: failed calling webhook \"v.example.com\": `) || !strings.Contains(answer, c.want) {
				t.Errorf("%d %s, want %s", w.StatusCode, clip(answer), c.want)
			}
			h.mu.Lock()
			if len(h.asked) != 1 {
				t.Errorf("asked %q, want one call", h.asked)
			}
			h.mu.Unlock()
			merge := http.Header{"Content-Type": {"application/json-patch+json"}}
			const hook = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v"
			if w, answer := e.do("PATCH", hook, merge, `[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`); w.StatusCode != 200 {
				t.Fatalf("%d %s", w.StatusCode, answer)
			}
			if w, answer := e.do("POST", maps, nil, `{"metadata":{"name":"a"}}`); w.StatusCode != 201 {
				t.Errorf("ignored: %d %s", w.StatusCode, clip(answer))
			}
			if w, answer := e.do("DELETE", hook, nil, ""); w.StatusCode != 200 {
				t.Fatalf("%d %s", w.StatusCode, answer)
			}
			if w, answer := e.do("POST", maps, nil, `{"metadata":{"name":"b"}}`); w.StatusCode != 201 {
				t.Errorf("deleted: %d %s", w.StatusCode, clip(answer))
			}
		})
	}
}

// TestAdmissionWebhookUnreachable: a webhook that is not there, and one whose certificate does not
// hold or whose Service is not there.
func TestAdmissionWebhookUnreachable(t *testing.T) {
	e := newHookedEnv(t)
	h := newAdmissionHook(t)
	for name, c := range map[string]struct{ client, want string }{
		"certificate": {fmt.Sprintf(`{"url":%q}`, h.http.URL), `x509: certificate signed by unknown authority`},
		"service":     {`{"service":{"namespace":"default","name":"hook"}}`, `service \"hook\" not found`},
		"dead":        {`{"url":"https://127.0.0.1:1"}`, `connect: connection refused`},
	} {
		body := fmt.Sprintf(`{"metadata":{"name":%q},"webhooks":[{"name":"v.example.com","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":%s%s}]}`, name, c.client, rule("", "v1", "configmaps"))
		const path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
		if w, answer := e.do("POST", path, nil, body); w.StatusCode != 201 {
			t.Fatalf("%d %s", w.StatusCode, answer)
		}
		if w, answer := e.do("POST", maps, nil, `{"metadata":{"name":"a"}}`); w.StatusCode != 500 || !strings.Contains(answer, c.want) {
			t.Errorf("%s: %d %s, want %s", name, w.StatusCode, answer, c.want)
		}
		if w, answer := e.do("DELETE", path+"/"+name, nil, ""); w.StatusCode != 200 {
			t.Fatalf("%d %s", w.StatusCode, answer)
		}
	}
}

// TestAdmissionWebhookOutOfTime: whose time is over while a webhook is asked is told so, and not that
// the webhook has failed, whichever of the two ends is seen first.
func TestAdmissionWebhookOutOfTime(t *testing.T) {
	for _, kind := range []string{"Mutating", "Validating"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const limit = 100 * time.Millisecond
			e := newHookedEnv(t)
			if w, answer := e.do("POST", maps, nil, `{"metadata":{"name":"a"}}`); w.StatusCode != 201 {
				t.Fatalf("%d %s", w.StatusCode, answer)
			}
			h := newAdmissionHook(t)
			h.serve = func(_ http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				panic(http.ErrAbortHandler)
			}
			h.configure(e, kind, "w", rule("", "v1", "configmaps"))
			merge := http.Header{"Content-Type": {"application/merge-patch+json"}}
			for range 3 {
				for _, r := range []struct {
					method, path, body string
					header             http.Header
				}{
					{"POST", maps, `{"metadata":{"name":"b"}}`, nil},
					{"PUT", maps + "/a", `{"metadata":{"name":"a"},"data":{"k":"v"}}`, nil},
					{"PATCH", maps + "/a", `{"data":{"k":"w"}}`, merge},
					{"DELETE", maps + "/a", "", nil},
					{"DELETE", maps, "", nil},
				} {
					w, answer := e.do(r.method, fmt.Sprint(r.path, "?timeout=", limit), r.header, r.body)
					if w.StatusCode != 504 || !strings.Contains(answer, `"reason":"Timeout"`) {
						t.Errorf("%s %s: %d %s", r.method, r.path, w.StatusCode, clip(answer))
					}
				}
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			if len(h.asked) == 0 {
				t.Errorf("the webhook was not asked in %s", limit)
			}
		})
	}
}
