package check

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"

	"github.com/quorate/quorate/test/judges/history"
)

// TestJudgesAgree: the sweep and porcupine know nothing of each other, and find
// the same histories wrong. The histories have only operations that must be linearizable,
// and some of them are made wrong by exchanging answers.
func TestJudgesAgree(t *testing.T) {
	seeds := uint64(1200)
	if testing.Short() {
		seeds = 100
	}
	wrong := 0
	for seed := range seeds {
		o := options{seed: seed, ops: 40, clients: 2 + int(seed%4), keys: 2 + int(seed%3), nodes: 3, noAny: true, noWatches: true, telling: true, noTies: true, noLost: seed%2 == 0}
		h := generate(o)
		r := rand.New(rand.NewPCG(seed, 3))
		for range r.IntN(3) {
			confuse(h, r)
		}
		v := All(h)
		direct, model := false, false
		for _, c := range v.Checks() {
			switch c {
			case LinearStore, LinearKey:
				model = true
			default:
				direct = true
			}
		}
		if direct != model {
			t.Fatalf("seed %d: the sweep says wrong: %v, porcupine: %v\n%s", seed, direct, model, v)
		}
		if direct {
			wrong++
		}
	}
	if wrong < int(seeds/10) || wrong > int(seeds*9/10) {
		t.Errorf("%d of %d histories were wrong: that compares little", wrong, seeds)
	}
}

// confuse gives a read or a refusal another answer, or another time.
func confuse(h *history.History, r *rand.Rand) {
	for range 100 {
		a, b := &h.Ops[r.IntN(len(h.Ops))], &h.Ops[r.IntN(len(h.Ops))]
		switch {
		case a == b || isWrite(a.Kind) != isWrite(b.Kind):
		case isWrite(a.Kind):
			if a.Outcome == history.Refused && b.Outcome == history.Refused && a.Code != 504 && b.Code != 504 && a.Code != b.Code && a.Kind != history.Create && b.Kind != history.Create {
				if a.Code == http.StatusConflict && b.Kind == history.Update || b.Code == http.StatusConflict && a.Kind == history.Update {
					continue
				}
				a.Code, b.Code = b.Code, a.Code
				return
			}
		case a.Kind == history.Get && b.Kind == history.Get:
			if a.Key == b.Key {
				a.Items, b.Items = b.Items, a.Items
				a.Outcome, b.Outcome = b.Outcome, a.Outcome
				a.Code, b.Code = b.Code, a.Code
				return
			}
		case a.Kind == history.List && b.Kind == history.List:
			if a.Limit == 0 && b.Limit == 0 && a.Prefix == b.Prefix {
				a.Items, b.Items = b.Items, a.Items
				a.Revision, b.Revision = b.Revision, a.Revision
				return
			}
		}
	}
}

// TestWithoutLog: what is right is found right without the log as well, and the
// loss of every acknowledged write of a key still shows.
func TestWithoutLog(t *testing.T) {
	for seed := range uint64(60) {
		for n, o := range variants(seed) {
			h := generate(o)
			h.Log = nil
			// An unknown deletion that nobody saw leaves no trace to follow.
			if slices.ContainsFunc(h.Ops, func(o history.Op) bool { return isDelete(o.Kind) && o.Revision == 0 && o.Outcome != history.Refused }) {
				continue
			}
			if v := All(h); !v.OK() {
				t.Fatalf("seed %d variant %d: %s", seed, n, v)
			}
		}
	}
}
