package load

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// against is a row beside the peer's of the same name.
type against struct{ ours, peer Row }

// share is what an operation costs, in percent of what it costs the peer.
func (a against) share() float64 { return 100 * a.ours.CPU / a.peer.CPU }

// verdict goes by the share: the goal is a fifth, the limit a half.
func (a against) verdict() string {
	switch share := a.share(); {
	case a.ours.Errors > 0 || a.ours.Ops == 0:
		return wordErrors
	case share > 50:
		return wordAbove
	case share > 20:
		return wordWithin
	}
	return wordGoal
}

// beside pairs the rows that two reports have.
func (r *Report) beside(peer *Report) (pairs []against) {
	for _, row := range r.Rows {
		for _, other := range peer.Rows {
			if other.Name == row.Name {
				pairs = append(pairs, against{row, other})
			}
		}
	}
	return pairs
}

// WriteAgainst prints the rows beside those of another report of the same machine, a
// peer's. Nothing is adjusted: both were measured here.
func (r *Report) WriteAgainst(w io.Writer, peer *Report) error {
	fmt.Fprintf(w, "\nThe peer (%s), just before, with the same load; CPU is not adjusted.", at(peer.Date))
	if len(peer.bare()) > 0 {
		fmt.Fprintf(w, " Its factor was %.2f.", peer.slower())
	}
	fmt.Fprint(w, "\n\n")
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "scenario\tpeer ops/s\tops/s\tpeer p99 ms\tp99 ms\tpeer CPU µs/op\tCPU µs/op\tshare\tverdict\t")
	for _, a := range r.beside(peer) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%.1f\t%.1f\t%s\t%s\t%.0f %%\t%s\t\n", a.ours.Title, number(a.peer.PerSecond), number(a.ours.PerSecond),
			a.peer.Latency.P99Ms, a.ours.Latency.P99Ms, number(a.peer.CPU), number(a.ours.CPU), a.share(), a.verdict())
	}
	others := peer.lines()
	for i, m := range r.lines() {
		if other := others[i].bytes; m.bytes > 0 && other > 0 {
			fmt.Fprintf(t, "%s\t\t\t\t\t%d\t%d\t%.0f %%\t\t\n", m.title, other>>20, m.bytes>>20, 100*float64(m.bytes)/float64(other))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, row := range peer.Rows {
		if row.Errors > 0 {
			fmt.Fprintf(w, "\nthe peer's %s: %d errors, the first: %s\n", row.Name, row.Errors, row.Error)
		}
	}
	return nil
}
