package builtin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/storage"
	"github.com/quorate/quorate/apiserver/types/crd"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// definitionStrategy is that of CustomResourceDefinitions.
var definitionStrategy = objects.Strategy{
	Fit: func(obj tree.Object) error { return crd.CheckForm(obj) },
	Complete: func(o *objects.Op, obj, old tree.Object) error {
		if o.Info.Subresource != "" {
			return nil
		}
		if err := crd.Default(obj); err != nil {
			return storage.Permanent{Err: status.CannotBeHandled(o.Resource.GVK(), o.Resource.Kind, err)}
		}
		return crd.PrepareStatus(obj, old == nil)
	},
	ValidateWith: func(o *objects.Op, obj, old tree.Object) (field.ErrorList, error) {
		check := func() (field.ErrorList, error) {
			return crd.ValidateDefinition(o.Context, obj, old, o.Info.Subresource == "status")
		}
		n := countRules(obj["spec"])
		switch {
		case n == 0:
			return check()
		case n > maxRules && n > countRules(old["spec"]):
			return field.ErrorList{field.Forbidden(field.NewPath("spec", "versions"), fmt.Sprintf("have %d rules of x-kubernetes-validations, at most %d are compiled for one definition", n, maxRules))}, nil
		}
		return inTurn(o.Context, check)
	},
	Warnings:    func(obj, old tree.Object) []string { return crd.FormatWarnings(obj, old) },
	StartDelete: startDeleteDefinition,
	Parts:       map[string]objects.Part{"status": copyDefinitionStatus},
}

// copyDefinitionStatus is the status. One without stored versions has that in which the definition
// that was sent stores: it is a default, which comes before the spec is taken back. If that stores in
// none, it is the default of what is stored.
func copyDefinitionStatus(o *objects.Op, obj, sent, old tree.Object) error {
	if err := objects.CopyStatus(o, obj, sent, old); err != nil {
		return err
	}
	state := tree.As(obj["status"])
	version := crd.StorageVersionName(sent)
	if version == "" {
		version = crd.StorageVersionName(obj)
	}
	if version != "" && len(tree.List(state["storedVersions"])) == 0 {
		state = tree.Clone(state)
		state["storedVersions"] = []any{version}
		obj["status"] = state
	}
	return nil
}

// maxRules is how many rules the schemas of one definition may have. Upstream bounds their estimated
// costs when they run, not what it takes to compile them: 0.3 ms and 65 KB each, on every node.
const maxRules = 2000

// countRules is how many rules of expressions the schemas within a definition have; one whose
// message is an expression counts twice. A property may be called as the rules are: its
// schema is no list.
func countRules(v any) (n int) {
	for _, x := range tree.List(v) {
		n += countRules(x)
	}
	for name, x := range tree.As(v) {
		rules, are := x.([]any)
		if !are || name != "x-kubernetes-validations" {
			n += countRules(x)
			continue
		}
		n += len(rules)
		for _, rule := range rules {
			if tree.Text(tree.As(rule), "messageExpression") != "" {
				n++
			}
		}
	}
	return n
}

// Custom is that of all custom resources.
var Custom = objects.Strategy{
	ForUser: func(o *objects.Op, _, old tree.Object) error {
		if old == nil && crd.Of(o.Resource).Definition().Terminating() {
			return o.DefinitionTerminating()
		}
		return nil
	},
	Validation: validatedLater{},
	ValidateWith: func(o *objects.Op, obj, old tree.Object) (field.ErrorList, error) {
		validate := crd.Of(o.Resource).Validate
		switch {
		case o.Other != nil:
			validate = crd.Of(o.Resource).ValidateOther
		case o.Info.Subresource == "status":
			validate = crd.Of(o.Resource).ValidateStatus
		}
		found := o.MetaErrors(obj, old)
		errs, err := validate(o.Context, obj, old, found)
		return append(found, errs...), err
	},
	Warnings: warningsForFinalizers,
}

// warningsForFinalizers tell of new finalizers that others may have, too. Those of built-in kinds
// are refused.
func warningsForFinalizers(obj, old tree.Object) (out []string) {
	list, _ := tree.Strings(tree.Field(obj, "metadata", "finalizers"))
	was, _ := tree.Strings(tree.Field(old, "metadata", "finalizers"))
	slices.Sort(was)
	for _, name := range slices.Compact(slices.Sorted(slices.Values(list))) {
		if _, has := slices.BinarySearch(was, name); has || strings.Contains(name, "/") || slices.Contains(standardFinalizers, name) {
			continue
		}
		path := ""
		if strings.Contains(name, ".") {
			path = " including a path (/)"
		}
		out = append(out, fmt.Sprintf("metadata.finalizers: %q: prefer a domain-qualified finalizer name%s to avoid accidental conflicts with other finalizer writers", name, path))
	}
	return out
}

// standardFinalizers are the ones without a domain that upstream knows.
var standardFinalizers = []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents, string(corev1.FinalizerKubernetes)}

// startDeleteDefinition keeps a definition until its objects are deleted.
func startDeleteDefinition(o *objects.Op, obj tree.Object) (held bool) {
	meta := tree.As(obj["metadata"])
	if tree.Text(meta, "deletionTimestamp") != "" {
		return false
	}
	state, err := crd.StatusOf(obj)
	if err != nil {
		return false // what is stored was checked
	}
	crd.SetCondition(state, crd.TerminatingPending, o.Store.Now())
	if obj["status"], err = crd.StatusTree(state); err != nil {
		return false
	}
	list, _ := tree.Strings(meta["finalizers"])
	if !slices.Contains(list, crd.Finalizer) {
		tree.SetFinalizers(meta, append(slices.Clone(list), crd.Finalizer))
	}
	return true
}
