package builtin

import (
	"slices"

	"github.com/quorate/quorate/apiserver/types/tree"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mergeLabelKeys adds to the label selectors of a new Pod what its matchLabelKeys and
// mismatchLabelKeys say: kube-scheduler goes by selectors.
func mergeLabelKeys(obj tree.Object) {
	labels := tree.As(tree.Field(obj, "metadata", "labels"))
	if len(labels) == 0 {
		return
	}
	spec := tree.As(obj["spec"])
	affinity := tree.As(spec["affinity"])
	if affinity == nil && spec["topologySpreadConstraints"] == nil {
		return
	}
	spec = tree.Clone(spec)
	obj["spec"] = spec
	changeItems(spec, "topologySpreadConstraints", func(constraint tree.Object) {
		selectByKeys(constraint, "matchLabelKeys", metav1.LabelSelectorOpIn, labels)
	})
	if affinity == nil {
		return
	}
	byKeys := func(term tree.Object) {
		selectByKeys(term, "matchLabelKeys", metav1.LabelSelectorOpIn, labels)
		selectByKeys(term, "mismatchLabelKeys", metav1.LabelSelectorOpNotIn, labels)
	}
	affinity = tree.Clone(affinity)
	spec["affinity"] = affinity
	for _, kind := range [...]string{"podAffinity", "podAntiAffinity"} {
		if affinity[kind] == nil {
			continue
		}
		terms := tree.Clone(affinity[kind])
		affinity[kind] = terms
		changeItems(terms, "requiredDuringSchedulingIgnoredDuringExecution", byKeys)
		changeItems(terms, "preferredDuringSchedulingIgnoredDuringExecution", func(weighted tree.Object) {
			if weighted["podAffinityTerm"] != nil {
				term := tree.Clone(weighted["podAffinityTerm"])
				byKeys(term)
				weighted["podAffinityTerm"] = term
			}
		})
	}
}

// changeItems changes copies of the objects in a list of obj.
func changeItems(obj tree.Object, name string, change func(item tree.Object)) {
	if obj[name] == nil {
		return
	}
	list := slices.Clone(tree.List(obj[name]))
	for i := range list {
		item := tree.Clone(list[i])
		change(item)
		list[i] = item
	}
	obj[name] = list
}

// selectByKeys adds to an item's selector a requirement for each of its keys that the Pod has as a
// label. An item without a selector selects nothing, and stays so.
func selectByKeys(item tree.Object, keys string, operator metav1.LabelSelectorOperator, labels tree.Object) {
	if item["labelSelector"] == nil {
		return
	}
	selector := tree.Clone(item["labelSelector"])
	requirements := slices.Clone(tree.List(selector["matchExpressions"]))
	for _, key := range tree.List(item[keys]) {
		name, _ := key.(string)
		if value, ok := labels[name]; ok {
			requirements = append(requirements, tree.Object{"key": name, "operator": string(operator), "values": []any{value}})
		}
	}
	if len(requirements) > 0 {
		selector["matchExpressions"] = requirements
	}
	item["labelSelector"] = selector
}
