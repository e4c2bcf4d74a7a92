package apiserver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Namespaces that exist from the start.
var systemNamespaces = [...]string{"default", "kube-system", "kube-public", "kube-node-lease"}

// immortalNamespaces cannot be deleted, as upstream has it.
var immortalNamespaces = map[string]bool{"default": true, "kube-system": true, "kube-public": true}

const (
	namespaceNameLabel  = "kubernetes.io/metadata.name"
	namespaceFinalizer  = "kubernetes"
	namespaceActive     = "Active"
	namespaceTerminates = "Terminating"
)

var namespaceStrategy = objects.Strategy{
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
		if !slices.Contains(list, namespaceFinalizer) {
			list = append(list, namespaceFinalizer)
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
	return setNamespaceFinalizers(o, tree.As(sent["metadata"]), func([]string) []string { return list })
}

// setNamespaceFinalizers gives a namespace the finalizers that next makes of those
// that it has.
func setNamespaceFinalizers(o *objects.Op, identity tree.Object, next func([]string) []string) (objects.Written, error) {
	return o.GuaranteedUpdate(o.Key(), func(cur *mvcc.Version) (objects.Change, error) {
		if cur == nil {
			return objects.Change{}, o.NotFound()
		}
		if err := o.CheckIdentity(identity, cur); err != nil {
			return objects.Change{}, err
		}
		old, obj, meta, err := o.Editable(cur)
		if err != nil {
			return objects.Change{}, err
		}
		spec := tree.Clone(obj["spec"])
		has, _ := tree.Strings(spec["finalizers"])
		tree.SetFinalizers(spec, next(has))
		obj["spec"] = spec
		oldMeta := tree.As(old["metadata"])
		if err := o.Invalid(o.Info.Name, append(tree.ValidateMeta(meta, o.Resource.NameRule), tree.ValidateMetaUpdate(meta, oldMeta)...)); err != nil {
			return objects.Change{}, err
		}
		return o.FinishUpdate(cur, obj, old, meta, oldMeta)
	})
}

func (s *Server) namespaces() (*kinds.Resource, error) {
	res := s.cfg.Kinds().Lookup(schema.GroupVersionResource{Version: "v1", Resource: objects.NamespacesTable})
	if res == nil {
		return nil, errors.New("the registry has no namespaces")
	}
	return res, nil
}

// EnsureNamespaces creates the namespaces that every cluster has, as far as they
// are missing. It is idempotent; the leader's node calls it.
func (s *Server) EnsureNamespaces(ctx context.Context) error {
	res, err := s.namespaces()
	if err != nil {
		return fmt.Errorf("ensure namespaces: %w", err)
	}
	for _, name := range systemNamespaces {
		if v, err := s.objects.Current(res.Table(), name); err != nil {
			return fmt.Errorf("ensure namespace %s: %w", name, err)
		} else if v != nil {
			continue
		}
		o := s.objects.System(ctx, res, "", name, "create")
		obj := tree.Object{"kind": res.Kind, "apiVersion": "v1", "metadata": tree.Object{"name": name}}
		if _, err := o.Create(obj); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("ensure namespace %s: %w", name, err)
		}
	}
	return nil
}

// TerminatingNamespaces returns the namespaces that are being deleted, as this
// node sees it.
func (s *Server) TerminatingNamespaces() ([]string, error) {
	var names []string
	versions, err := s.objects.Range(objects.NamespacesTable, "")
	for _, v := range versions {
		if v.Flags&proto.FlagTerminating != 0 {
			names = append(names, v.Key)
		}
	}
	return names, err
}

// WatchNamespaces returns a channel that is sent to when namespaces may have
// changed, and a function that ends it.
func (s *Server) WatchNamespaces() (<-chan struct{}, func(), error) {
	w, err := s.cfg.Store.Watch(objects.NamespacesTable, s.cfg.Store.State().Applied(), mvcc.Interest{})
	if err != nil {
		return nil, nil, fmt.Errorf("watch namespaces: %w", err)
	}
	return w.Wake(), w.Close, nil
}

// finalizeEmpty lets a terminating namespace without content go. It does nothing if
// the namespace is gone or not terminating.
func (s *Server) finalizeEmpty(ctx context.Context, name string) error {
	res, err := s.namespaces()
	if err != nil {
		return fmt.Errorf("finalize namespace %s: %w", name, err)
	}
	v, err := s.objects.Current(res.Table(), name)
	if err != nil || v == nil || v.Flags&proto.FlagTerminating == 0 {
		return err
	}
	o := s.objects.System(ctx, res, "", name, "update")
	// From what the namespace has then: others take their finalizers away meanwhile.
	withoutOurs := func(has []string) []string {
		return slices.DeleteFunc(slices.Clone(has), func(f string) bool { return f == namespaceFinalizer })
	}
	if _, err := setNamespaceFinalizers(o, tree.Object{"uid": v.UID}, withoutOurs); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalize namespace %s: %w", name, err)
	}
	return nil
}
