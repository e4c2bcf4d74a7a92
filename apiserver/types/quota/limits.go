package quota

import (
	"slices"

	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Tables names the table of a resource's objects.
type Tables func(gr schema.GroupResource) string

// Names are those names in the spec.hard of a quota that bound something, sorted. Bounds are
// in their order, one for each.
func Names[K ~string, V any](hard map[K]V) []string {
	names := make([]string, 0, len(hard))
	for name := range hard {
		if _, ok := ResourceOf(string(name)); ok {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	return names
}

// LimitsOf are the limits that a quota sets. A quota that bounds nothing sets none.
func LimitsOf(obj tree.Object, tables Tables) []*proto.Limit {
	spec := tree.As(obj["spec"])
	hard := tree.As(spec["hard"])
	names := Names(hard)
	if len(names) == 0 {
		return nil
	}
	limit := &proto.Limit{Requirements: requirements(spec), Bounds: make([]*proto.Bound, len(names))}
	for i, name := range names {
		r, _ := ResourceOf(name)
		q, _ := quantityOf(hard[name])
		b := &proto.Bound{Name: name, Max: Bound(name, q)}
		if r.Amount != "" {
			b.Name, b.Max = r.Amount, Bound(r.Amount, q)
		} else {
			b.Table = tables(r.Of)
		}
		limit.Bounds[i] = b
	}
	return []*proto.Limit{limit}
}

// requirements are the scopes of a quota, in the words of facts.
func requirements(spec tree.Object) (out []*proto.Requirement) {
	for _, s := range scopes(spec) {
		out = append(out, requirementsOf(s)...)
	}
	return out
}

// scopes are all scopes of a quota's spec, as selectors.
func scopes(spec tree.Object) (out []corev1.ScopedResourceSelectorRequirement) {
	names, _ := tree.Strings(spec["scopes"])
	for _, name := range names {
		out = append(out, corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScope(name), Operator: corev1.ScopeSelectorOpExists})
	}
	for _, e := range tree.List(tree.Field(spec, "scopeSelector", "matchExpressions")) {
		m := tree.As(e)
		values, _ := tree.Strings(m["values"])
		out = append(out, corev1.ScopedResourceSelectorRequirement{
			ScopeName: corev1.ResourceQuotaScope(tree.Text(m, "scopeName")), Operator: corev1.ScopeSelectorOperator(tree.Text(m, "operator")), Values: values,
		})
	}
	return out
}

var operators = map[corev1.ScopeSelectorOperator]proto.Operator{
	corev1.ScopeSelectorOpIn:           proto.Operator_OPERATOR_IN,
	corev1.ScopeSelectorOpNotIn:        proto.Operator_OPERATOR_NOT_IN,
	corev1.ScopeSelectorOpExists:       proto.Operator_OPERATOR_EXISTS,
	corev1.ScopeSelectorOpDoesNotExist: proto.Operator_OPERATOR_DOES_NOT_EXIST,
}

// requirementsOf are one scope in the words of facts. An unknown one, which validation
// refuses, is met by nothing.
func requirementsOf(s corev1.ScopedResourceSelectorRequirement) []*proto.Requirement {
	kinds := podKinds
	fact := &proto.Requirement{Name: string(s.ScopeName), Operator: operators[s.Operator], Values: s.Values}
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		fact.Operator, fact.Values = proto.Operator_OPERATOR_EXISTS, nil
	case corev1.ResourceQuotaScopeNotTerminating:
		fact.Name, fact.Operator, fact.Values = factTerminating, proto.Operator_OPERATOR_DOES_NOT_EXIST, nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		fact.Name, fact.Operator, fact.Values = factBestEffort, proto.Operator_OPERATOR_DOES_NOT_EXIST, nil
	case corev1.ResourceQuotaScopePriorityClass:
	case corev1.ResourceQuotaScopeVolumeAttributesClass:
		kinds = volumeClaimKind
	default:
		fact.Operator = proto.Operator_OPERATOR_IN // of no values
		fact.Values = nil
	}
	if fact.Operator == proto.Operator_OPERATOR_UNSPECIFIED {
		fact.Operator, fact.Values = proto.Operator_OPERATOR_IN, nil
	}
	return []*proto.Requirement{{Name: factKind, Operator: proto.Operator_OPERATOR_IN, Values: kinds}, fact}
}

// InScope reports whether what has these facts is what a scope is about.
func (u Usage) InScope(s corev1.ScopedResourceSelectorRequirement) bool {
	for _, r := range requirementsOf(s) {
		if !u.meets(r) {
			return false
		}
	}
	return true
}

// meets is what the state machine finds of a requirement.
func (u Usage) meets(r *proto.Requirement) bool {
	there := false
	for _, f := range u.Facts {
		if f.Name != r.Name {
			continue
		}
		there = true
		if r.Operator == proto.Operator_OPERATOR_IN && slices.Contains(r.Values, f.Value) ||
			r.Operator == proto.Operator_OPERATOR_NOT_IN && !slices.Contains(r.Values, f.Value) {
			return true
		}
	}
	switch r.Operator {
	case proto.Operator_OPERATOR_IN:
		return false
	case proto.Operator_OPERATOR_EXISTS:
		return there
	}
	return !there
}
