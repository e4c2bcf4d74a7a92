package policies

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/internal/must"
	v1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	upstreamadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
)

// named are expressions about everything that can be named, right and wrong ones. The messages are
// compiled without an authorizer.
var named = []string{
	"true",
	"object.metadata.name == 'a' && oldObject == null",
	"object.metadata.absent == 'a'",
	"object.data.all(k, size(object.data[k]) < 3)",
	"object.data.n > 2",
	"not an expression",
	"'no bool'",
	"request.operation == 'CREATE' && request.userInfo.username == 'admin' && request.userInfo.extra['x'] == ['y']",
	"request.kind.version == 'v1' && request.resource.resource == 'configmaps' && request.requestKind.kind == 'ConfigMap' && request.name == 'a'",
	"request.namespace == 'default' && !request.dryRun && !has(request.options)",
	"request.absent == ''",
	"namespaceObject.metadata.name == 'default' && namespaceObject.metadata.labels.env == 'test'",
	"namespaceObject.metadata.labels.absent == 'test'",
	"namespaceObject.status.phase == 'Active'",
	"has(namespaceObject.metadata.ownerReferences)",
	"params.data.max == '5'",
	"params == null",
	"params.data.absent",
	"variables.one == 1 && variables.two == 2",
	"variables.wrong == 1",
	"variables.uncompiled == 1",
	"variables.many.all(i, i >= 0)",
	"authorizer.group('').resource('pods').check('list').allowed()",
	"authorizer.requestResource.check('delete').reason() == 'because'",
	"authorizer.serviceAccount('a', 'b').path('/x').check('get').allowed() || !authorizer.path('/').check('get').allowed()",
}

func conditionsOfBoth(t *testing.T, vars cel.OptionalVariableDeclarations) (ours, theirs cel.ConditionEvaluator) {
	t.Helper()
	make := func() (*cel.CompositedCompiler, []cel.ExpressionAccessor) {
		c, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
		must.OK(t, err)
		c.CompileAndStoreVariables(variables([]v1.Variable{
			{Name: "one", Expression: "1"}, {Name: "two", Expression: "variables.one + 1"}, {Name: "wrong", Expression: "object.absent"},
			{Name: "uncompiled", Expression: "nothing"}, {Name: "many", Expression: "[1,2,3,4,5,6,7,8,9,10].map(i, i * 2)"},
		}), vars, environment.StoredExpressions)
		all := []cel.ExpressionAccessor{nil}
		for _, e := range named {
			all = append(all, &validating.ValidationCondition{Expression: e})
		}
		return c, all
	}
	c, all := make()
	ours = compile(c, all, vars)
	c, all = make()
	return ours, c.CompileCondition(all, vars, environment.StoredExpressions)
}

// told is what a policy sees of results.
func told(results []cel.EvaluationResult, budget int64, err error) string {
	var b strings.Builder
	for i, r := range results {
		expression := ""
		if r.ExpressionAccessor != nil {
			expression = r.ExpressionAccessor.GetExpression()
		}
		fmt.Fprintf(&b, "%d %q: %v %T %v\n", i, expression, r.EvalResult, r.Error, r.Error)
	}
	fmt.Fprintf(&b, "budget %d, error %T %v", budget, err, err)
	return b.String()
}

