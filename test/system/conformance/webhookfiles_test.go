package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

const (
	webhookFilesConfig = `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, staticManifestsDir: DIR/mutating}
- name: ValidatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, staticManifestsDir: DIR/validating}
`
	webhookFile = `
apiVersion: admissionregistration.k8s.io/v1
kind: KINDWebhookConfiguration
metadata: {name: LOW.static.k8s.io}
webhooks:
- name: LOW.conformance.test
  clientConfig: {url: "URL/PATH", caBundle: "CA"}
  rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE], resources: [RESOURCES]}]
  sideEffects: None
  admissionReviewVersions: [v1]
`
)

// TestWebhooksOfFiles: the webhooks of a node's files are asked about the first request, also
// about webhook configurations; clients can neither take them away, nor take their names, nor
// suspend them. A change of a file counts, a mistake in one does not, and ends a start.
func TestWebhooksOfFiles(t *testing.T) {
	dir := t.TempDir()
	url, ca := startWebhooks(t)
	// write replaces a file at once.
	write := func(kind, path, resources string) {
		t.Helper()
		text := strings.NewReplacer("KIND", kind, "LOW", strings.ToLower(kind), "PATH", path, "URL", url, "CA", ca, "RESOURCES", resources).Replace(webhookFile)
		to := filepath.Join(dir, strings.ToLower(kind), "a.yaml")
		must.OK(t, os.MkdirAll(filepath.Dir(to), 0o700))
		must.OK(t, os.WriteFile(to+".tmp", []byte(text), 0o600))
		must.OK(t, os.Rename(to+".tmp", to))
	}
	write("Mutating", "add-label", "configmaps")
	write("Validating", "always-deny", "configmaps, validatingwebhookconfigurations")
	config := filepath.Join(dir, "admission.yaml")
	must.OK(t, os.WriteFile(config, []byte(strings.ReplaceAll(webhookFilesConfig, "DIR", dir)), 0o600))
	c := cluster.Start(t, 1, "feature-gates=ManifestBasedAdmissionControlConfig=true", "admission-control-config-file="+config)
	n := c.Nodes()[0]
	send := func(method, path, body string, want int, text string) {
		t.Helper()
		if code, answer := n.Send(t, method, path, body); code != want || !strings.Contains(string(answer), text) {
			t.Errorf("%s %s: %d %s, want %d %s", method, path, code, answer, want, text)
		}
	}
	const (
		maps      = "/api/v1/namespaces/default/configmaps"
		hooks     = registration + "validatingwebhookconfigurations"
		forbidden = `admission webhook \"validating.conformance.test\" denied the request: this webhook denies all requests`
	)
	send(http.MethodPost, maps, `{"metadata":{"name":"a"}}`, 400, forbidden)
	send(http.MethodPost, hooks, `{"metadata":{"name":"other"}}`, 400, forbidden)
	send(http.MethodPost, registration+"mutatingwebhookconfigurations", `{"metadata":{"name":"mine.static.k8s.io"}}`, 422,
		`metadata.name: Invalid value: \"mine.static.k8s.io\": names ending with \".static.k8s.io\" are reserved for static manifest-based configurations and cannot be managed via the API`)
	send(http.MethodDelete, hooks+"/validating.static.k8s.io", "", 404, "not found")
	if out, err := c.TryQuorate(t, "admission", "suspend", "validating.static.k8s.io", "--kubeconfig", c.Kubeconfig); err == nil || !strings.Contains(out, "is from a file of each node") {
		t.Errorf("suspended: %s, %v", out, err)
	}
	var reports []struct {
		Rules []struct {
			Resource, Configuration, Webhook string
			File                             bool
			Calls, Rejections                uint64
		}
	}
	must.OK(t, json.Unmarshal([]byte(c.Admin(t, "admission", "list", "-o", "json")), &reports))
	const want = "[{[" + // calls of the first are counted although the second refused
		"{mutatingwebhookconfigurations mutating.static.k8s.io mutating.conformance.test true 1 0} " +
		"{validatingwebhookconfigurations validating.static.k8s.io validating.conformance.test true 2 2}]}]"
	if got := fmt.Sprint(reports); got != want {
		t.Errorf("listed %s, want %s", got, want)
	}

	write("Validating", "always-deny", "secrets")
	await := func(what string, holds func() string) {
		t.Helper()
		cluster.Await(t, 90*time.Second, what, holds)
	}
	await("the changed file counts", func() string {
		code, answer := n.Send(t, http.MethodPost, maps, `{"metadata":{"name":"a"}}`)
		if code != 201 || !strings.Contains(string(answer), `"added-label":"yes"`) {
			return fmt.Sprintf("%d %s", code, answer)
		}
		return ""
	})
	send(http.MethodPost, hooks, `{"metadata":{"name":"other"}}`, 201, "other")
	write("Validating", "always-deny", "configmaps, ''")
	await("the mistake is noticed", func() string {
		_, answer := n.Send(t, http.MethodGet, "/metrics", "")
		for line := range strings.Lines(string(answer)) {
			if strings.HasPrefix(line, "apiserver_manifest_admission_config_controller_automatic_reloads_total{") &&
				strings.Contains(line, `plugin="ValidatingAdmissionWebhook"`) && strings.Contains(line, `status="failure"`) {
				return ""
			}
		}
		return "no failed reload is counted"
	})
	send(http.MethodPost, "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"a"}}`, 400, forbidden)
	send(http.MethodPost, maps, `{"metadata":{"name":"b"}}`, 201, "added-label")

	c.Stop(t, n)
	out, err := c.TryQuorate(t, "dev", "start", n.Name, "--data-dir", c.Dir)
	if err == nil || !strings.Contains(out, `webhooks[0].rules[0].resources[1]: Required value`) {
		t.Errorf("started with a mistake: %s, %v", out, err)
	}
	write("Validating", "always-deny", "secrets")
	c.Restart(t, n)
	n = c.Nodes()[0]
	send(http.MethodPost, "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"a"}}`, 400, forbidden)
}
