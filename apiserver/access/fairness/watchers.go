package fairness

import "sync"

// Watched is what a watch or a write is about. Empty fields stand for all.
type Watched struct{ Table, Namespace, Name string }

// Watchers counts the open watches by what they are interested in. The zero value
// is ready. Safe for concurrent use.
type Watchers struct {
	mu     sync.RWMutex
	counts map[Watched]int
}

// Add notes a watch that begins.
func (w *Watchers) Add(of Watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.counts == nil {
		w.counts = map[Watched]int{}
	}
	w.counts[of]++
}

// Remove notes its end.
func (w *Watchers) Remove(of Watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.counts[of]--; w.counts[of] <= 0 {
		delete(w.counts, of)
	}
}

// Interested is how many watches are sent a change of an object.
func (w *Watchers) Interested(of Watched) int {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if len(w.counts) == 0 {
		return 0
	}
	n := w.counts[Watched{Table: of.Table}]
	if of.Namespace != "" {
		n += w.counts[Watched{Table: of.Table, Namespace: of.Namespace}]
	}
	if of.Name != "" {
		n += w.counts[Watched{Table: of.Table, Name: of.Name}]
		if of.Namespace != "" {
			n += w.counts[of]
		}
	}
	return n
}