// TestConditionsAsUpstream: expressions come to what upstream's evaluator makes of them, and cost
// as much, whatever they name and whichever way they fail.
func TestConditionsAsUpstream(t *testing.T) {
	a := &admission.Attributes{Operation: admission.Create, Namespace: "default", Name: "a", User: &auth.User{Name: "admin", UID: "u", Groups: []string{"g"}, Extra: map[string][]string{"x": {"y"}}}}
	a.Object = map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "default"}, "data": map[string]any{"k": "v", "n": int64(3)}}
	a.Kind.Version, a.Kind.Kind, a.Resource.Version, a.Resource.Resource = "v1", "ConfigMap", "v1", "configmaps"
	attr := &upstreamadmission.VersionedAttributes{Attributes: a, VersionedKind: a.Kind, VersionedObject: &unstructured.Unstructured{Object: a.Object}}
	request := cel.CreateAdmissionRequest(a, metav1.GroupVersionResource(a.Resource), metav1.GroupVersionKind(a.Kind))
	full := &corev1.Namespace{Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}
	full.Name, full.UID, full.ResourceVersion, full.Labels = "default", "1", "2", map[string]string{"env": "test"}
	full.OwnerReferences = []metav1.OwnerReference{{Name: "o"}}
	may := authorizer.AuthorizerFunc(func(_ context.Context, q authorizer.Attributes) (authorizer.Decision, string, error) {
		if q.GetVerb() == "list" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "because", nil
	})
	parameters := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"max": "5"}}}
	for _, vars := range []cel.OptionalVariableDeclarations{{}, {HasParams: true}, {HasAuthorizer: true}, {HasParams: true, HasAuthorizer: true}} {
		ours, theirs := conditionsOfBoth(t, vars)
		if a, b := ours.CompilationErrors(), theirs.CompilationErrors(); fmt.Sprint(a) != fmt.Sprint(b) || len(a) == 0 {
			t.Fatalf("%+v: compilation errors\n%v\nwant\n%v", vars, a, b)
		}
		ctx := withValues(t.Context()) // one decision for all that follows
		inputs := []cel.OptionalVariableBindings{{}}
		if vars.HasParams {
			inputs = append(inputs, cel.OptionalVariableBindings{VersionedParams: parameters})
		}
		if vars.HasAuthorizer {
			for i := range inputs {
				inputs[i].Authorizer = may
			}
		}
		for _, in := range inputs {
			for _, namespace := range []*corev1.Namespace{nil, full, cel.CreateNamespaceObject(full), full.DeepCopy()} {
				for _, budget := range []int64{celconfig.RuntimeCELCostBudget, 0, 1, 5, 10, 20, 40, 60, 80, 100, 200} {
					got, want := told(ours.ForInput(ctx, attr, request, in, namespace, budget)), told(theirs.ForInput(t.Context(), attr, request, in, namespace, budget))
					if got != want {
						t.Fatalf("%+v, budget %d: it is\n%s\nupstream's is\n%s", vars, budget, got, want)
					}
				}
			}
		}
	}
}

// TestValuesOfKinds: what was made of a request for one kind is not shown for another one.
func TestValuesOfKinds(t *testing.T) {
	v := &values{}
	a := &admission.Attributes{Operation: admission.Create, Name: "a"}
	of := func(version string) any {
		return v.request(cel.CreateAdmissionRequest(a, metav1.GroupVersionResource{Version: version}, metav1.GroupVersionKind{Version: version}))
	}
	one, two := of("v1"), of("v2")
	if reflect.DeepEqual(one, two) {
		t.Error("requests of two versions are one")
	}
	if again := of("v1"); reflect.ValueOf(again).Pointer() != reflect.ValueOf(one).Pointer() {
		t.Error("a request was made again")
	}
}

// TestMatcherAsUpstream: selectors that are parsed beforehand match, and fail, as upstream's do.
func TestMatcherAsUpstream(t *testing.T) {
	by := matching.NewMatcher(nil, nil)
	theirs := generic.NewPolicyMatcher(by)
	a := &admission.Attributes{Operation: admission.Create, Name: "a", Object: map[string]any{"metadata": map[string]any{"name": "a", "labels": map[string]any{"k": "v"}}}}
	a.Kind.Version, a.Kind.Kind, a.Resource.Version, a.Resource.Resource = "v1", "ConfigMap", "v1", "configmaps"
	all, wrong := &metav1.LabelSelector{}, &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}
	for _, m := range []*v1.MatchResources{
		nil, {}, {NamespaceSelector: all}, {ObjectSelector: all}, {NamespaceSelector: all, ObjectSelector: all},
		{NamespaceSelector: wrong, ObjectSelector: all}, {NamespaceSelector: all, ObjectSelector: wrong},
		{NamespaceSelector: all, ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"k": "v"}}},
		{NamespaceSelector: all, ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"k": "w"}}},
	} {
		policy := &v1.ValidatingAdmissionPolicy{Spec: v1.ValidatingAdmissionPolicySpec{MatchConstraints: m}}
		binding := &v1.ValidatingAdmissionPolicyBinding{Spec: v1.ValidatingAdmissionPolicyBindingSpec{MatchResources: m}}
		ours := &matcher{theirs, by, map[*v1.MatchResources]*criteria{m: parse(m)}}
		tell := func(of generic.PolicyMatcher) string {
			is, resource, kind, err := of.DefinitionMatches(a, nil, validating.NewValidatingAdmissionPolicyAccessor(policy))
			bound, bindErr := of.BindingMatches(a, nil, validating.NewValidatingAdmissionPolicyBindingAccessor(binding))
			return fmt.Sprint(is, resource, kind, err, bound, bindErr)
		}
		if got, want := tell(ours), tell(theirs); got != want {
			t.Errorf("%v: it is %s, upstream's is %s", m, got, want)
		}
	}
}
