package conformance

import (
	"bufio"
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

// What a node of TestAdmissionIsSeen is started with.
const (
	auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, resources: [{group: "", resources: [configmaps, pods]}], namespaces: [metadata]}
- {level: Request, resources: [{group: "", resources: [configmaps]}], namespaces: [request]}
- level: None
`
	admissionConfig = `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionPolicy
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ValidatingAdmissionPolicyConfiguration
    staticManifestsDir: %s
`
	filePolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: file.static.k8s.io}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: "object.metadata.name != '%s'"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: file.static.k8s.io}
spec: {policyName: file.static.k8s.io, validationActions: [Deny]}
`
	registration = "/apis/admissionregistration.k8s.io/v1/"
	here         = `"namespaceSelector":{"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"In","values":["metadata","request"]}]}`
	onConfigMaps = `"matchConstraints":{` + here + `,"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]}`
)

// TestAdmissionIsSeen: the audit log of a node says what policies and webhooks did to a
// write, and its metrics count it, in the families that upstream's libraries have.
func TestAdmissionIsSeen(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	policies := file("policies/policy.yaml", fmt.Sprintf(filePolicy, "refused"))
	log := filepath.Join(dir, "audit.log")
	n := cluster.Start(t, 1, "audit-policy-file="+file("audit.yaml", auditPolicy), "audit-log-path="+log,
		"feature-gates=ManifestBasedAdmissionControlConfig=true",
		"admission-control-config-file="+file("admission.yaml", fmt.Sprintf(admissionConfig, filepath.Dir(policies)))).Nodes()[0]
	url, ca := startWebhooks(t)
	create := func(path, body string, want int) {
		t.Helper()
		if code, answer := n.Send(t, http.MethodPost, path, body); code != want {
			t.Fatalf("create %s: %d %s, want %d", path, code, answer, want)
		}
	}
	webhook := func(name, path, rest string) string {
		return fmt.Sprintf(`{"name":%q,"clientConfig":{"url":%q,"caBundle":%q},"sideEffects":"None","admissionReviewVersions":["v1"],%s,
			"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}]%s}`, name, url+path, ca, here, rest)
	}
	for _, ns := range []string{"metadata", "request"} {
		create("/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, ns), 201)
	}
	create(registration+"validatingadmissionpolicies", `{"metadata":{"name":"audited"},"spec":{`+onConfigMaps+`,
		"validations":[{"expression":"object.metadata.name == 'nothing'","message":"not nothing"}],
		"auditAnnotations":[{"key":"called","valueExpression":"'it is ' + object.metadata.name"}]}}`, 201)
	create(registration+"validatingadmissionpolicybindings", `{"metadata":{"name":"audited"},"spec":{"policyName":"audited","validationActions":["Audit"]}}`, 201)
	create(registration+"mutatingadmissionpolicies", `{"metadata":{"name":"labels"},"spec":{"reinvocationPolicy":"Never",`+onConfigMaps+`,
		"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{metadata: Object.metadata{labels: {'by': 'policy'}}}"}}]}}`, 201)
	create(registration+"mutatingadmissionpolicybindings", `{"metadata":{"name":"labels"},"spec":{"policyName":"labels"}}`, 201)
	create(registration+"mutatingwebhookconfigurations", `{"metadata":{"name":"hooks"},"webhooks":[`+
		webhook("stage.conformance.test", "/mutating-configmaps", "")+","+
		webhook("missing.conformance.test", "/missing", `,"failurePolicy":"Ignore"`)+`]}`, 201)
	create(registration+"validatingwebhookconfigurations", `{"metadata":{"name":"hooks"},"webhooks":[`+
		webhook("deny.conformance.test", "/configmaps", `,"matchConditions":[{"name":"unwanted","expression":"has(object.data.unwanted)"}]`)+`]}`, 201)
	for _, ns := range []string{"metadata", "request"} {
		create("/api/v1/namespaces/"+ns+"/configmaps", `{"metadata":{"name":"a"},"data":{"mutation-start":"yes"}}`, 201)
	}
	create("/api/v1/namespaces/metadata/configmaps", `{"metadata":{"name":"b"},"data":{"unwanted":"yes","webhook-e2e-test":"webhook-disallow"}}`, 400)
	create("/api/v1/namespaces/metadata/configmaps", `{"metadata":{"name":"refused"}}`, 422)
	create("/api/v1/namespaces/metadata/pods", `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, 201)

	const stage, missing = `"configuration":"hooks","webhook":"stage.conformance.test"`, `"configuration":"hooks","webhook":"missing.conformance.test"`
	common := map[string]string{
		"audited/called": "it is a",
		"validation.policy.admission.k8s.io/validation_failure": `[{"message":"not nothing","policy":"audited","binding":"audited",` +
			`"expressionIndex":0,"validationActions":["Audit"]}]`,
		"mutation.webhook.admission.k8s.io/round_0_index_0":             `{` + stage + `,"mutated":true}`,
		"mutation.webhook.admission.k8s.io/round_0_index_1":             `{` + missing + `,"mutated":false}`,
		"failed-open.mutation.webhook.admission.k8s.io/round_0_index_1": "missing.conformance.test",
	}
	const patch = "patch.webhook.admission.k8s.io/round_0_index_0"
	t.Run("audit", func(t *testing.T) {
		at := annotations(t, log, "metadata", "a")
		for key, want := range common {
			if at[key] != want {
				t.Errorf("at level Metadata, %s: %s, want %s", key, at[key], want)
			}
		}
		if at[patch] != "" {
			t.Errorf("at level Metadata there is a patch: %s", at[patch])
		}
		at = annotations(t, log, "request", "a")
		for key, want := range common {
			if at[key] != want {
				t.Errorf("at level Request, %s: %s, want %s", key, at[key], want)
			}
		}
		const want = `{` + stage + `,"patch":[{"op":"add","path":"/data/mutation-stage-1","value":"yes"}],"patchType":"JSONPatch"}`
		if at[patch] != want {
			t.Errorf("at level Request the patch is %s, want %s", at[patch], want)
		}
	})
	t.Run("metrics", func(t *testing.T) {
		// A file that has changed is read again.
		file("policies/policy.yaml", fmt.Sprintf(filePolicy, "refused-now"))
		for _, family := range libraryFamilies {
			cluster.Await(t, time.Minute, family, func() string {
				code, answer := n.Send(t, http.MethodGet, "/metrics", "")
				if code != http.StatusOK || !strings.Contains(string(answer), "\n# TYPE "+family+" ") {
					return fmt.Sprintf("%d, not among %d bytes", code, len(answer))
				}
				return ""
			})
		}
	})
}

// libraryFamilies are what the writes of TestAdmissionIsSeen count in.
var libraryFamilies = []string{
	"apiserver_admission_match_condition_evaluation_seconds",
	"apiserver_admission_match_condition_exclusions_total",
	"apiserver_admission_webhook_admission_duration_seconds",
	"apiserver_admission_webhook_fail_open_count",
	"apiserver_admission_webhook_rejection_count",
	"apiserver_admission_webhook_request_total",
	"apiserver_cel_compilation_duration_seconds",
	"apiserver_cel_evaluation_duration_seconds",
	"apiserver_mutating_admission_policy_check_duration_seconds",
	"apiserver_mutating_admission_policy_check_total",
	"apiserver_validating_admission_policy_check_duration_seconds",
	"apiserver_validating_admission_policy_check_total",
	"pod_security_evaluations_total",
	"apiserver_manifest_admission_config_controller_last_config_info",
	"apiserver_manifest_admission_config_controller_automatic_reloads_total",
	"apiserver_manifest_admission_config_controller_automatic_reload_last_timestamp_seconds",
}

// annotations are those of the event of the create of a ConfigMap, as soon as it is in the log.
func annotations(t *testing.T, file, namespace, name string) (found map[string]string) {
	t.Helper()
	cluster.Await(t, 10*time.Second, "the event of "+namespace+"/"+name, func() string {
		f, err := os.Open(file)
		if err != nil {
			return err.Error()
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			var e struct {
				Verb        string
				Annotations map[string]string
				ObjectRef   struct{ Namespace, Name string }
			}
			// The last line may be half there.
			if json.Unmarshal(lines.Bytes(), &e) == nil && e.Verb == "create" && e.ObjectRef.Namespace == namespace && e.ObjectRef.Name == name {
				found = e.Annotations
				return ""
			}
		}
		return "it is not in the log"
	})
	return found
}
