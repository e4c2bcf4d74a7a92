package webhook_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/static"
	"github.com/quorate/quorate/apiserver/admission/upstream"
	"github.com/quorate/quorate/apiserver/admission/webhook"
	"github.com/quorate/quorate/apiserver/objects/builtin"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/raftstore/memstore"
)

// refusals is a webhook that refuses all with the name of its path.
func refusals(t *testing.T) (url, caBundle string) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Request struct{ UID string } }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":false,"status":{"message":%q}}}`, review.Request.UID, r.URL.Path)
	}))
	t.Cleanup(s.Close)
	return s.URL, base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

const hookInFile = `apiVersion: admissionregistration.k8s.io/v1
kind: KINDWebhookConfiguration
metadata: {name: file.static.k8s.io}
webhooks:
- name: a.example.com
  clientConfig: {url: "URL/a", caBundle: "CA"}
  rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]}]
  sideEffects: None
  admissionReviewVersions: [v1]
  matchConditions: [{name: c, expression: "request.name == 'no'"}]
`

// TestStatic: webhooks of files are asked at once, also about webhook configurations; a change of
// the files counts, unless it is a mistake. Mistakes at the start refuse it.
func TestStatic(t *testing.T) {
	for kind, start := range map[string]func(webhook.Config, io.Reader) (asked, error){
		"Mutating": func(cfg webhook.Config, file io.Reader) (asked, error) {
			m, err := webhook.NewMutating(cfg, file)
			return asked{m, m.Admit}, err
		},
		"Validating": func(cfg webhook.Config, file io.Reader) (asked, error) {
			v, err := webhook.NewValidating(cfg, file)
			return asked{v, v.Validate}, err
		},
	} {
		t.Run(kind, func(t *testing.T) { testStatic(t, kind, start) })
	}
}

// asked is one of the two plugins.
type asked struct {
	admission.Plugin
	ask func(context.Context, *admission.Attributes) error
}

