package apiserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quorate/quorate/apiserver/auth"
	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var namespacesResource = schema.GroupResource{Resource: namespacesTable}

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

var namespaceHooks = objectHooks{
	prepare: func(obj, old tree) {
		labelNamespace(obj)
		if old != nil {
			// Only the finalize subresource changes these.
			spec := maps.Clone(asTree(obj["spec"]))
			if spec == nil {
				spec = tree{}
			}
			carry(spec, asTree(old["spec"]), "finalizers")
			obj["spec"] = spec
			return
		}
		spec := maps.Clone(asTree(obj["spec"]))
		if spec == nil {
			spec = tree{}
		}
		list, _ := stringList(spec["finalizers"])
		if !slices.Contains(list, namespaceFinalizer) {
			list = append(list, namespaceFinalizer)
		}
		setFinalizers(spec, list)
		obj["spec"] = spec
		obj["status"] = tree{"phase": namespaceActive}
	},
	mayDelete: func(c *call, name string) error {
		if immortalNamespaces[name] {
			return apierrors.NewForbidden(namespacesResource, name, errors.New("this namespace may not be deleted"))
		}
		return nil
	},
	startDelete: func(_ *call, obj tree) bool {
		state := maps.Clone(asTree(obj["status"]))
		if state == nil {
			state = tree{}
		}
		state["phase"] = namespaceTerminates
		obj["status"] = state
		return hasFinalizers(asTree(obj["spec"]))
	},
	holds: func(obj tree) bool { return hasFinalizers(asTree(obj["spec"])) },
}

func asTree(v any) tree {
	m, _ := v.(tree)
	return m
}

// labelNamespace sets the label that selectors of namespaces go by.
func labelNamespace(obj tree) {
	meta := asTree(obj["metadata"])
	name := text(meta, "name")
	if name == "" {
		return
	}
	labels := maps.Clone(asTree(meta["labels"]))
	if labels == nil {
		labels = tree{}
	}
	labels[namespaceNameLabel] = name
	meta["labels"] = labels
}

// finalizeNamespace serves PUT namespaces/NAME/finalize: it changes spec.finalizers
// alone. Without any, a deleting namespace is gone.
func (c *call) finalizeNamespace() error {
	if err := c.q.checkModify("UpdateOptions"); err != nil {
		return err
	}
	f, err := c.format(c.res, codec.ShapeObject)
	if err != nil {
		return err
	}
	model, err := c.model()
	if err != nil {
		return err
	}
	sent, err := c.readObject(c.res, model)
	if err != nil {
		return err
	}
	if err := c.matchPath(sent); err != nil {
		return err
	}
	list, _ := stringList(lookup(sent, "spec.finalizers"))
	w, err := c.setNamespaceFinalizers(asTree(sent["metadata"]), func([]string) []string { return list })
	if err != nil {
		return err
	}
	return c.answer(f, codeOf(false), w)
}

// setNamespaceFinalizers gives a namespace the finalizers that next makes of those
// that it has.
func (c *call) setNamespaceFinalizers(identity tree, next func([]string) []string) (written, error) {
	return c.mutate(c.key(), func(cur *mvcc.Version) (change, error) {
		if cur == nil {
			return change{}, c.notFound()
		}
		if err := c.checkIdentity(identity, cur); err != nil {
			return change{}, err
		}
		old, obj, meta, err := c.editable(cur)
		if err != nil {
			return change{}, err
		}
		spec := maps.Clone(asTree(obj["spec"]))
		if spec == nil {
			spec = tree{}
		}
		has, _ := stringList(spec["finalizers"])
		setFinalizers(spec, next(has))
		obj["spec"] = spec
		oldMeta := asTree(old["metadata"])
		if err := c.invalid(c.info.Name, append(validateMeta(meta, c.res), validateMetaUpdate(meta, oldMeta)...)); err != nil {
			return change{}, err
		}
		return c.settle(cur, obj, old, meta, oldMeta)
	})
}

// internal is a call that no client made: by the node itself, with every
// permission.
func (s *Server) internal(ctx context.Context, res *kinds.Resource, namespace, name, verb string) *call {
	return &call{
		s: s, ctx: ctx, res: res, start: time.Now(), q: query{FieldManager: "quorate"},
		user: &auth.User{Name: "system:apiserver", Groups: []string{auth.Masters, auth.Authenticated}},
		info: RequestInfo{
			IsResource: true, Verb: verb, Group: res.Group, Version: res.Version, Resource: res.Plural,
			Namespace: namespace, Name: name, objectNamespace: namespace,
		},
		kind: RequestKind{Verb: verb, Group: res.Group, Version: res.Version, Resource: res.Plural, Component: "apiserver"},
	}
}

func (s *Server) namespaces() (*kinds.Resource, error) {
	res := s.cfg.Kinds().Lookup(schema.GroupVersionResource{Version: "v1", Resource: namespacesTable})
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
		if v, err := s.current(res.Table(), name); err != nil {
			return fmt.Errorf("ensure namespace %s: %w", name, err)
		} else if v != nil {
			continue
		}
		c := s.internal(ctx, res, "", name, "create")
		obj := tree{"kind": res.Kind, "apiVersion": "v1", "metadata": tree{"name": name}}
		if _, err := c.createObject(obj); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("ensure namespace %s: %w", name, err)
		}
	}
	return nil
}

// TerminatingNamespaces returns the namespaces that are being deleted, as this
// node sees it.
func (s *Server) TerminatingNamespaces() ([]string, error) {
	var names []string
	versions, err := s.rangeNow(namespacesTable, "")
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
	w, err := s.cfg.Store.Watch(namespacesTable, s.cfg.Store.State().Applied())
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
	v, err := s.current(res.Table(), name)
	if err != nil || v == nil || v.Flags&proto.FlagTerminating == 0 {
		return err
	}
	c := s.internal(ctx, res, "", name, "update")
	// From what the namespace has then: others take their finalizers away meanwhile.
	withoutOurs := func(has []string) []string {
		return slices.DeleteFunc(slices.Clone(has), func(f string) bool { return f == namespaceFinalizer })
	}
	if _, err := c.setNamespaceFinalizers(tree{"uid": v.UID}, withoutOurs); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalize namespace %s: %w", name, err)
	}
	return nil
}

// rangeNow returns the live versions of a table below a prefix.
func (s *Server) rangeNow(table, prefix string) ([]*mvcc.Version, error) {
	return s.matchNow(table, mvcc.Query{Prefix: prefix})
}

// matchNow returns the live versions of a table that a query selects.
func (s *Server) matchNow(table string, q mvcc.Query) ([]*mvcc.Version, error) {
	page, _, err := s.scan(table, consistency.Plan{Mode: consistency.Any}, 0, q)
	return page.Versions, err
}
