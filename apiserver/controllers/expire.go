package controllers

import (
	"context"
	"log/slog"
	"time"
)

// Expiring is what the expiry of Events needs. *apiserver.Server satisfies it.
type Expiring interface {
	// ExpireEvery is how often to look.
	ExpireEvery() time.Duration
	// ExpireObjects deletes what has outlived its time, entry by entry.
	ExpireObjects(ctx context.Context) error
}

// Expire deletes objects of kinds that expire, until ctx ends. Nobody waits for
// that, so it looks from time to time.
func Expire(ctx context.Context, api Expiring, log *slog.Logger) error {
	tick := time.NewTicker(api.ExpireEvery())
	defer tick.Stop()
	for {
		if err := api.ExpireObjects(ctx); err != nil && ctx.Err() == nil {
			log.Warn("cannot delete expired objects, retrying", "err", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
