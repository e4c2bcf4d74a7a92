package membership

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestAskAgain: a change of leader costs a client nothing but time, which is bounded; every other
// answer is one.
func TestAskAgain(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		answers []error // the last one stays
		within  time.Duration
		asked   int // at least
		want    error
		again   bool // the error says that it can be asked for again
	}{
		{"no change of leader", []error{nil}, time.Minute, 1, nil, false},
		{"a change of leader", []error{ErrUnknownOutcome, ErrNoLeader, fmt.Errorf("put: %w", ErrUnknownOutcome), ErrNotLeader, nil}, time.Minute, 5, nil, false},
		{"refused after it", []error{ErrUnknownOutcome, ErrForbidden}, time.Minute, 2, ErrForbidden, false},
		{"without end", []error{ErrUnknownOutcome}, 2 * settlePoll, 2, ErrUnknownOutcome, true},
		{"no quorum", []error{ErrNoQuorum}, time.Minute, 1, ErrNoQuorum, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			asked := 0
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost { // the search for a quorum
					answer(w, nil, ErrNotFound)
					return
				}
				err := row.answers[min(asked, len(row.answers)-1)]
				asked++
				answer(w, map[string]string{"is": "done"}, err)
			}))
			defer s.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c := &AdminClient{servers: []string{s.URL}, http: s.Client(), streams: s.Client()}
			out, err := askAgain[map[string]string](ctx, c, row.within, http.MethodPost, "x", nil)
			if !errors.Is(err, row.want) || err == nil && out["is"] != "done" || asked < row.asked {
				t.Errorf("%v, %v after %d times, want %v after %d", out, err, asked, row.want, row.asked)
			}
			if got := err != nil && strings.Contains(err.Error(), "run it again: that is safe"); got != row.again {
				t.Errorf("it says that it can be run again: %v: %v", got, err)
			}
		})
	}
}
