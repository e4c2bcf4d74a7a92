package controllers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestPolicyStatus: the status of a policy says which expressions do not fit the types that it
// matches, once for each generation.
func TestPolicyStatus(t *testing.T) {
	e := newEnv(t, Config{Controllers: []Name{PolicyStatusController}})
	policy := func(expression, message string) tree.Object {
		return tree.Object{
			"metadata": tree.Object{"name": "p"},
			"spec": tree.Object{
				"matchConstraints": tree.Object{"resourceRules": []any{tree.Object{
					"apiGroups": []any{"apps"}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"deployments"},
				}}},
				"validations": []any{tree.Object{"expression": expression, "messageExpression": message}},
			},
		}
	}
	says := func(generation int64, want string) func() string {
		return func() string {
			var p admissionv1.ValidatingAdmissionPolicy
			must.OK(t, e.client.Get(t.Context(), policiesGVR, "", "p", &p))
			if p.Status.ObservedGeneration != generation {
				return fmt.Sprintf("generation %d, status %+v", p.Generation, p.Status)
			}
			var got []string
			if checked := p.Status.TypeChecking; checked != nil {
				for _, w := range checked.ExpressionWarnings {
					got = append(got, w.FieldRef+": "+w.Warning)
				}
			}
			if all := strings.Join(got, "\n"); want == "" && all != "" || !strings.Contains(all, want) {
				return "it says " + all
			}
			return ""
		}
	}
	created := &unstructured.Unstructured{Object: policy("object.spec.replicas > '1'", "'there are ' + object.spec.nothing")}
	must.OK(t, e.client.Create(t.Context(), policiesGVR, "", created))
	e.run()
	e.await("warnings", says(1, "spec.validations[0].expression: apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'"))
	e.await("warnings", says(1, "spec.validations[0].messageExpression: apps/v1, Kind=Deployment: ERROR: <input>:1:27: undefined field 'nothing'"))
	var p admissionv1.ValidatingAdmissionPolicy
	must.OK(t, e.client.Get(t.Context(), policiesGVR, "", "p", &p))
	p.Spec.Validations[0].Expression, p.Spec.Validations[0].MessageExpression = "object.spec.replicas > 1", "'there are ' + string(object.spec.replicas)"
	must.OK(t, e.client.Update(t.Context(), policiesGVR, "", "p", &p))
	e.await("no warnings", says(2, ""))
}

// TestTypeChecks: the leader does not compile for minutes what one policy has.
func TestTypeChecks(t *testing.T) {
	rule := func(resources ...string) admissionv1.NamedRuleWithOperations {
		return admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{Rule: admissionv1.Rule{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: resources,
		}}}
	}
	twelve := strings.Split("abcdefghijkl", "")
	for _, row := range []struct {
		expressions, messages, variables int
		rules                            []admissionv1.NamedRuleWithOperations
		want                             int
	}{
		{1, 0, 0, []admissionv1.NamedRuleWithOperations{rule("pods")}, 1},
		{3, 2, 4, []admissionv1.NamedRuleWithOperations{rule("pods", "services"), rule("secrets")}, 5 * 3 * 5},
		{500, 0, 499, []admissionv1.NamedRuleWithOperations{rule(twelve...)}, 500 * 10 * 500},
		{5, 0, 5, nil, 0},
	} {
		p := &admissionv1.ValidatingAdmissionPolicy{}
		p.Spec.MatchConstraints = &admissionv1.MatchResources{ResourceRules: row.rules}
		for i := range row.expressions {
			v := admissionv1.Validation{Expression: "true"}
			if i < row.messages {
				v.MessageExpression = "'a'"
			}
			p.Spec.Validations = append(p.Spec.Validations, v)
		}
		for i := range row.variables {
			p.Spec.Variables = append(p.Spec.Variables, admissionv1.Variable{Name: fmt.Sprint("v", i), Expression: "1"})
		}
		got := typeChecks(&p.Spec)
		if got != row.want {
			t.Errorf("%d, want %d", got, row.want)
		}
		if got <= maxTypeChecks {
			continue
		}
		warnings, err := typeWarnings(t.Context(), nil, p)
		if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].Warning, "types were not checked") {
			t.Errorf("%v %v", warnings, err)
		}
	}
}
