package policies_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/policies"
	"github.com/quorate/quorate/apiserver/objects/objectstest"
	"github.com/quorate/quorate/internal/must"
)

// withPolicies is the plugin over a store with n policies, of which the first some are about
// ConfigMaps.
func withPolicies(t testing.TB, n, matching int, spec string) *policies.Validating {
	t.Helper()
	c := objectstest.NewCase(t, objectstest.Options{})
	for i := range n {
		resource := "secrets"
		if i < matching {
			resource = "configmaps"
		}
		c.Play(fmt.Sprintf(`create validatingadmissionpolicies.admissionregistration.k8s.io / {"metadata":{"name":"p%d"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":[%q]}]},%s}}`, i, resource, spec))
		c.Play(fmt.Sprintf(`create validatingadmissionpolicybindings.admissionregistration.k8s.io / {"metadata":{"name":"p%d"},"spec":{"policyName":"p%d","validationActions":["Deny"],"paramRef":{"selector":{"matchLabels":{"param":"yes"}},"parameterNotFoundAction":"Deny"}}}`, i, i))
	}
	p, err := policies.NewValidating(config(t, c.Memory, auth.Default()), nil)
	must.OK(t, err)
	return p
}

func configMap() *admission.Attributes {
	a := &admission.Attributes{Operation: admission.Create, Namespace: "default", Name: "a", User: &auth.User{Name: "admin"}}
	a.Object = map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "default"}, "data": map[string]any{"k": "v"}}
	a.Kind.Version, a.Kind.Kind, a.Resource.Version, a.Resource.Resource = "v1", "ConfigMap", "v1", "configmaps"
	return a
}

const simple = `"validations":[{"expression":"object.metadata.name != 'no' && object.data.all(k, size(object.data[k]) < 100)"}]`

func BenchmarkCreate(b *testing.B) {
	for _, c := range []struct{ policies, matching int }{{0, 0}, {10, 2}, {100, 0}} {
		b.Run(fmt.Sprintf("%d policies, %d match", c.policies, c.matching), func(b *testing.B) {
			p := withPolicies(b, c.policies, c.matching, simple)
			a := configMap()
			if p.Handles(a) && p.Validate(b.Context(), a) != nil { // compiles
				b.Fatal("denied")
			}
			b.ReportAllocs()
			for b.Loop() {
				if p.Handles(a) {
					if err := p.Validate(b.Context(), a); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkManyPolicies is a create that ten policies of two expressions each are evaluated for, in
// a namespace that they select, as `quorate bench load --rows create-policies` has it.
func BenchmarkManyPolicies(b *testing.B) {
	c := objectstest.NewCase(b, objectstest.Options{})
	for i := range 10 {
		c.Play(fmt.Sprintf(`create validatingadmissionpolicies.admissionregistration.k8s.io / {"metadata":{"name":"p%d"},"spec":{"matchConstraints":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"default"}},"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},"validations":[{"expression":"!object.metadata.name.startsWith('refused')"},{"expression":"!has(object.data) || object.data.all(k, size(object.data[k]) < %d)"}]}}`, i, 100_000+i))
		c.Play(fmt.Sprintf(`create validatingadmissionpolicybindings.admissionregistration.k8s.io / {"metadata":{"name":"p%d"},"spec":{"policyName":"p%d","validationActions":["Deny"]}}`, i, i))
	}
	p, err := policies.NewValidating(config(b, c.Memory, auth.Default()), nil)
	if err != nil {
		b.Fatal(err)
	}
	a := configMap()
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Validate(b.Context(), a); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	a.Name, a.Object["metadata"].(map[string]any)["name"] = "refused", "refused"
	if p.Validate(b.Context(), a) == nil {
		b.Fatal("nothing was evaluated")
	}
}

// TestNothingToDo: writes that no policy concerns cost no allocation.
func TestNothingToDo(t *testing.T) {
	for _, n := range []int{0, 10} {
		p, a := withPolicies(t, n, 0, simple), configMap()
		if got := testing.AllocsPerRun(100, func() { p.Handles(a) }); got != 0 {
			t.Errorf("%d policies about something else: %v allocations", n, got)
		}
	}
}

// TestParameters: very many parameters are decoded once, and what was read is noted.
func TestParameters(t *testing.T) {
	c := objectstest.NewCase(t, objectstest.Options{})
	const n = 500
	for i := range n {
		c.Play(fmt.Sprintf(`create configmaps default/ {"metadata":{"name":"c%d","labels":{"param":"yes"}},"data":{"max":"5"}}`, i))
	}
	c.Play(`create validatingadmissionpolicies.admissionregistration.k8s.io / {"metadata":{"name":"p"},"spec":{"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},"validations":[{"expression":"size(object.data) <= int(params.data.max)"}]}}`)
	c.Play(`create validatingadmissionpolicybindings.admissionregistration.k8s.io / {"metadata":{"name":"p"},"spec":{"policyName":"p","validationActions":["Deny"],"paramRef":{"selector":{"matchLabels":{"param":"yes"}},"parameterNotFoundAction":"Deny"}}}`)
	p, err := policies.NewValidating(config(t, c.Memory, auth.Default()), nil)
	must.OK(t, err)
	a := configMap()
	must.OK(t, p.Validate(t.Context(), a))
	if _, ranges := a.Decided(); fmt.Sprint(ranges) != "[{configmaps default/ }]" {
		t.Errorf("it has read %v", ranges)
	}
	c.Play(`merge configmaps default/c7 {"data":{"max":"0"}}`)
	if err := p.Validate(t.Context(), configMap()); err == nil || !strings.Contains(err.Error(), "denied request") {
		t.Errorf("a parameter that has changed: %v", err)
	}
}

// TestPermissions: what a policy asks the authorizer counts for the decision, for every
// user that it asks about, and in every namespace.
func TestPermissions(t *testing.T) {
	for _, c := range []struct {
		expression string
		rules      admission.Rules
		ranges     string
	}{
		{"true", 0, "[]"},
		{"authorizer.group('').resource('pods').check('list').allowed()", 0xf, "[]"},
		{"authorizer.group('').resource('pods').namespace('default').check('list').allowed()", 0xf, "[]"},
		{"authorizer.serviceAccount('a', 'b').group('').resource('pods').namespace('other').check('list').allowed() || true", 0xf,
			"[{roles.rbac.authorization.k8s.io other/ } {rolebindings.rbac.authorization.k8s.io other/ }]"},
	} {
		p, a := withPolicies(t, 1, 1, fmt.Sprintf(`"validations":[{"expression":%q}]`, c.expression)), configMap()
		a.User.Groups = []string{auth.Masters}
		if err := p.Validate(t.Context(), a); err != nil {
			t.Errorf("%s: %v", c.expression, err)
		}
		if rules, ranges := a.Decided(); rules != c.rules || fmt.Sprint(ranges) != c.ranges {
			t.Errorf("%s: consulted %b %v, want %b %s", c.expression, rules, ranges, c.rules, c.ranges)
		}
	}
}
