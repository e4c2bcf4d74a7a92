package policies_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/policies"
	"github.com/quorate/quorate/apiserver/admission/static"
	"github.com/quorate/quorate/apiserver/objects/builtin"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/raftstore/memstore"
)

const policyInFile = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p.static.k8s.io}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]}
  validations:
  - {expression: "object.metadata.name != 'no'"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: b.static.k8s.io}
spec: {policyName: p.static.k8s.io, validationActions: [Deny]}
`

// TestStatic: policies from files hold at once, also for policies; a change of the files counts,
// unless it is a mistake. Mistakes at the start refuse it.
func TestStatic(t *testing.T) {
	store := memstore.New()
	defer func() { must.Close(t, store) }()
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	running := 0
	start := func(dir string, enabled bool) (*policies.Validating, error) {
		cfg := config(t, store, auth.Default())
		cfg.Static = static.Files{Enabled: enabled, Check: builtin.CheckAdmission, Server: "n1", Run: func(follow func(context.Context)) {
			running++
			go func() { defer close(ended); follow(ctx) }()
		}}
		return policies.NewValidating(cfg, strings.NewReader("apiVersion: apiserver.config.k8s.io/v1\nkind: ValidatingAdmissionPolicyConfiguration\nstaticManifestsDir: "+dir+"\n"))
	}
	dir := t.TempDir()
	write := func(text string) {
		t.Helper()
		// A rename, so that a reader never sees half a file.
		tmp := filepath.Join(t.TempDir(), "p")
		must.OK(t, os.WriteFile(tmp, []byte(text), 0o600))
		must.OK(t, os.Rename(tmp, filepath.Join(dir, "p.yaml")))
	}
	for _, c := range []struct{ name, text, dir, want string }{
		{"another name", strings.ReplaceAll(policyInFile, ".static.k8s.io", ""), dir, `must have a name ending with ".static.k8s.io"`},
		{"a mistake in an expression", strings.Replace(policyInFile, "!= 'no'", "!=", 1), dir, "spec.validations[0].expression: Invalid value"},
		{"an unknown field", strings.Replace(policyInFile, "validations:", "checks:", 1), dir, `unknown field "spec.checks"`},
		{"a binding alone", policyInFile[strings.Index(policyInFile, "---"):], dir, "does not exist in the manifest directory"},
		{"a directory that is none", policyInFile, "/nowhere", "staticManifestsDir: Invalid value: \"/nowhere\": unable to read"},
		{"a relative path", policyInFile, "nowhere", "must be an absolute file path"},
	} {
		write(c.text)
		if _, err := start(c.dir, true); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	write(policyInFile)
	if _, err := start(dir, false); err == nil || !strings.Contains(err.Error(), "ManifestBasedAdmissionControlConfig feature gate") {
		t.Errorf("without the gate: %v", err)
	}
	p, err := start(dir, true)
	if err != nil || running != 1 {
		t.Fatalf("%v, %d follow files", err, running)
	}
	defer func() { end(); <-ended }()
	denied := func(resource, name string) bool {
		a := &admission.Attributes{Operation: admission.Create, Name: name, User: &auth.User{Name: "admin"}}
		a.Object = map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name}}
		a.Kind.Version, a.Kind.Kind, a.Resource.Version, a.Resource.Resource = "v1", "Node", "v1", resource
		if resource != "nodes" {
			a.Resource.Group, a.Kind.Group, a.Kind.Kind = "admissionregistration.k8s.io", "admissionregistration.k8s.io", "ValidatingAdmissionPolicy"
			a.Object["apiVersion"], a.Object["kind"] = "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"
		}
		return p.Handles(a) && p.Validate(t.Context(), a) != nil
	}
	if !denied("nodes", "no") || denied("nodes", "yes") || !denied("validatingadmissionpolicies", "no") {
		t.Error("the policy of the file does not hold at once, also for policies")
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
	write(strings.Replace(policyInFile, "!= 'no'", "!= 'never'", 1))
	await("a change of the file does not count", func() bool { return !denied("nodes", "no") && denied("nodes", "never") })
	write("what is this?")
	if !denied("nodes", "never") {
		t.Error("a mistake has ended the policy")
	}
}
