package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"time"
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
