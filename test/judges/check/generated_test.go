package check

import (
	"fmt"
	"testing"
)

// variants are the shapes of generated histories.
func variants(seed uint64) []options {
	return []options{
		{seed: seed, ops: 60, clients: 3, keys: 2, nodes: 3, watchers: 2},
		{seed: seed, ops: 200, clients: 8, keys: 8, nodes: 3, watchers: 4},
		{seed: seed, ops: 200, clients: 4, keys: 4, nodes: 5, watchers: 4, telling: true},
	}
}

// TestGenerated: what is right is found right.
func TestGenerated(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 20
	}
	events, reads, unknown := 0, 0, 0
	for seed := range seeds {
		for n, o := range variants(seed) {
			h := generate(o)
			v := All(h)
			if !v.OK() {
				t.Fatalf("seed %d variant %d: %s", seed, n, v)
			}
			events, unknown = events+v.Counts.Events, unknown+v.Counts.Happened
			for _, n := range v.Counts.Reads {
				reads += n
			}
		}
	}
	// A generator that makes nothing would pass as well.
	if events == 0 || reads == 0 || unknown == 0 {
		t.Error(fmt.Sprint("poor histories: ", events, reads, unknown))
	}
}
