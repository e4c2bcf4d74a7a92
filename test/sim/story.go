package sim

import (
	"context"
	"time"
)

// Stories are faults in several steps, which need a certain order of events: their
// profiles favour them, and "mix" leaves them out.

// await waits until a condition holds; it reports whether it came to that.
func await(ctx context.Context, holds func() bool) bool {
	for !holds() {
		if sleep(ctx, 20*time.Millisecond) != nil {
			return false
		}
	}
	return true
}

// until is a context for a story: it ends after a while, and with the faults.
func (n *nemesis) until(d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	n.tasks.Go(func() {
		select {
		case <-n.stop:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, cancel
}
