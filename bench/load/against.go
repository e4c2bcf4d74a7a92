package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

// writeAgainst prints the rows beside those of another report of the same machine, a
// peer's. Nothing is adjusted: both were measured here.
func (r *report) writeAgainst(w io.Writer, file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the report to compare with: %w", err)
	}
	var peer report
	if err := json.Unmarshal(raw, &peer); err != nil {
		return fmt.Errorf("read the report to compare with, %s: %w", file, err)
	}
	fmt.Fprintf(w, "\nThe peer (%s), just before, with the same load; CPU is not adjusted.", peer.Date.Format("15:04:05"))
	if len(peer.Bare) > 0 {
		fmt.Fprintf(w, " Its factor was %.2f.", peer.slower())
	}
	fmt.Fprint(w, "\n\n")
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "scenario\tpeer ops/s\tops/s\tpeer p99 ms\tp99 ms\tpeer CPU µs/op\tCPU µs/op\tshare\t")
	for _, row := range r.Rows {
		for _, other := range peer.Rows {
			if other.Scenario == row.Scenario {
				fmt.Fprintf(t, "%s\t%s\t%s\t%.1f\t%.1f\t%s\t%s\t%.0f %%\t\n", row.Title, number(other.PerSecond), number(row.PerSecond),
					float64(other.P99)/1000, float64(row.P99)/1000, number(other.CPU), number(row.CPU), 100*row.CPU/other.CPU)
			}
		}
	}
	fmt.Fprintf(t, "resident memory, MiB\t\t\t\t\t%d\t%d\t%.0f %%\t\n", peer.ResidentBytes>>20, r.ResidentBytes>>20, 100*float64(r.ResidentBytes)/float64(max(peer.ResidentBytes, 1)))
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
