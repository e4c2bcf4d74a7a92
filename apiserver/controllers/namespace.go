package controllers

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Namespaces is what the namespace loop needs. *apiserver.Server satisfies it.
type Namespaces interface {
	// TerminatingNamespaces lists what there is to do.
	TerminatingNamespaces() ([]string, error)
	// WatchNamespaces tells when to look again; the function ends it.
	WatchNamespaces() (<-chan struct{}, func(), error)
	// DeleteContent deletes what is in a terminating namespace and returns how
	// many objects are still held.
	DeleteContent(ctx context.Context, namespace string) (remaining int, err error)
	// FinalizeNamespace lets an empty one go.
	FinalizeNamespace(ctx context.Context, name string) error
}

// Bounds of the time until a namespace that could not be emptied is tried again:
// its objects wait for finalizers or grace periods, which nothing here can see
// coming to an end.
const (
	retryFirst = 100 * time.Millisecond
	retryMost  = 10 * time.Second
)

// EmptyNamespaces deletes the content of terminating namespaces and then the
// namespaces, until ctx ends. Failures are logged and tried again.
func EmptyNamespaces(ctx context.Context, api Namespaces, log *slog.Logger) error {
	changed, stop, err := api.WatchNamespaces()
	if err != nil {
		return err
	}
	defer stop()
	wait := retryFirst
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
			wait = retryFirst
		case <-timer.C:
		}
		pending, err := emptyAll(ctx, api)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			log.Warn("namespaces could not be emptied, trying again", "err", err, "retry", wait)
		}
		if pending {
			timer.Reset(wait)
			wait = min(2*wait, retryMost)
		} else {
			wait = retryFirst
		}
	}
}

// emptyAll does one round; pending says that another one is needed.
func emptyAll(ctx context.Context, api Namespaces) (pending bool, err error) {
	names, err := api.TerminatingNamespaces()
	if err != nil {
		return true, err
	}
	var failed []error
	for _, name := range names {
		remaining, err := api.DeleteContent(ctx, name)
		switch {
		case err != nil:
			failed = append(failed, err)
		case remaining > 0:
			pending = true
		default:
			if err := api.FinalizeNamespace(ctx, name); err != nil {
				failed = append(failed, err)
			}
		}
	}
	return pending || len(failed) > 0, errors.Join(failed...)
}
