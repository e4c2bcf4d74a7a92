package controllers

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/proto"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// accountsResource are service accounts, and defaultAccount is the one that every
// namespace has.
var accountsGVR = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}

const defaultAccount = "default"

// WatchAccounts returns a channel that is sent to when namespaces or service accounts
// may have changed, and a function that ends it.
func (l *Loops) WatchAccounts() (<-chan struct{}, func(), error) {
	namespaces, stop, err := l.WatchNamespaces()
	if err != nil {
		return nil, nil, err
	}
	accounts, stopAccounts, err := objects.NewClient(l.objects).WatchTable(accountsGVR)
	if err != nil {
		stop()
		return nil, nil, err
	}
	either, end := make(chan struct{}, 1), make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			case <-namespaces:
			case <-accounts:
			}
			select {
			case either <- struct{}{}:
			default: // who has not looked yet will see this, too
			}
		}
	}()
	return either, func() {
		close(end)
		<-done
		stop()
		stopAccounts()
	}, nil
}

// WithoutAccount returns the namespaces without a service account default that are not
// being deleted, as this node sees it.
func (l *Loops) WithoutAccount() ([]string, error) {
	res := l.objects.Kinds().Lookup(accountsGVR)
	if res == nil {
		return nil, errors.New("the registry has no service accounts")
	}
	versions, err := l.objects.Range(objects.NamespacesTable, "")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, ns := range versions {
		if ns.Flags&proto.FlagTerminating != 0 {
			continue
		}
		v, err := l.objects.Current(res.Table(), res.Key(ns.Key, defaultAccount))
		if err != nil {
			return nil, err
		}
		if v == nil {
			names = append(names, ns.Key)
		}
	}
	return names, nil
}

// CreateAccount makes the service account default of a namespace. It is no error if
// it is there, or if the namespace is gone or on its way out.
func (l *Loops) CreateAccount(ctx context.Context, namespace string) error {
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = namespace, defaultAccount
	err := objects.NewClient(l.objects).Create(ctx, accountsGVR, namespace, account)
	if err == nil || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return fmt.Errorf("create the service account of %s: %w", namespace, err)
}
