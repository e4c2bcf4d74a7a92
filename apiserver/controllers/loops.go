package controllers

import "context"

// Loops are controllers that have all of the configuration.
type Loops struct {
	base
	cfg    *Config
	repair claimRepair
}

func all(run func(l *Loops, ctx context.Context, r *reports) error) func(b base, cfg *Config) loop {
	return func(b base, cfg *Config) loop {
		return func(ctx context.Context) error { return run(&Loops{base: b, cfg: cfg}, ctx, b.reports) }
	}
}
