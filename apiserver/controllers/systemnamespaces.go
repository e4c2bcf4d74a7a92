package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/quorate/quorate/apiserver/builtin"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/proto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Namespaces that exist from the start.
var systemNamespaces = [...]string{"default", "kube-system", "kube-public", "kube-node-lease"}

func (l *Loops) namespaces() (*kinds.Resource, error) {
	res := l.objects.Kinds().Lookup(schema.GroupVersionResource{Version: "v1", Resource: objects.NamespacesTable})
	if res == nil {
		return nil, errors.New("the registry has no namespaces")
	}
	return res, nil
}

// EnsureNamespaces creates the namespaces that every cluster has, as far as they
// are missing. It is idempotent; the leader's node calls it.
func (l *Loops) EnsureNamespaces(ctx context.Context) error {
	res, err := l.namespaces()
	if err != nil {
		return fmt.Errorf("ensure namespaces: %w", err)
	}
	for _, name := range systemNamespaces {
		if v, err := l.objects.Current(res.Table(), name); err != nil {
			return fmt.Errorf("ensure namespace %s: %w", name, err)
		} else if v != nil {
			continue
		}
		o := l.objects.System(ctx, res, "", name, "create")
		obj := tree.Object{"kind": res.Kind, "apiVersion": "v1", "metadata": tree.Object{"name": name}}
		if _, err := o.Create(obj); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("ensure namespace %s: %w", name, err)
		}
	}
	return nil
}

// TerminatingNamespaces returns the namespaces that are being deleted, as this
// node sees it.
func (l *Loops) TerminatingNamespaces() ([]string, error) {
	var names []string
	versions, err := l.objects.Range(objects.NamespacesTable, "")
	for _, v := range versions {
		if v.Flags&proto.FlagTerminating != 0 {
			names = append(names, v.Key)
		}
	}
	return names, err
}

// WatchNamespaces returns a channel that is sent to when namespaces may have
// changed, and a function that ends it.
func (l *Loops) WatchNamespaces() (<-chan struct{}, func(), error) {
	return l.objects.WatchTable(objects.NamespacesTable)
}

// finalizeEmpty lets a terminating namespace without content go. It does nothing if
// the namespace is gone or not terminating.
func (l *Loops) finalizeEmpty(ctx context.Context, name string) error {
	res, err := l.namespaces()
	if err != nil {
		return fmt.Errorf("finalize namespace %s: %w", name, err)
	}
	v, err := l.objects.Current(res.Table(), name)
	if err != nil || v == nil || v.Flags&proto.FlagTerminating == 0 {
		return err
	}
	o := l.objects.System(ctx, res, "", name, "update")
	// From what the namespace has then: others take their finalizers away meanwhile.
	withoutOurs := func(has []string) []string {
		return slices.DeleteFunc(slices.Clone(has), func(f string) bool { return f == builtin.NamespaceFinalizer })
	}
	if _, err := builtin.SetNamespaceFinalizers(o, tree.Object{"uid": v.UID}, withoutOurs); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalize namespace %s: %w", name, err)
	}
	return nil
}
