package scale

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/report"
)

// WriteTable writes the report for a terminal.
func (rep *Report) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%s\n%s\n\n%s\n%s\n", rep.Title(), rep.Command, rep.What, rep.loadLine())
	for _, s := range rep.Sizes {
		fmt.Fprintf(w, "\n%d %s\n\n", s.N, rep.Unit)
		var lines [][]string
		for i := range s.Rows {
			lines = append(lines, append([]string{s.Rows[i].Name}, s.Rows[i].cells()...))
		}
		if err := report.WriteColumns(w, append([]string{""}, heads...), lines); err != nil {
			return err
		}
		for _, r := range s.Rows {
			if text := r.besides(); text != "" {
				fmt.Fprintf(w, "%s: %s\n", r.Name, text)
			}
			if r.FirstError != "" {
				fmt.Fprintf(w, "%s: the first error: %s\n", r.Name, r.FirstError)
			}
		}
	}
	if len(rep.Growth) > 0 {
		fmt.Fprintf(w, "\nExponents of growth, from %d to %d %s (1: in proportion)\n\n", rep.Sizes[0].N, rep.Sizes[len(rep.Sizes)-1].N, rep.Unit)
		var lines [][]string
		for _, g := range rep.Growth {
			lines = append(lines, []string{g.Name, fmt.Sprintf("%.2f", g.CPU), fmt.Sprintf("%.2f", g.Time), fmt.Sprintf("%.2f", g.Memory)})
		}
		if err := report.WriteColumns(w, []string{"", "CPU each", "time", "memory"}, lines); err != nil {
			return err
		}
	}
	for i, p := range rep.Published {
		if i == 0 {
			fmt.Fprintln(w, "\nPublished by others, on other machines:")
		}
		fmt.Fprintf(w, "  %s: %s (%s)\n", p.Who, p.Says, p.Link)
	}
	return nil
}

// heads are those of the columns of cells.
var heads = []string{"count", "errors", "seconds", "MB/s", "CPU ms each", "p50 ms", "p99 ms", "other get p50", "p99", "MiB a node"}

func (r *Row) cells() []string {
	cpu := fmt.Sprintf("%.0f", r.cpu())
	if r.cpu() < 100 {
		cpu = fmt.Sprintf("%.3g", r.cpu())
	}
	return []string{
		fmt.Sprint(r.Count), fmt.Sprint(r.Errors + r.OtherErrors), fmt.Sprintf("%.2f", r.Seconds), fmt.Sprintf("%.0f", float64(r.Bytes)/1e6/max(r.Seconds, 1e-9)), cpu,
		ms(r.Latency, r.Latency.P50Ms), ms(r.Latency, r.Latency.P99Ms), ms(r.Other, r.Other.P50Ms), ms(r.Other, r.Other.P99Ms), fmt.Sprintf("%.0f", r.memory()),
	}
}

func ms(l measure.Latency, v float64) string {
	if l.Count == 0 {
		return "–"
	}
	return measure.Ms(v)
}

// WriteCSV writes a line for each row of each size.
func (rep *Report) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	if err := out.Write(strings.Fields("point n row name count errors seconds bytes cpu_seconds p50_ms p99_ms max_ms other_p50_ms other_p99_ms other_errors memory_mib")); err != nil {
		return err
	}
	f := func(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
	for _, s := range rep.Sizes {
		for i := range s.Rows {
			r := &s.Rows[i]
			if err := out.Write([]string{
				rep.Point, strconv.Itoa(s.N), r.ID, r.Name, strconv.FormatInt(r.Count, 10), strconv.FormatInt(r.Errors, 10), f(r.Seconds), strconv.FormatInt(r.Bytes, 10), f(r.CPUSeconds),
				f(r.Latency.P50Ms), f(r.Latency.P99Ms), f(r.Latency.MaxMs), f(r.Other.P50Ms), f(r.Other.P99Ms), strconv.FormatInt(r.OtherErrors, 10), f(r.memory()),
			}); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

// Histograms are those of each row of each size, POINT-N-ROW. Of what happened once there is none.
func (rep *Report) Histograms() (out []measure.Named) {
	for _, s := range rep.Sizes {
		for _, r := range s.Rows {
			if r.Latency.Count > 0 {
				out = append(out, measure.Named{Name: fmt.Sprintf("%s-%d-%s", rep.Point, s.N, r.ID), Histogram: r.latency})
			}
		}
	}
	return out
}
