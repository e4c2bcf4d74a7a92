package controllers

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/proto"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// accountsGVR are service accounts, and defaultAccount is the one that every
// namespace has.
var accountsGVR = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}

const defaultAccount = "default"

// accountMaker gives every namespace the service account default.
type accountMaker struct{ base }

func (m accountMaker) run(ctx context.Context) error {
	tables := []string{objects.NamespacesTable, kinds.BuiltinTable(accountsGVR.GroupResource())}
	return m.onChange(ctx, tables, 0, func() (again bool, _ error) {
		names, err := m.withoutAccount()
		if err != nil {
			return false, fmt.Errorf("list namespaces without service accounts: %w", err)
		}
		for _, name := range names {
			if err := m.create(ctx, name); err != nil {
				if ctx.Err() != nil {
					return false, context.Cause(ctx)
				}
				again = true
				m.reports.failed("cannot create the default service account, retrying", "namespace", name, "err", err)
			}
		}
		return again, nil
	})
}

// withoutAccount returns the namespaces without a service account default that are not
// being deleted, as this node sees it.
func (m accountMaker) withoutAccount() ([]string, error) {
	res := m.objects.Kinds().Lookup(accountsGVR)
	if res == nil {
		return nil, errors.New("the registry has no service accounts")
	}
	versions, err := m.objects.Range(objects.NamespacesTable, "")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, ns := range versions {
		if ns.Flags&proto.FlagTerminating != 0 {
			continue
		}
		v, err := m.objects.Current(res.Table(), res.Key(ns.Key, defaultAccount))
		if err != nil {
			return nil, err
		}
		if v == nil {
			names = append(names, ns.Key)
		}
	}
	return names, nil
}

// create makes the service account default of a namespace. It is no error if
// it is there, or if the namespace is gone or on its way out.
func (m accountMaker) create(ctx context.Context, namespace string) error {
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = namespace, defaultAccount
	err := m.api.Create(ctx, accountsGVR, namespace, account)
	if err == nil || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return fmt.Errorf("create the service account of %s: %w", namespace, err)
}
