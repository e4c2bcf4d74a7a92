package storage

import (
	"context"
	"fmt"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// maxRulesChanged is how often a write is refused because of changed rules, in one call,
// before the caller is sent away: each round costs a log entry.
const maxRulesChanged = 16

// RulesChangingError is returned when the rules that decide on a write changed again and
// again while it was decided. Nothing was written; it may be tried again later.
type RulesChangingError struct {
	// Times is how often they changed.
	Times int
}

func (e *RulesChangingError) Error() string {
	return fmt.Sprintf("the rules that decide on this write changed %d times while it was decided", e.Times)
}

// Insert proposes what decide returns, with the table, the key and the conditions that it
// has, and decides again as long as the rules that it was decided by have changed. Every
// other outcome is the caller's: OUTCOME_APPLIED comes with the version. decide is called
// at least once and must not keep anything from the run before, its request id included.
//
// Errors: decide's, RulesChanged's, Propose's, the context's, and RulesChangingError.
func (r Updater) Insert(ctx context.Context, decide func() (*proto.Write, error)) (*mvcc.Version, proto.Outcome, error) {
	changed := 0
	for {
		w, err := decide()
		if err != nil {
			return nil, 0, err
		}
		v, outcome, err := Propose(ctx, r.Store, w)
		if err != nil || outcome != proto.Outcome_OUTCOME_RULES_CHANGED {
			return v, outcome, err
		}
		if err := r.again(ctx, outcome, &changed); err != nil {
			return nil, 0, err
		}
	}
}
