package raftstore

import (
	"errors"
	"testing"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// TestAttempts: what the answers to the copies of one proposal mean together.
func TestAttempts(t *testing.T) {
	const (
		applied   = proto.Outcome_OUTCOME_APPLIED
		duplicate = proto.Outcome_OUTCOME_DUPLICATE
		expired   = proto.Outcome_OUTCOME_REQUEST_ID_EXPIRED
		mismatch  = proto.Outcome_OUTCOME_TERM_MISMATCH
		exists    = proto.Outcome_OUTCOME_EXISTS
	)
	type answer struct {
		term    uint64
		outcome proto.Outcome
		err     error
	}
	for name, c := range map[string]struct {
		answers []answer
		final   bool
		outcome proto.Outcome
		errs    []error // that the last answer's error is
		not     error   // and is not
		may     map[uint64]bool
	}{
		"applied at once":           {answers: []answer{{3, applied, nil}}, final: true, outcome: applied},
		"a refused condition":       {answers: []answer{{3, exists, nil}}, final: true, outcome: exists},
		"the caller has repeated":   {answers: []answer{{3, duplicate, nil}}, final: true, outcome: duplicate},
		"nothing was sent":          {answers: []answer{{3, 0, errNotSent}}, may: map[uint64]bool{3: true, 4: true}},
		"we have repeated":          {answers: []answer{{3, 0, ErrUnknownOutcome}, {4, duplicate, nil}}, final: true, outcome: applied},
		"refused for good":          {answers: []answer{{3, 0, ErrTooLarge}}, final: true, errs: []error{ErrTooLarge}, not: ErrUnknownOutcome},
		"refused, a copy was sent":  {answers: []answer{{3, 0, ErrUnknownOutcome}, {4, 0, ErrOverloaded}}, final: true, errs: []error{ErrUnknownOutcome, ErrOverloaded}},
		"a copy is on its way":      {answers: []answer{{3, 0, ErrUnknownOutcome}}, may: map[uint64]bool{2: false, 3: false, 4: true}},
		"not sent after a copy":     {answers: []answer{{3, 0, ErrUnknownOutcome}, {4, 0, errNotSent}}, may: map[uint64]bool{3: false, 4: true}},
		"a copy came too late":      {answers: []answer{{3, 0, ErrUnknownOutcome}, {4, mismatch, nil}}, may: map[uint64]bool{3: true, 4: true}},
		"refused, it came too late": {answers: []answer{{3, 0, ErrUnknownOutcome}, {4, mismatch, nil}, {5, 0, ErrTooLarge}}, final: true, errs: []error{ErrTooLarge}, not: ErrUnknownOutcome},
		"too old, nothing else":     {answers: []answer{{3, expired, nil}}, final: true, outcome: expired, errs: []error{errRequestIDExpired}, not: ErrUnknownOutcome},
		"too old, a copy was sent":  {answers: []answer{{3, 0, ErrUnknownOutcome}, {4, expired, nil}}, final: true, outcome: expired, errs: []error{errRequestIDExpired, ErrUnknownOutcome}},
	} {
		var a attempts
		var r mvcc.Result
		var final bool
		var err error
		for i, step := range c.answers {
			if final {
				t.Fatalf("%s: answer %d comes after the end", name, i)
			}
			r = mvcc.Result{Outcome: step.outcome}
			final, err = a.judge(&r, step.term, step.err)
		}
		if final != c.final || final && r.Outcome != c.outcome || (err == nil) != (c.errs == nil) || c.not != nil && errors.Is(err, c.not) {
			t.Errorf("%s: final %v, %v, %v", name, final, r.Outcome, err)
		}
		for _, want := range c.errs {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
		for term, want := range c.may {
			if got := a.mayRepeat(term); got != want {
				t.Errorf("%s: in term %d it may be sent: %v, want %v", name, term, got, want)
			}
		}
	}
}
