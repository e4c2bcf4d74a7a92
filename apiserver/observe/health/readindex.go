package health

import (
	"context"
	"fmt"
	"time"
)

// Barrier returns a check that passes if barrier, a real read barrier round with
// the voters, succeeds within bound. Probes that arrive while one is running each
// start their own: the barrier itself shares rounds.
func Barrier(name string, bound time.Duration, barrier func(ctx context.Context) error) Check {
	return Check{Name: name, Check: func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		if err := barrier(ctx); err != nil {
			return fmt.Errorf("read barrier: %w", err)
		}
		return nil
	}}
}
