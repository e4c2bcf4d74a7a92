package builtin

import (
	"errors"
	"slices"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	Complete: func(_ *objects.Op, obj, old tree.Object) error {
		if old != nil || tree.Text(tree.As(obj["metadata"]), "generateName") == "" {
			labelNamespace(obj)
		}
		return nil
	},
	Prepare: func(obj, old tree.Object) {
		labelNamespace(obj)
		if old != nil {
			// Only the finalize subresource changes these.
			spec := tree.Clone(obj["spec"])
			tree.CopyField(spec, tree.As(old["spec"]), "finalizers")
			obj["spec"] = spec
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
	Holds:   func(obj tree.Object) bool { return tree.HasFinalizers(tree.As(obj["spec"])) },
	Updates: map[string]func(*objects.Op, tree.Object) (objects.Written, error){"finalize": finalizeNamespace},
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

// finalizeNamespace serves PUT namespaces/NAME/finalize: it changes spec.finalizers
// alone. Without any, a deleting namespace is gone.
func finalizeNamespace(o *objects.Op, sent tree.Object) (objects.Written, error) {
	list, _ := tree.Strings(tree.Lookup(sent, "spec.finalizers"))
	return SetNamespaceFinalizers(o, tree.As(sent["metadata"]), func([]string) []string { return list })
}

// SetNamespaceFinalizers gives a namespace the finalizers that next makes of those
// that it has.
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
		if err := o.Admit(obj, old); err != nil {
			return objects.Change{}, err
		}
		meta, oldMeta := tree.As(obj["metadata"]), tree.As(old["metadata"])
		if err := o.Check(obj, old); err != nil {
			return objects.Change{}, err
		}
		return o.FinishUpdate(cur, obj, old, meta, oldMeta)
	})
}
