// Package storage changes one object of the replicated store: it looks at the
// newest local version, lets the caller decide, and writes on the condition that
// nothing has changed, until that holds.
//
// The types to know:
//
//   - Updater.GuaranteedUpdate is the loop behind every verb that changes an object.
//   - Permanent marks a refusal that no newer state can take back.
//   - LimitExceededError, NoSpaceError and RulesChangingError are refusals of the log.
package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorate/quorate/proto"
	storeerrors "github.com/quorate/quorate/raftstore/errors"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Interface is what is needed of the replicated store. All methods are safe for
// concurrent use.
type Interface interface {
	// Propose replicates one write and returns when this node has applied it. A
	// refused condition is a Result (Outcome), not an error. The Version of the
	// result is set if the write took effect. Errors: raftstore.ErrNoLeader (certainly
	// not written), raftstore.ErrUnknownOutcome, raftstore.ErrOverloaded,
	// raftstore.ErrTooLarge, raftstore.ErrClosed, and the context's.
	Propose(ctx context.Context, w *proto.Write) (mvcc.Result, error)
	// State is the local state: Applied, Floor, Table(name).Get / Range. It may be
	// replaced as a whole by a snapshot; take it once per request.
	State() *mvcc.State
}

// Updater changes keys of a store. It is safe for concurrent use if its parts are.
type Updater struct {
	Store Interface
	// Confirm returns when the local state includes every write that was
	// acknowledged before the call.
	Confirm func(ctx context.Context) error
	// Caller is whose decision it is. Nil: nobody is told, and no rules count.
	Caller Caller
}

// Caller is told of what becomes of its decision, and knows by which rules it was made.
type Caller interface {
	// Retried is called for each write that lost a race.
	Retried()
	// RulesStale reports whether rules that the last decision was made by have changed since
	// in this node's state, or may have. It is asked once the state was confirmed to be
	// current, about decisions that are not written: refusals are not yesterday's either.
	RulesStale() bool
	// RulesChanged is called before a write is decided again because of changed rules: what
	// was decided before the loop, such as the authorization, has to be decided again too.
	// Its error ends the loop. This node's state includes the change.
	RulesChanged(ctx context.Context) error
}

// Result is what GuaranteedUpdate did.
type Result struct {
	// Before is the version that was decided on; nil if there was none.
	Before *mvcc.Version
	// After is the version that was written; nil if nothing was.
	After *mvcc.Version
	// Refused is OUTCOME_GUARD_ABSENT or OUTCOME_GUARD_TERMINATING if the write's
	// guard refused it; else zero.
	Refused proto.Outcome
}

// Permanent marks an error that no newer state can take back: it is returned
// without asking a quorum.
type Permanent struct{ Err error }

func (e Permanent) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e Permanent) Unwrap() error { return e.Err }

// GuaranteedUpdate changes one key. decide looks at the newest local version, nil if there
// is none, and returns the write, or nil if nothing is to be written. It runs
// again whenever there is a newer version, so it must not keep anything from the
// run before. GuaranteedUpdate fills in the write's table, key and condition; decide fills
// in which rules it has read, and as of when: DecidedAt, Rules and RuleRanges.
//
// This node may lag. A write is safe all the same, because its entry carries the
// condition that nothing has changed. An answer without a write is not: a
// refusal, or "nothing to do", that an outdated version led to would be wrong.
// So these are only given after the state was confirmed to be current.
//
// Errors: decide's (what Permanent wraps), Confirm's, RulesChanged's, Propose's, the
// context's, RulesChangingError, LimitExceededError, and NoSpaceError.
func (r Updater) GuaranteedUpdate(ctx context.Context, table, key string, decide func(cur *mvcc.Version) (*proto.Write, error)) (Result, error) {
	current := false // the state was confirmed since the call began
	changed := 0     // how often the rules had changed
	for {
		cur, err := Current(r.Store, table, key)
		if err != nil {
			return Result{}, err
		}
		w, err := decide(cur)
		if !current && (err != nil || w == nil) {
			var definite Permanent
			if errors.As(err, &definite) {
				return Result{}, definite.Err
			}
			if err := r.Confirm(ctx); err != nil {
				return Result{}, err
			}
			current = true
			// Before the object: what was decided ahead of the loop is decided by the rules
			// alone, and has to be decided again also if the object has changed too.
			if r.Caller != nil && r.Caller.RulesStale() {
				if err := r.Caller.RulesChanged(ctx); err != nil {
					return Result{}, err
				}
				continue
			}
			if now, err := Current(r.Store, table, key); err != nil {
				return Result{}, err
			} else if now != cur {
				continue
			}
		}
		switch {
		case err != nil:
			return Result{}, err
		case w == nil:
			return Result{Before: cur}, nil
		}
		w.Table, w.Key = table, key
		if cur == nil {
			w.Condition = proto.Condition_CONDITION_ABSENT
		} else {
			w.Condition, w.ExpectRevision = proto.Condition_CONDITION_REVISION, uint64(cur.Revision)
		}
		v, outcome, err := Propose(ctx, r.Store, w)
		switch {
		case err != nil:
			return Result{}, err
		case outcome == proto.Outcome_OUTCOME_APPLIED:
			return Result{Before: cur, After: v}, nil
		case outcome == proto.Outcome_OUTCOME_GUARD_ABSENT, outcome == proto.Outcome_OUTCOME_GUARD_TERMINATING:
			return Result{Before: cur, Refused: outcome}, nil
		}
		// Lost the race. This node has applied the refused entry, so what it
		// sees now is newer than the call.
		current = true
		if err := r.again(ctx, outcome, &changed); err != nil {
			return Result{}, err
		}
	}
}

