package builtin

import (
	"errors"
	"slices"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// immortalNamespaces cannot be deleted, as upstream has it.
var immortalNamespaces = map[string]bool{"default": true, "kube-system": true, "kube-public": true}

const (
	namespaceNameLabel  = "kubernetes.io/metadata.name"
	NamespaceFinalizer  = "kubernetes"
	namespaceActive     = "Active"
	namespaceTerminates = "Terminating"
)

var namespaceStrategy = objects.Strategy{
	// The label has an owner as what clients leave out has, if the name is the client's too.
	Complete: func(o *objects.Op, obj, old tree.Object) error {
		if old != nil || tree.Text(tree.As(obj["metadata"]), "generateName") == "" || !o.NameGenerated() {
			labelNamespace(obj)
		}
		return nil
	},
	Prepare: func(obj, old tree.Object) {
		if old != nil {
			return
		}
		spec := tree.Clone(obj["spec"])
		list, _ := tree.Strings(spec["finalizers"])
		if !slices.Contains(list, NamespaceFinalizer) {
			list = append(list, NamespaceFinalizer)
		}
		tree.SetFinalizers(spec, list)
		obj["spec"] = spec
		obj["status"] = tree.Object{"phase": namespaceActive}
	},
	// A name that the server has made is in the label when it has been validated, so that nothing is said of it twice.
	Allocate: func(_ *objects.Op, obj, _ tree.Object) (field.ErrorList, error) {
		labelNamespace(obj)
		return nil, nil
	},
	// Only the finalize subresource changes the spec's finalizers.
	ForUser: func(o *objects.Op, obj, old tree.Object) error {
		if old == nil || o.Info.Subresource == "finalize" {
			return nil
		}
		spec := tree.Clone(obj["spec"])
		tree.CopyField(spec, tree.As(old["spec"]), "finalizers")
		obj["spec"] = spec
		return nil
	},
	MayDelete: func(name string) error {
		if immortalNamespaces[name] {
			return apierrors.NewForbidden(objects.NamespacesGR, name, errors.New("this namespace may not be deleted"))
		}
		return nil
	},
	StartDelete: func(_ *objects.Op, obj tree.Object) bool {
		state := tree.Clone(obj["status"])
		state["phase"] = namespaceTerminates
		obj["status"] = state
		return tree.HasFinalizers(tree.As(obj["spec"]))
	},
	Holds: func(obj tree.Object) bool { return tree.HasFinalizers(tree.As(obj["spec"])) },
	Parts: map[string]objects.Part{"finalize": copyNamespaceSpec},
}

// labelNamespace sets the label that selectors of namespaces go by.
func labelNamespace(obj tree.Object) {
	meta := tree.As(obj["metadata"])
	name := tree.Text(meta, "name")
	if name == "" {
		return
	}
	labels := tree.Clone(meta["labels"])
	labels[namespaceNameLabel] = name
	meta["labels"] = labels
}

// copyNamespaceSpec is the part of namespaces/finalize: the spec, which is finalizers alone. A
// deleting namespace without any is gone.
func copyNamespaceSpec(_ *objects.Op, obj, sent, _ tree.Object) error {
	tree.CopyField(obj, sent, "spec")
	return nil
}

// SetNamespaceFinalizers gives a namespace the finalizers that next makes of those
// that it has. It is for the node itself, whose writes no plugin is asked about.
func SetNamespaceFinalizers(o *objects.Op, identity tree.Object, next func([]string) []string) (objects.Written, error) {
	return o.GuaranteedUpdate(o.Key(), func(cur *mvcc.Version) (objects.Change, error) {
		if cur == nil {
			return objects.Change{}, o.NotFound()
		}
		if err := o.CheckIdentity(identity, cur); err != nil {
			return objects.Change{}, err
		}
		old, obj, _, err := o.Editable(cur)
		if err != nil {
			return objects.Change{}, err
		}
		spec := tree.Clone(obj["spec"])
		has, _ := tree.Strings(spec["finalizers"])
		tree.SetFinalizers(spec, next(has))
		obj["spec"] = spec
		meta, oldMeta := tree.As(obj["metadata"]), tree.As(old["metadata"])
		if err := o.Check(obj, old); err != nil {
			return objects.Change{}, err
		}
		return o.FinishUpdate(cur, obj, old, meta, oldMeta)
	})
}
