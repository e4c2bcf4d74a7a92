package controllers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/proto"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Accounts is what the service account controller needs. *apiserver.Server satisfies
// it.
type Accounts interface {
	// WatchAccounts tells when namespaces or service accounts may have changed; the
	// function ends it.
	WatchAccounts() (<-chan struct{}, func(), error)
	// WithoutAccount lists the namespaces that have no service account default and are
	// not being deleted.
	WithoutAccount() ([]string, error)
	// CreateAccount makes that account. A namespace that has it, or is gone or on its
	// way out, is no error.
	CreateAccount(ctx context.Context, namespace string) error
}

// Pauses of the loop: between two looks at all namespaces, however fast they change,
// and until an account that could not be made is tried again.
const (
	accountsGlance = 50 * time.Millisecond
	accountsAgain  = time.Second
)

// EnsureAccounts gives every namespace the service account default, until ctx ends.
// Failures are logged and tried again.
func EnsureAccounts(ctx context.Context, api Accounts, log *slog.Logger) error {
	changed, stop, err := api.WatchAccounts()
	if err != nil {
		return err
	}
	defer stop()
	for {
		names, err := api.WithoutAccount()
		if err != nil {
			return fmt.Errorf("list namespaces without service accounts: %w", err)
		}
		failed := 0
		for _, name := range names {
			if err := api.CreateAccount(ctx, name); err != nil {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				failed++
				log.Warn("cannot create the default service account, retrying", "namespace", name, "err", err)
			}
		}
		if err := awaitAccounts(ctx, changed, failed > 0); err != nil {
			return err
		}
	}
}

// awaitAccounts returns when there may be something to do.
func awaitAccounts(ctx context.Context, changed <-chan struct{}, failed bool) error {
	pause := time.NewTimer(accountsGlance)
	if failed {
		pause.Reset(accountsAgain)
		changed = nil
	}
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-pause.C:
	}
	if failed {
		return nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-changed:
		return nil
	}
}

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