// again prepares another round after a write that lost a race.
func (r Updater) again(ctx context.Context, lost proto.Outcome, changed *int) error {
	if lost == proto.Outcome_OUTCOME_RULES_CHANGED {
		if *changed++; *changed == MaxRulesChanged {
			return &storeerrors.RulesChangingError{Times: *changed}
		}
	}
	if r.Caller != nil {
		r.Caller.Retried()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if lost == proto.Outcome_OUTCOME_RULES_CHANGED && r.Caller != nil {
		return r.Caller.RulesChanged(ctx)
	}
	return nil
}

// Current returns the newest local version of a key, or nil.
func Current(s Interface, table, key string) (*mvcc.Version, error) {
	for {
		state := s.State()
		t := state.Table(table)
		if t == nil {
			return nil, nil
		}
		v, err := t.Get(key, state.Applied())
		if errors.Is(err, mvcc.ErrCompacted) {
			// The floor has passed an index that was current a moment ago.
			continue
		}
		return v, err
	}
}

// ErrNotBegun is for a write whose context was over before it was proposed.
var ErrNotBegun = errors.New("not begun")

// Propose replicates a write. A refused condition is an outcome; a write that
// turns out to have taken effect before is as good as applied.
//
// What was decided under a context that is over is not written: a check that the end cut
// short may have found nothing because it did not look. Since the write is complete when it
// comes here, a context that still runs has run for all of the decision. Errors: ErrNotBegun and the context's
// cause, with nothing written, LimitExceededError, NoSpaceError, and those of the store.
func Propose(ctx context.Context, s Interface, w *proto.Write) (*mvcc.Version, proto.Outcome, error) {
	if ctx.Err() != nil {
		return nil, 0, fmt.Errorf("write %s/%s: %w: %w", w.Table, w.Key, ErrNotBegun, context.Cause(ctx))
	}
	r, err := s.Propose(ctx, w)
	if err != nil {
		return nil, 0, fmt.Errorf("write %s/%s: %w", w.Table, w.Key, err)
	}
	switch r.Outcome {
	case proto.Outcome_OUTCOME_LIMIT_EXCEEDED:
		return nil, 0, &storeerrors.LimitExceededError{Table: w.Table, Key: w.Key, Exceeded: r.Exceeded}
	case proto.Outcome_OUTCOME_NO_SPACE:
		e := &storeerrors.NoSpaceError{Table: w.Table, Key: w.Key, Disks: r.Exceeded.GetKey()}
		for _, b := range r.Exceeded.GetBounds() {
			e.Adds, e.Used, e.Limit = b.Requested, b.Used, b.Max
		}
		return nil, 0, e
	}
	if r.Outcome != proto.Outcome_OUTCOME_DUPLICATE {
		return r.Version, r.Outcome, nil
	}
	v := r.Version
	if t := s.State().Table(w.Table); v == nil && t != nil {
		v = t.Version(w.Key, r.Revision)
	}
	if v == nil {
		return nil, 0, fmt.Errorf("write %s/%s: revision %d took effect and is forgotten: %w", w.Table, w.Key, r.Revision, mvcc.ErrCompacted)
	}
	return v, proto.Outcome_OUTCOME_APPLIED, nil
}
