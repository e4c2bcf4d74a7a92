package controllers

import (
	"context"
	"log/slog"
	"time"
)

// Services is what the loop over Services' addresses and ports needs.
type Services interface {
	// EnsureServiceCIDR makes the configured range an object.
	EnsureServiceCIDR(ctx context.Context) error
	// RepairClaims takes back addresses and ports that nobody holds.
	RepairClaims(ctx context.Context) error
}

// Pauses of the loop: until the range is known, and between two looks at what is
// held.
const (
	ensureAgain = time.Second
	repairAgain = time.Minute
)

// TendServices makes the range of service addresses an object and looks, now and
// then, for addresses and ports that nobody holds, until ctx ends. Failures are
// logged and tried again.
func TendServices(ctx context.Context, api Services, log *slog.Logger) error {
	known := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		next := repairAgain
		if !known {
			if err := api.EnsureServiceCIDR(ctx); err != nil {
				if ctx.Err() == nil {
					log.Warn("cannot create the ServiceCIDR, retrying", "err", err)
				}
				next = ensureAgain
			} else {
				known = true
			}
		} else if err := api.RepairClaims(ctx); err != nil && ctx.Err() == nil {
			log.Warn("cannot check service addresses and ports, retrying", "err", err)
		}
		timer.Reset(next)
	}
}
