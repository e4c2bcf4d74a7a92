package clients

import (
	"os"
	"slices"
	"testing"
	"time"
)

// report logs the figures of a run.
func (r *rolling) report(t *testing.T) {
	t.Helper()
	var changes, failed int
	for _, w := range r.writers.all {
		changes += len(w.notes)
		failed += w.errs
	}
	now := r.verbs()
	t.Logf("%d restarts in %.1f s; %d changes by %d writers, %d attempts failed", r.restarts, r.took.Seconds(), changes, len(r.writers.all), failed)
	t.Logf("%d clients: %d watches went on elsewhere or again, %d lists, %d watches with initial events, %d times 410",
		len(r.clients), now[watch]-r.initial[watch], now[list]-r.initial[list], now[watchList]-r.initial[watchList], r.gone())
	for _, x := range r.clients {
		var attempts, errors int
		for _, q := range x.wire.all() {
			attempts++
			if q.code != 200 {
				errors++
			}
		}
		if os.Getenv("STORY") != "" {
			t.Logf("%s:\n%s", x.name, x.story())
		}
		delays, events := r.delays(x)
		t.Logf("%-30s %5d events, %2d reads tried, %d of them in vain; from a write's acknowledgement to its event: median %v, 99%% %v, longest %v",
			x.name, events, attempts, errors, at(delays, 0.5), at(delays, 0.99), at(delays, 1))
	}
}

// delays are the times between the acknowledgement of a write and the call of
// the client's handler, sorted; zero if the event came first.
func (r *rolling) delays(x *informed) (delays []time.Duration, events int) {
	for _, k := range written {
		acked := map[change]time.Time{}
		for _, notes := range r.writers.of(k) {
			for _, n := range notes {
				acked[n.change] = n.acked
			}
		}
		for _, s := range x.kinds[k.resource].all() {
			events++
			if began, ok := acked[s.change]; ok {
				delays = append(delays, max(0, s.at.Sub(began)))
			}
		}
	}
	slices.Sort(delays)
	return delays, events
}

// at is a quantile of sorted delays, in milliseconds.
func at(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Round(time.Millisecond)
}
