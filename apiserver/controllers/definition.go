package controllers

import (
	"context"
	"log/slog"
	"time"
)

// Definitions is what the loop over CustomResourceDefinitions needs.
// *apiserver.Server satisfies it.
type Definitions interface {
	// WatchDefinitions tells when to look again; the function ends it.
	WatchDefinitions() (<-chan struct{}, func(), error)
	// SettleDefinitions does one round; pending says that another one is needed.
	SettleDefinitions(ctx context.Context) (pending bool, err error)
}

// Bounds of the time until a round is tried again whose objects are held by
// finalizers, or that failed.
const (
	definitionFirst = 100 * time.Millisecond
	definitionMost  = 10 * time.Second
)

// SettleDefinitions gives definitions their names and deletes the objects of those
// that are being deleted, until ctx ends. Failures are logged and tried again.
func SettleDefinitions(ctx context.Context, api Definitions, log *slog.Logger) error {
	changed, stop, err := api.WatchDefinitions()
	if err != nil {
		return err
	}
	defer stop()
	wait := definitionFirst
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
			wait = definitionFirst
		case <-timer.C:
		}
		pending, err := api.SettleDefinitions(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			log.Warn("cannot sync custom resource definitions, retrying", "err", err, "retry", wait)
		}
		if pending {
			timer.Reset(wait)
			wait = min(2*wait, definitionMost)
		} else {
			wait = definitionFirst
		}
	}
}
