package check

import (
	"fmt"
	"slices"
	"testing"

	"github.com/quorate/quorate/test/judges/history"
)

// mutation makes a history wrong in one way; false if it has no place for it.
type mutation struct {
	name   string
	checks []string // one of which must find it
	make   func(m *mutant) bool
}

// mutations are all.
var mutations = slices.Concat(watchMutations, opMutations)

// TestMutations: whatever is made wrong is found.
func TestMutations(t *testing.T) {
	want := 12
	if testing.Short() {
		want = 4
	}
	made := map[uint64]*history.History{}
	for _, x := range mutations {
		t.Run(x.name, func(t *testing.T) {
			done := 0
			for seed := uint64(0); done < want; seed++ {
				if seed == 600 {
					t.Fatalf("only %d histories had a place for it", done)
				}
				if made[seed] == nil {
					o := variants(seed)[seed%3]
					o.ops = min(o.ops, 120)
					made[seed] = generate(o)
				}
				m := newMutant(copyOf(made[seed]), seed)
				if !x.make(m) {
					continue
				}
				done++
				v := All(m.h)
				if !slices.ContainsFunc(v.Checks(), func(c string) bool { return slices.Contains(x.checks, c) }) {
					t.Errorf("seed %d: not found: %s", seed, fmt.Sprint(v.Checks()))
				}
			}
		})
	}
}
