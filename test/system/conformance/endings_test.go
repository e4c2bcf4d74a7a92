package conformance

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestRulesHoldNamespaces: a policy that protects custom resources, and a webhook that does not answer, hold the end
// of the namespaces that they are asked about, and of no others, until `quorate admission suspend`.
func TestRulesHoldNamespaces(t *testing.T) {
	c := cluster.Start(t, 3)
	n := c.Nodes()[0]
	kubectl := func(stdin string, args ...string) string {
		t.Helper()
		out := n.TryKubectl(t, nil, stdin, args...)
		if out.Code != 0 {
			t.Fatalf("kubectl %s: %s", strings.Join(args, " "), out.Stderr)
		}
		return out.Stdout
	}
	kubectl(protection, "apply", "-f", "-")
	kubectl("", "wait", "--for=condition=Established", "crd/volumes.example.com")
	for _, ns := range []string{"protected", "dead", "free"} {
		kubectl("", "create", "namespace", ns)
		kubectl("", "create", "configmap", "c", "-n", ns)
		kubectl("", "create", "secret", "generic", "s", "-n", ns)
	}
	kubectl(strings.Replace(volume, "NAMESPACE", "protected", 1), "apply", "-f", "-")
	kubectl(strings.Replace(volume, "NAMESPACE", "free", 1), "apply", "-f", "-")
	hung, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections and says nothing
	must.OK(t, err)
	defer hung.Close()
	_, ca := startWebhooks(t)
	kubectl(fmt.Sprintf(deadWebhook, "https://"+hung.Addr().String(), ca), "apply", "-f", "-")
	denied := func() bool {
		return n.TryKubectl(t, nil, "", "delete", "volume", "v", "-n", "protected", "--dry-run=server").Code != 0
	}
	await(t, "the policy is asked", denied)

	kubectl("", "delete", "namespace", "protected", "dead", "--wait=false")
	failure := func(ns, want string) func() bool {
		return func() bool {
			got := kubectl("", "get", "namespace", ns, "-o", `jsonpath={.status.conditions[?(@.type=="NamespaceDeletionContentFailure")].message}`)
			return strings.Contains(got, want)
		}
	}
	await(t, "the condition names the policy", failure("protected", `delete volumes.example.com: volumes.example.com "v" is forbidden: ValidatingAdmissionPolicy 'volumes' with binding 'volumes' denied request: this volume is protected`))
	began := time.Now()
	kubectl("", "delete", "namespace", "free", "--timeout=30s")
	t.Logf("a namespace that no rule is asked about was gone after %s", time.Since(began).Round(10*time.Millisecond))
	await(t, "the condition names the webhook", failure("dead", `failed calling webhook "dead.example.com"`))
	for _, gone := range [][]string{{"secret/s", "protected"}, {"configmap/c", "protected"}} {
		await(t, gone[0]+" is gone", func() bool {
			return strings.Contains(n.TryKubectl(t, nil, "", "get", gone[0], "-n", gone[1]).Stderr, "NotFound")
		})
	}
	for _, name := range []string{"volumes", "dead"} {
		out := c.Admin(t, "admission", "suspend", name)
		if !strings.Contains(out, "is suspended until") {
			t.Error(out)
		}
	}
	kubectl("", "wait", "--for=delete", "namespace/protected", "namespace/dead", "--timeout=60s")
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within a minute: ", what)
		}
	}
}

const (
	protection = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: volumes.example.com}
spec:
  group: example.com
  names: {kind: Volume, plural: volumes, singular: volume}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: volumes}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: protected}}
    resourceRules: [{apiGroups: [example.com], apiVersions: ["*"], operations: [DELETE], resources: ["*"]}]
  validations: [{expression: "false", message: this volume is protected}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: volumes}
spec: {policyName: volumes, validationActions: [Deny]}
`
	volume      = `{"apiVersion":"example.com/v1","kind":"Volume","metadata":{"name":"v","namespace":"NAMESPACE"}}`
	deadWebhook = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: dead}
webhooks:
- name: dead.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  timeoutSeconds: 3
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: dead}}
  rules: [{apiGroups: [""], apiVersions: ["*"], operations: [DELETE], resources: [configmaps]}]
  clientConfig: {url: %q, caBundle: %s}
`
)
