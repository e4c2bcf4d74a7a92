package commands

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// TestSettings starts nodes with the settings of the API that upstream has too, and
// looks at each node for what they do.
func TestSettings(t *testing.T) {
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	const rules = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  resources: [{group: "", resources: [configmaps]}]
  namespaces: [default]
- level: None
`
	if err := os.WriteFile(policy, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	c := cluster.Start(t, 3,
		"runtime-config=networking.k8s.io/v1beta1=true,flowcontrol.apiserver.k8s.io/v1=false,batch/v1=false,apps/v1/controllerrevisions=false",
		"feature-gates=WatchList=false,ComponentStatusz=true,RetryGenerateName=true", "show-hidden-metrics-for-version=1.35",
		"audit-policy-file="+policy, "audit-log-path="+log)

	for _, n := range c.Nodes() {
		t.Run(n.Name, func(t *testing.T) {
			for _, x := range []struct {
				path string
				code int
				has  string // "!" in front: has not
			}{
				{"/apis/networking.k8s.io/v1beta1/servicecidrs", 200, `"ServiceCIDRList"`},
				{"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", 404, ""},
				{"/apis/flowcontrol.apiserver.k8s.io/v1", 404, ""},
				{"/apis/batch/v1", 404, ""},
				{"/apis/batch/v1/jobs", 404, ""},
				{"/apis", 200, `!"batch`},
				{"/apis/apps/v1/namespaces/default/controllerrevisions", 404, ""},
				{"/apis/apps/v1", 200, "!controllerrevisions"},
				{"/apis/apps/v1/namespaces/default/deployments", 200, `"DeploymentList"`},
				{"/api/v1/namespaces?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1", 422, "sendInitialEvents"},
				{"/metrics", 200, `kubernetes_feature_enabled{name="WatchList",stage="BETA"} 0`},
				{"/metrics", 200, `kubernetes_feature_enabled{name="ComponentStatusz",stage="BETA"} 1`},
				{"/flagz", 200, "feature-gates="},
				{"/flagz", 200, "show-hidden-metrics-for-version=1.35"},
				{"/flagz", 200, "audit-log-path=" + log},
				{"/statusz", 200, "Emulation version: 1.36"},
			} {
				code, answer := n.Send(t, http.MethodGet, x.path, "")
				if code != x.code {
					t.Errorf("%s: %d %.300s, want %d", x.path, code, answer, x.code)
				}
				if without, ok := strings.CutPrefix(x.has, "!"); ok == strings.Contains(string(answer), without) && x.has != "" {
					t.Errorf("%s: %q in it: %v\n%.600s", x.path, without, !ok, answer)
				}
			}
			if raw, err := os.ReadFile(n.Log); err != nil || !strings.Contains(string(raw), "setting GA feature gate. It will be removed") {
				t.Errorf("no word of the gate of a feature that is GA (%v)", err)
			}
			name := "audited-" + n.Name
			resp, answer, err := n.Do(t, http.MethodPost, cluster.ConfigMaps, fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
			if err != nil || resp.StatusCode != http.StatusCreated {
				t.Fatalf("create: %v %s", err, answer)
			}
			n.Kubectl(t, "get", "secrets") // of no rule
			cluster.Await(t, 10*time.Second, "the event of a create", func() string {
				for _, e := range auditEvents(t, log) {
					if e.ObjectRef.Name == name && e.Verb == "create" && e.Stage == "ResponseComplete" && e.AuditID == resp.Header.Get("Audit-Id") && e.ResponseStatus.Code == 201 {
						return ""
					}
				}
				return "it is not in the log"
			})
		})
	}
	for _, e := range auditEvents(t, log) {
		if e.ObjectRef.Resource != "configmaps" || e.Stage == "RequestReceived" {
			t.Errorf("an event that the policy does not ask for: %+v", e)
		}
	}
}

type auditEvent struct {
	AuditID, Stage, Verb string
	ObjectRef            struct{ Resource, Name string }
	ResponseStatus       struct{ Code int }
}

func auditEvents(t *testing.T, file string) (out []auditEvent) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e auditEvent
		if json.Unmarshal(lines.Bytes(), &e) == nil { // the last one may be half there
			out = append(out, e)
		}
	}
	return out
}

// TestShutdownDelay stops a node as systemd does: it says first that it is not ready and
// serves on meanwhile; then it answers new requests with 429, as long as a request is
// not finished, and ends.
func TestShutdownDelay(t *testing.T) {
	const delay = 6 * time.Second
	c := cluster.Start(t, 3, "shutdown-delay-duration="+delay.String(), "shutdown-send-retry-after=true")
	n := c.Others(c.Leader(t))[0]
	began := time.Now()
	c.Signal(t, syscall.SIGTERM, n)
	cluster.Await(t, delay, "readyz fails", func() string {
		if code, answer := n.Send(t, http.MethodGet, "/readyz", ""); code != http.StatusInternalServerError {
			return fmt.Sprintf("%d %s", code, answer)
		}
		return ""
	})
	if code, answer := n.Send(t, http.MethodGet, "/readyz?exclude=shutdown", ""); code != http.StatusOK {
		t.Errorf("readyz without shutdown: %d %s", code, answer)
	}
	if code, answer := n.Send(t, http.MethodGet, "/livez", ""); code != http.StatusOK {
		t.Errorf("livez during the delay: %d %s", code, answer)
	}
	if code, answer := n.Send(t, http.MethodPost, cluster.ConfigMaps, `{"metadata":{"name":"late"}}`); code != http.StatusCreated {
		t.Errorf("a write during the delay: %d %s", code, answer)
	}
	finish := slowCreate(t, n, "slow")
	cluster.Await(t, 2*delay, "new requests are refused", func() string {
		// Each on a connection of its own, as a client that comes only now.
		client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: must(n.TLS()), DisableKeepAlives: true}}
		resp, err := client.Get(n.API + cluster.ConfigMaps + "/late")
		if err != nil {
			t.Fatalf("%s after the signal: %v", time.Since(began), err)
		}
		_ = resp.Body.Close()
		early := time.Since(began) < delay
		switch {
		case resp.StatusCode == http.StatusOK:
			return "it serves"
		case resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" || early:
			t.Fatalf("%s after the signal: %s, %v", time.Since(began), resp.Status, resp.Header)
		}
		return ""
	})
	if code := finish(); code != http.StatusCreated {
		t.Errorf("a request that had begun: %d", code)
	}
	cluster.Await(t, 10*time.Second, n.Name+" ends", func() string {
		if n.Running() {
			return "it runs"
		}
		return ""
	})
}

// slowCreate sends the beginning of a request that creates a ConfigMap, and returns a
// function that sends the rest and returns the code of the answer.
func slowCreate(t *testing.T, n *cluster.Node, name string) func() int {
	t.Helper()
	body, write := io.Pipe()
	r, err := http.NewRequest(http.MethodPost, n.API+cluster.ConfigMaps, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: must(n.TLS())}}
	code := make(chan int, 1)
	go func() {
		resp, err := client.Do(r)
		if err != nil {
			t.Errorf("the slow request: %v", err)
			code <- 0
			return
		}
		_ = resp.Body.Close()
		code <- resp.StatusCode
	}()
	if _, err := io.WriteString(write, `{"metadata":`); err != nil {
		t.Fatal(err)
	}
	return func() int {
		if _, err := fmt.Fprintf(write, `{"name":%q}}`, name); err != nil {
			t.Error(err)
		}
		_ = write.Close()
		return <-code
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
