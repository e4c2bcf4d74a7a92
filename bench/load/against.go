package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

// readReport reads what -o json has written.
func readReport(file string) (*report, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the report to compare with: %w", err)
	}
	r := &report{}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("read the report to compare with, %s: %w", file, err)
	}
	return r, nil
}

// against is a row beside the peer's of the same scenario.
type against struct{ ours, peer row }

// share is what an operation costs, in percent of what it costs the peer.
func (a against) share() float64 { return 100 * a.ours.CPU / a.peer.CPU }

// verdict goes by the share: the goal is a fifth, the limit a half.
func (a against) verdict() string {
	switch share := a.share(); {
	case a.ours.Errors > 0 || a.ours.Ops == 0:
		return "ERRORS"
	case share > 50:
		return "ABOVE LIMIT"
	case share > 20:
		return "within limit"
	}
	return "goal"
}

// beside pairs the rows that two reports have.
func (r *report) beside(peer *report) (pairs []against) {
	for _, row := range r.Rows {
		for _, other := range peer.Rows {
			if other.Scenario == row.Scenario {
				pairs = append(pairs, against{row, other})
			}
		}
	}
	return pairs
}

// writeAgainst prints the rows beside those of another report of the same machine, a
// peer's. Nothing is adjusted: both were measured here.
func (r *report) writeAgainst(w io.Writer, peer *report) error {
	fmt.Fprintf(w, "\nThe peer (%s), just before, with the same load; CPU is not adjusted.", peer.Date.Format("15:04:05"))
	if len(peer.Bare) > 0 {
		fmt.Fprintf(w, " Its factor was %.2f.", peer.slower())
	}
	fmt.Fprint(w, "\n\n")
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "scenario\tpeer ops/s\tops/s\tpeer p99 ms\tp99 ms\tpeer CPU µs/op\tCPU µs/op\tshare\tverdict\t")
	for _, a := range r.beside(peer) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%.1f\t%.1f\t%s\t%s\t%.0f %%\t%s\t\n", a.ours.Title, number(a.peer.PerSecond), number(a.ours.PerSecond),
			float64(a.peer.P99)/1000, float64(a.ours.P99)/1000, number(a.peer.CPU), number(a.ours.CPU), a.share(), a.verdict())
	}
	fmt.Fprintf(t, "resident memory, MiB\t\t\t\t\t%d\t%d\t%.0f %%\t\t\n", peer.ResidentBytes>>20, r.ResidentBytes>>20, 100*float64(r.ResidentBytes)/float64(max(peer.ResidentBytes, 1)))
	fmt.Fprintf(t, "%s later, MiB\t\t\t\t\t%d\t%d\t%.0f %%\t\t\n", atRest, peer.RestBytes>>20, r.RestBytes>>20, 100*float64(r.RestBytes)/float64(max(peer.RestBytes, 1)))
	if err := t.Flush(); err != nil {
		return err
	}
	for _, row := range peer.Rows {
		if row.Errors > 0 {
			fmt.Fprintf(w, "\nthe peer's %s: %d errors, the first: %s\n", row.Scenario, row.Errors, row.Error)
		}
	}
	return nil
}
