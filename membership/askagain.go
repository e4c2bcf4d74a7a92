package membership

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// settleWithin is for how long a change is asked for again: a few elections.
	settleWithin = 10 * time.Second
	settlePoll   = 250 * time.Millisecond
)

// AskAgain is Ask for a change that has the same effect when it is made twice. While the leader
// changes, so that there is none or the outcome is unknown, it asks again, for 10 s or until ctx
// ends. What there is still no answer to then, the error says, can be asked for again.
func AskAgain[T any](ctx context.Context, c *AdminClient, method, path string, body any) (T, error) {
	return askAgain[T](ctx, c, settleWithin, method, path, body)
}

func askAgain[T any](ctx context.Context, c *AdminClient, within time.Duration, method, path string, body any) (T, error) {
	until := time.Now().Add(within)
	for {
		out, err := Ask[T](ctx, c, method, path, body)
		switch {
		case err == nil:
			return out, nil
		case !unsettled(err):
			return out, err
		case !time.Now().Before(until) || sleep(ctx, settlePoll, nil) != nil:
			return out, fmt.Errorf("%w; run it again: that is safe", err)
		}
	}
}

// unsettled says whether an error is that of a change of leader. Without a quorum there is none to come.
func unsettled(err error) bool {
	return !errors.Is(err, ErrNoQuorum) && (errors.Is(err, ErrUnknownOutcome) || errors.Is(err, ErrNoLeader) || errors.Is(err, ErrNotLeader))
}