func testStatic(t *testing.T, kind string, open func(webhook.Config, io.Reader) (asked, error)) {
	store := memstore.New()
	defer func() { must.Close(t, store) }()
	registry, err := kinds.Builtin()
	must.OK(t, err)
	known := upstream.NewKinds(func() *kinds.Registry { return registry }, nil)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	running := 0
	var listed func() []static.Rule
	start := func(dir string, enabled bool) (asked, error) {
		s := state.New(store)
		return open(webhook.Config{
			State: s, Kinds: known, Namespaces: upstream.NewNamespaces(s, func(context.Context) error { return nil }),
			Suspended: func(string, string) bool { return true }, Suspensions: func() int { return 1 },
			Resolve:    func(context.Context, string, string, int32) (string, error) { return "", nil },
			Authorizer: auth.Default(), Log: slog.New(slog.DiscardHandler),
			Static: static.Files{
				Enabled: enabled, Check: builtin.CheckAdmission, Server: "n1", Listed: func(rules func() []static.Rule) { listed = rules },
				Run: func(follow func(context.Context)) {
					running++
					go func() { defer close(ended); follow(ctx) }()
				},
			},
		}, strings.NewReader("apiVersion: apiserver.config.k8s.io/v1\nkind: WebhookAdmissionConfiguration\nstaticManifestsDir: "+dir+"\n"))
	}
	dir := t.TempDir()
	write := func(text string) {
		t.Helper()
		// A rename: what reads it reads all of it.
		tmp := filepath.Join(t.TempDir(), "p")
		must.OK(t, os.WriteFile(tmp, []byte(text), 0o600))
		must.OK(t, os.Rename(tmp, filepath.Join(dir, "p.yaml")))
	}
	url, ca := refusals(t)
	text := strings.NewReplacer("KIND", kind, "URL", url, "CA", ca).Replace(hookInFile)
	other := map[string]string{"Mutating": "Validating", "Validating": "Mutating"}[kind]
	for _, c := range []struct{ name, text, dir, want string }{
		{"another name", strings.Replace(text, ".static.k8s.io", "", 1), dir, `must have a name ending with ".static.k8s.io"`},
		{"a Service", strings.Replace(text, `url: "`+url+`/a"`, "service: {name: a, namespace: b}", 1), dir, "clientConfig.service is not supported for static manifests"},
		{"a mistake in a condition", strings.Replace(text, "== 'no'", "==", 1), dir, "webhooks[0].matchConditions[0].expression: Invalid value"},
		{"an unknown field", strings.Replace(text, "rules:", "rulez:", 1), dir, `unknown field "webhooks[0].rulez"`},
		{"side effects", strings.Replace(text, "sideEffects: None", "sideEffects: Some", 1), dir, "webhooks[0].sideEffects: Unsupported value"},
		{"a policy that is none", strings.Replace(text, "sideEffects: None", "sideEffects: None\n  failurePolicy: Never", 1), dir, "webhooks[0].failurePolicy: Unsupported value"},
		{"the other kind", strings.Replace(text, kind, other, 1), dir, "unsupported resource type"},
		{"a name twice", text + "---\n" + text, dir, `duplicate name "file.static.k8s.io"`},
		{"a directory that is none", text, "/nowhere", `staticManifestsDir: Invalid value: "/nowhere": unable to read`},
		{"a relative path", text, "nowhere", "must be an absolute file path"},
		{"an unknown setting", text, dir + "\nother: x", `unknown field "other"`},
	} {
		write(c.text)
		if _, err := start(c.dir, true); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	write(text)
	if _, err := start(dir, false); err == nil || !strings.Contains(err.Error(), "ManifestBasedAdmissionControlConfig feature gate") {
		t.Errorf("without the gate: %v", err)
	}
	p, err := start(dir, true)
	if err != nil || running != 1 {
		t.Fatalf("%v, %d follow files", err, running)
	}
	defer func() { end(); <-ended }()
	// denied is the path of the webhook that refused; consulted whether permissions count.
	denied := func(resource, name string) (by string, consulted bool) {
		a := &admission.Attributes{Operation: admission.Create, Name: name, User: &auth.User{Name: "admin"}, Interfaces: known}
		a.Object = map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name}}
		a.Kind.Version, a.Kind.Kind, a.Resource.Version, a.Resource.Resource = "v1", "Node", "v1", resource
		if resource != "nodes" {
			a.Resource.Group, a.Kind.Group, a.Kind.Kind = "admissionregistration.k8s.io", "admissionregistration.k8s.io", "MutatingWebhookConfiguration"
			a.Object["apiVersion"], a.Object["kind"] = "admissionregistration.k8s.io/v1", a.Kind.Kind
		}
		if !p.Handles(a) {
			return "", false
		}
		if err := p.ask(t.Context(), a); err != nil {
			_, by, _ = strings.Cut(err.Error(), "denied the request: ")
		}
		rules, _ := a.Decided()
		return by, rules != 0
	}
	check := func(resource, name, want string) {
		t.Helper()
		if by, _ := denied(resource, name); by != want {
			t.Errorf("%s %s: refused by %q, want %q", resource, name, by, want)
		}
	}
	check("nodes", "no", "/a")
	check("nodes", "yes", "")
	check("mutatingwebhookconfigurations", "no", "/a")
	if rules := listed(); len(rules) != 1 || rules[0] != (static.Rule{
		Resource: strings.ToLower(kind) + "webhookconfigurations", Configuration: "file.static.k8s.io", Webhook: "a.example.com", FailurePolicy: "Fail", TimeoutSeconds: 10,
	}) {
		t.Errorf("listed %+v", rules)
	}
	await := func(what string, holds func() bool) {
		t.Helper()
		for began := time.Now(); !holds(); time.Sleep(10 * time.Millisecond) {
			//wall: patience for a file to be read
			if time.Since(began) > 30*time.Second {
				t.Fatal(what)
			}
		}
	}
	write(strings.NewReplacer("URL/a", "URL/b", url+"/a", url+"/b", "request.name == 'no'", "request.name == 'never' && !authorizer.group('').resource('a').check('get').allowed()").Replace(text))
	await("a change of the file does not count", func() bool {
		by, consulted := denied("nodes", "never")
		return by == "/b" && consulted
	})
	check("nodes", "no", "")
	write("what is this?")
	check("nodes", "never", "/b")
	must.OK(t, os.Remove(filepath.Join(dir, "p.yaml")))
	await("a file that is gone counts", func() bool { by, _ := denied("nodes", "never"); return by == "" })
	if len(listed()) != 0 {
		t.Errorf("listed %+v", listed())
	}
}
