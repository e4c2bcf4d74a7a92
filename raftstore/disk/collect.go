package disk

import (
	"runtime/debug"
	"sync"
)

// loadPercent is the collector's GOGC while a state is loaded for a start. All that a load
// allocates stays, so that each collection meanwhile marks what there is in vain: from an empty
// heap to a full one that is, with 100, twice the full one. It is not off: an address space that
// is full of what nobody needs would be the price of a mistake here.
const loadPercent = 400

// loading are the loads of this process that are under way, and the percentage that the last one
// of them sets again. Tests have several nodes in a process.
var loading struct {
	sync.Mutex
	loads   int
	percent int
}

// collectLess lets the collector run less until end is called.
func collectLess() (end func()) {
	loading.Lock()
	defer loading.Unlock()
	if loading.loads++; loading.loads == 1 {
		loading.percent = debug.SetGCPercent(loadPercent)
		if loading.percent < 0 || loading.percent > loadPercent {
			debug.SetGCPercent(loading.percent)
		}
	}
	return func() {
		loading.Lock()
		defer loading.Unlock()
		if loading.loads--; loading.loads == 0 {
			debug.SetGCPercent(loading.percent)
		}
	}
}
