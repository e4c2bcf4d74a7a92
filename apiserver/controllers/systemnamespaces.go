package controllers

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Namespaces that exist from the start.
var systemNamespaces = [...]string{"default", "kube-system", "kube-public", "kube-node-lease"}

func namespacesOf(s *objects.Store) (*kinds.Resource, error) {
	res := s.Kinds().Lookup(schema.GroupVersionResource{Version: "v1", Resource: objects.NamespacesTable})
	if res == nil {
		return nil, errors.New("the registry has no namespaces")
	}
	return res, nil
}

// EnsureNamespaces creates the namespaces that every cluster has, as far as they are
// missing. Programs that run no other controller call it, such as simulations.
func EnsureNamespaces(ctx context.Context, s *objects.Store) error {
	res, err := namespacesOf(s)
	if err != nil {
		return fmt.Errorf("ensure namespaces: %w", err)
	}
	for _, name := range systemNamespaces {
		if v, err := s.Current(res.Table(), name); err != nil {
			return fmt.Errorf("ensure namespace %s: %w", name, err)
		} else if v != nil {
			continue
		}
		o := s.System(ctx, res, "", name, "create")
		obj := tree.Object{"kind": res.Kind, "apiVersion": "v1", "metadata": tree.Object{"name": name}}
		if _, err := o.Create(obj); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("ensure namespace %s: %w", name, err)
		}
	}
	return nil
}
