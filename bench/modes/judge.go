package modes

import (
	"fmt"
	"slices"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/probe"
	"github.com/quorate/quorate/bench/report"
)

const (
	// goalP99 is what 99 of 100 Most Recent reads on a follower should stay under,
	// on loopback at half load.
	goalP99 = 5.0
	// lagP99 is how late the generator may be before its figures say more about it
	// than about the servers, in milliseconds.
	lagP99 = 1.0
	// kept is the share of the rate that must have been answered.
	kept = 0.95
)

// judge draws the verdicts from the figures.
func (r *Report) judge() {
	r.Verdicts = []report.Verdict{
		r.fresh(probe.MostRecent, "Most Recent is never stale"),
		r.fresh(probe.NotOlderThan, "Not older than N has N"),
		r.fresh(probe.Exact, "Exact N is the state at N"),
		r.within(),
		r.monotonic(),
		r.answered(),
	}
	r.Verdicts = slices.DeleteFunc(r.Verdicts, func(v report.Verdict) bool { return v.Name == "" })
	for _, c := range r.Costs {
		if c.Role == client.Follower && c.Reads > 0 {
			r.Verdicts = append(r.Verdicts, c.oneTrip(r.mayAsk(c.Node)))
		}
	}
	for _, c := range r.Cells {
		if c.Mode == probe.MostRecent && c.Role == client.Follower {
			r.Verdicts = append(r.Verdicts, report.Verdict{
				Name: fmt.Sprintf("p99 of Most Recent %s on a follower under %g ms", c.Verb, goalP99), OK: c.Latency.P99Ms < goalP99 && c.Latency.Count > 0,
				Measured: fmt.Sprintf("%s: p50 %s, p99 %s, max %s ms", c.Node, measure.Ms(c.Latency.P50Ms), measure.Ms(c.Latency.P99Ms), measure.Ms(c.Latency.MaxMs)),
			})
		}
	}
	r.Verdicts = append(r.Verdicts, r.kept())
}

func (r *Report) of(m probe.Mode) []CellReport {
	return slices.DeleteFunc(slices.Clone(r.Cells), func(c CellReport) bool { return c.Mode != m })
}

// sum is what came of all cells of a mode.
func (r *Report) sum(m probe.Mode) (reads, broken, stale int64, worst float64) {
	for _, c := range r.of(m) {
		reads, broken, stale, worst = reads+c.Latency.Count, broken+c.Violations, stale+c.Staleness.Stale, max(worst, c.Staleness.Age.MaxMs)
	}
	return reads, broken, stale, worst
}

// fresh: no answer lacked anything that was acknowledged.
func (r *Report) fresh(m probe.Mode, name string) report.Verdict {
	if len(r.of(m)) == 0 {
		return report.Verdict{}
	}
	reads, broken, _, _ := r.sum(m)
	return report.Verdict{Name: name, Promise: true, OK: broken == 0 && reads > 0, Measured: fmt.Sprintf("%d of %d reads broke it", broken, reads)}
}

// within: no Any answer was staler than its header said.
func (r *Report) within() report.Verdict {
	reads, broken, stale, worst := r.sum(probe.Any)
	said, bounded := 0.0, false
	cells := r.of(probe.Any)
	for _, c := range cells {
		if c.Staleness.Said != nil {
			said = max(said, c.Staleness.Said.MaxMs)
		}
		// What has roles promises a bound, also where it was never said.
		bounded = bounded || c.Role != client.Server || c.Staleness.Said != nil
	}
	switch {
	case len(cells) == 0:
		return report.Verdict{}
	case !bounded:
		return report.Verdict{Name: "Any promises nothing: the servers say no bound", OK: true, Measured: fmt.Sprintf("%d of %d reads were stale, by %s ms at most", stale, reads, measure.Ms(worst))}
	}
	return report.Verdict{
		Name: "Any is no staler than its header says", Promise: true, OK: broken == 0 && reads > 0,
		Measured: fmt.Sprintf("%d of %d reads broke it; %d were stale, by %s ms at most; the header said up to %.0f ms", broken, reads, stale, measure.Ms(worst), said),
	}
}

func (r *Report) answered() report.Verdict {
	errors, first := r.Writes.Errors, ""
	for _, m := range r.Monotonic {
		errors += m.Errors
	}
	for _, c := range r.Cells {
		errors += c.Errors
		if first == "" && c.Error != "" {
			first = "; the first: " + c.Error
		}
	}
	return report.Verdict{Name: "Every request was answered", Promise: true, OK: errors == 0, Measured: report.Count(errors, "error") + first}
}

// mayAsk is how many reads of a node may have asked the leader: the Most Recent
// ones, and those of a revision that the node waited long for.
func (r *Report) mayAsk(node string) int64 {
	var n int64
	for _, c := range r.Cells {
		if c.Node == node && c.Mode != probe.Any {
			n += c.Latency.Count
		}
	}
	for _, m := range r.Monotonic {
		if m.Mode != probe.Any {
			n += m.reads[node]
		}
	}
	return n
}

// monotonic: anyone who reads at one node and then at another never goes back, but for Any.
func (r *Report) monotonic() report.Verdict {
	var pairs, older, broken int64
	text := ""
	for _, m := range r.Monotonic {
		broken += m.Violations
		if m.Mode == probe.Any {
			text = fmt.Sprintf("; Any, which may, went back in %d of %d", m.Older, m.Pairs)
			continue
		}
		pairs += m.Pairs
		older += m.Older
	}
	if !slices.ContainsFunc(r.Monotonic, func(m Monotonic) bool { return m.Mode != probe.Any }) {
		return report.Verdict{}
	}
	return report.Verdict{
		Name: "Most Recent and Not older never go back from node to node", Promise: true, OK: older == 0 && broken == 0 && pairs > 0,
		Measured: fmt.Sprintf("%d of %d pairs of reads did, %d answers broke another promise%s", older, pairs, broken, text),
	}
}

// oneTrip: reads share their questions, and what they wait for is one round trip,
// or the rest of the running one and one of their own, and the log.
func (c Cost) oneTrip(mayAsk int64) report.Verdict {
	return report.Verdict{
		Name: "Most Recent on a follower costs one question to the leader, shared, and the log",
		OK:   c.IndexCalls <= mayAsk,
		Measured: fmt.Sprintf("%s: %d reads, %d questions; Most Recent − Any = %s ms (p50 %s); waited %s ms for the index, %s ms for the log; a question takes %s ms, a bare peer round trip %s ms",
			c.Node, c.Reads, c.IndexCalls, measure.Ms(c.OverAnyMs), measure.Ms(c.OverAnyP50), measure.Ms(c.WaitIndexMs), measure.Ms(c.WaitLogMs), measure.Ms(c.IndexMs), measure.Ms(c.RoundTripMs)),
	}
}

// kept: the load was what it should be. Otherwise the latencies are those of an
// overloaded machine.
func (r *Report) kept() report.Verdict {
	var got float64
	for _, c := range r.Cells {
		got += c.PerSecond
	}
	want := r.Options.RatePerCell * float64(len(r.Cells))
	g := r.Generator
	return report.Verdict{
		Name: "The load was what it should be", OK: g.Unsent == 0 && got >= kept*want && r.Writes.PerSecond >= kept*r.Options.WritesPerSecond && g.Lag.P99Ms <= lagP99,
		Measured: fmt.Sprintf("%.0f of %.0f reads/s, %.1f of %g writes/s; reads were sent %s ms late (p99), %d not at all", got, want, r.Writes.PerSecond, r.Options.WritesPerSecond, measure.Ms(g.Lag.P99Ms), g.Unsent),
	}
}
