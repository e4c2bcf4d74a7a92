package apiserver_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/access/audit"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/request"
	"github.com/quorate/quorate/internal/must"
)

// deprecations is an Observer that notes what was asked for.
type deprecations struct {
	watchBytes
	mu   sync.Mutex
	seen map[string]bool
}

func (d *deprecations) Deprecated(k *request.Kind, removed string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen[strings.Join([]string{k.Group, k.Version, k.Resource, k.Subresource, removed}, " ")] = true
}

// TestAudit: a story of requests, and what the log says of each. A version that is
// deprecated is named everywhere: to the client, the observer and the log.
func TestAudit(t *testing.T) {
	dir := t.TempDir()
	policy, file := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	must.OK(t, os.WriteFile(policy, []byte(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  resources: [{group: "", resources: [namespaces]}]
- level: RequestResponse
  resources: [{group: "", resources: [configmaps]}]
- level: Metadata
`), 0o600))
	log, err := audit.Open(audit.Config{PolicyFile: policy, Path: file})
	must.OK(t, err)
	available, err := kinds.Available()
	must.OK(t, err)
	registry, err := kinds.Enablement{"networking.k8s.io/v1beta1": "true"}.Apply(available, nil)
	must.OK(t, err)
	seen := &deprecations{seen: map[string]bool{}}
	e := newEnv(t, func(c *apiserver.Config) {
		c.Audit, c.Observer = log, seen
		c.Kinds = func() *kinds.Registry { return registry }
		c.Discovery = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a defect") })
		c.Log = testLog(t)
	})
	pb := http.Header{"Accept": {"application/vnd.kubernetes.protobuf"}, "Content-Type": {"application/yaml"}}
	beta := "/apis/networking.k8s.io/v1beta1/servicecidrs"
	for _, r := range []struct {
		method, path, body string
		header             http.Header
		code               int
	}{
		{"POST", maps, "metadata: {name: a}\ndata: {k: " + strings.Repeat("v", 200<<10) + "}", pb, 201},
		{"PATCH", maps + "/a", `{"data":{"l":"w"}}`, http.Header{"Content-Type": {"application/merge-patch+json"}, "Accept-Encoding": {"gzip"}}, 200},
		{"GET", maps + "/none", "", nil, 404},
		{"GET", "/api/v1/namespaces/default", "", nil, 200},
		{"GET", "/api/v1/pods", "", http.Header{"Test-User": {"eve"}}, 403},
		{"GET", "/api/v1/pods", "", http.Header{"Test-Unauthorized": {"yes"}}, 401},
		{"GET", "/api/v1/pods", "", http.Header{"Impersonate-User": {"bob"}, "Impersonate-Group": {"system:masters"}}, 200},
		{"POST", beta, `{"metadata":{"name":"c"},"spec":{"cidrs":["10.0.0.0/24"]}}`, nil, 201},
		{"GET", "/apis/networking.k8s.io/v1/servicecidrs/c", "", nil, 200},
		{"GET", "/api/v1/pods?watch=1&timeoutSeconds=1", "", nil, 200},
		{"GET", "/apis", "", nil, 500},
	} {
		w, answer := e.do(r.method, r.path, r.header, r.body)
		if w.StatusCode != r.code {
			t.Fatalf("%s %s: %d %s", r.method, r.path, w.StatusCode, clip(answer))
		}
		if old := strings.HasPrefix(r.path, beta); old != (w.Header.Get("Warning") != "") {
			t.Errorf("%s %s: Warning: %q", r.method, r.path, w.Header.Get("Warning"))
		} else if old && w.Header.Get("Warning") != `299 - "networking.k8s.io/v1beta1 ServiceCIDR is deprecated in v1.34+, unavailable in v1.37+"` {
			t.Errorf("Warning: %s", w.Header.Get("Warning"))
		}
	}
	must.OK(t, log.Close())
	if len(seen.seen) != 1 || !seen.seen["networking.k8s.io v1beta1 servicecidrs  1.37"] {
		t.Errorf("deprecated: %v", seen.seen)
	}
	compareAudit(t, file)
}

// compareAudit compares what is always the same of each line.
func compareAudit(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	must.OK(t, err)
	var got []string
	s := bufio.NewScanner(bytes.NewReader(b))
	s.Buffer(nil, 8<<20)
	for s.Scan() {
		var e struct {
			Level, Stage, Verb     string
			User, ImpersonatedUser struct{ Username string }
			ObjectRef              struct{ Resource, Name string }
			ResponseStatus         struct {
				Code   int
				Reason string
			}
			RequestObject, ResponseObject map[string]any
			Annotations                   map[string]string
		}
		must.OK(t, json.Unmarshal(s.Bytes(), &e))
		line := []string{e.Level, e.Stage, e.User.Username + ">" + e.ImpersonatedUser.Username, e.Verb, e.ObjectRef.Resource + "/" + e.ObjectRef.Name, e.ResponseStatus.Reason}
		for _, o := range []map[string]any{e.RequestObject, e.ResponseObject} {
			data, _ := o["data"].(map[string]any)
			line = append(line, strings.Repeat("+", len(data)))
		}
		line = append(line, e.Annotations["authorization.k8s.io/decision"], e.Annotations["k8s.io/deprecated"], e.Annotations["k8s.io/removed-release"])
		got = append(got, strings.Join(line, "|"))
	}
	want := []string{
		"RequestResponse|ResponseComplete|admin>|create|configmaps/a||+|+|allow||",
		"RequestResponse|ResponseComplete|admin>|patch|configmaps/a||+|++|allow||",
		"RequestResponse|ResponseComplete|admin>|get|configmaps/none|NotFound|||allow||",
		"Metadata|ResponseComplete|eve>|list|pods/|Forbidden|||forbid||",
		"Metadata|ResponseComplete|system:anonymous>|list|pods/|Unauthorized|||||",
		"Metadata|ResponseComplete|admin>bob|list|pods/||||allow||",
		"Metadata|ResponseComplete|admin>|create|servicecidrs/c||||allow|true|1.37",
		"Metadata|ResponseComplete|admin>|get|servicecidrs/c||||allow||",
		"Metadata|ResponseStarted|admin>|watch|pods/||||allow||",
		"Metadata|ResponseComplete|admin>|watch|pods/||||allow||",
		"Metadata|Panic|admin>|get|/|InternalError|||allow||",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
