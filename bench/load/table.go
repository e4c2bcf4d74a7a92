package load

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/quorate/quorate/bench/measure"
)

// WriteTable writes the report for a terminal.
func (r *Report) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%s\n%s\n", r.Title(), r.Command)
	if r.Goals {
		return r.writeGoals(w)
	}
	fmt.Fprintf(w, "%s\n\n", r.loadLine())
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	if len(r.Rows) > 0 {
		late := ""
		if r.Options.Rate > 0 {
			late = "sent late p99\t"
		}
		fmt.Fprintln(t, "row\tops/s\tp50 ms\tp90\tp99\tp99.9\tmax\terrors\t"+late+"CPU µs/op\t"+strings.Join(r.Nodes, "+")+"\tallocs/op\tKiB/op\t")
	}
	line := func(name, perSecond string, l measure.Latency, errors int64, late *measure.Latency, costs ...string) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t", name, perSecond, measure.Ms(l.P50Ms), measure.Ms(l.P90Ms), measure.Ms(l.P99Ms), measure.Ms(l.P999Ms), measure.Ms(l.MaxMs), errors)
		if late != nil {
			fmt.Fprintf(t, "%s\t", measure.Ms(late.P99Ms))
		} else if r.Options.Rate > 0 {
			fmt.Fprint(t, "\t")
		}
		fmt.Fprintf(t, "%s\t\n", strings.Join(costs, "\t"))
	}
	for _, x := range r.Rows {
		name := x.Title
		if x.Cut {
			name += " (cut short)"
		}
		line(name, number(x.PerSecond), x.Latency, x.Errors, x.Late, number(x.CPU), strings.Join(numbers(x.ByNode), "+"), number(x.Allocs), number(x.AllocatedBytes/1024))
		for _, p := range x.Parts {
			line("of them "+p.Verb, "", p.Latency, p.Errors, nil, "", "", "", "")
		}
	}
	for _, m := range r.lines() {
		if m.bytes > 0 {
			fmt.Fprintf(t, "%s\t%d\t\n", m.title, m.bytes>>20)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, s := range r.sweeps() {
		if err := s.writeTable(w); err != nil {
			return err
		}
	}
	if len(r.Nodes) == 0 {
		fmt.Fprintln(w, "\nThe servers' processes are not known: nothing is said about CPU. --pids names them.")
	}
	return r.writeErrors(w)
}

func (s *Sweep) writeTable(w io.Writer) error {
	fmt.Fprintf(w, "%s\n\n", s.Title)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "rate\tops/s\tp50 ms\tp99\tp99.9\tmax\terrors\tsent late p99\tCPU µs/op\t\t")
	for _, p := range s.Points {
		mark := p.Broken
		if p.Rate == s.Knee {
			mark = "← the knee"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t\n", number(p.Rate), number(p.PerSecond), measure.Ms(p.Latency.P50Ms), measure.Ms(p.Latency.P99Ms),
			measure.Ms(p.Latency.P999Ms), measure.Ms(p.Latency.MaxMs), p.Errors, measure.Ms(p.LateP99Ms), number(p.CPU), mark)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", s.conclusion())
	return err
}

// conclusion is where the knee is, in a sentence.
func (s *Sweep) conclusion() string {
	switch {
	case s.Cut:
		return "It was stopped before the knee was found."
	case s.Knee == 0:
		return fmt.Sprintf("The first rate broke a bound already: %s. Begin lower, with --rate.", s.Why)
	case s.Why == "":
		return fmt.Sprintf("No bound was broken up to %.0f/s.", s.Knee)
	}
	return fmt.Sprintf("The knee is at %.0f/s; at %s.", s.Knee, s.Why)
}

// writeGoals writes the rows beside the goals of this project.
func (r *Report) writeGoals(w io.Writer) error {
	fmt.Fprintln(w)
	if bare := r.bare(); len(bare) > 0 {
		fmt.Fprintf(w, "A bare Go HTTPS server needs %s µs of CPU per object here, %s µs on the peer's machine: \"adjusted\" is CPU ÷ %.2f.\n\n",
			strings.Join(numbers(bare), " and "), number(peerBare), r.slower())
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "scenario\tops/s\tp50 ms\tp99 ms\tCPU µs/op\t"+strings.Join(r.Nodes, "+")+"\tadjusted\tgoal\tlimit\tpeer 1+1\tpeer 3+3\tverdict\t")
	for _, x := range r.Rows {
		peer := figures{}
		if x.Peer != nil {
			peer = *x.Peer
		}
		fmt.Fprintf(t, "%s\t%s\t%.1f\t%.1f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", x.Title, number(x.PerSecond), x.Latency.P50Ms, x.Latency.P99Ms,
			number(x.CPU), strings.Join(numbers(x.ByNode), "+"), number(x.CPU/r.slower()), number(peer.Goal), number(peer.Limit), number(peer.One), number(peer.Three), x.verdict(r.slower()))
	}
	for i, m := range r.lines() {
		if m.bytes == 0 {
			continue
		}
		one, three := "", ""
		if i == 0 {
			one, three = fmt.Sprint(peerMemoryOne), fmt.Sprint(peerMemoryThree)
		}
		fmt.Fprintf(t, "%s\t\t\t\t%d\t\t\t\t\t%s\t%s\t\t\n", m.title, m.bytes>>20, one, three)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return r.writeErrors(w)
}

// memoryLine is a figure of memory, and what it is.
type memoryLine struct {
	title string
	bytes int64
}

// lines are all figures, zero where one is not known; resident memory behind the last row is the first.
func (m *Memory) lines() []memoryLine {
	return []memoryLine{
		{"resident memory, MiB", m.ResidentBytes}, {"shared pages once, MiB", m.ProportionalBytes}, {"without files, MiB", m.AnonymousBytes},
		{fmt.Sprintf("resident %s later, MiB", atRest), m.RestBytes}, {"shared pages once, MiB", m.RestProportionalBytes}, {"without files, MiB", m.RestAnonymousBytes},
	}
}

func (r *Report) writeErrors(w io.Writer) error {
	for _, x := range r.Rows {
		if x.Errors > 0 {
			fmt.Fprintf(w, "\n%s: %d errors, the first: %s\n", x.Name, x.Errors, x.Error)
		}
		if x.Unsent > 0 {
			fmt.Fprintf(w, "\n%s: %d operations were due and not sent: too many were under way\n", x.Name, x.Unsent)
		}
	}
	if r.Stopped {
		fmt.Fprintln(w, "\nIt was stopped before its end: this is what was measured until then.")
	}
	return nil
}

// WriteCSV writes a line for each row of each run, or for each point of a sweep.
func (r *Report) WriteCSV(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, "run,row,rate,operations,operations_per_second,errors,not_sent,p50_ms,p90_ms,p99_ms,p999_ms,max_ms,mean_ms,cpu_us_per_operation,sent_late_p99_ms")
	line := func(run int, name string, rate float64, ops int64, perSecond float64, errors, unsent int64, l measure.Latency, cpu, late float64) {
		fmt.Fprintf(out, "%d,%s,%.1f,%d,%.1f,%d,%d,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.2f,%.3f\n", run, name, rate, ops, perSecond, errors, unsent, l.P50Ms, l.P90Ms, l.P99Ms, l.P999Ms, l.MaxMs, l.MeanMs, cpu, late)
	}
	for i, run := range r.Runs {
		for _, x := range run.Rows {
			late := 0.0
			if x.Late != nil {
				late = x.Late.P99Ms
			}
			line(i+1, x.Name, x.Rate, x.Ops, x.PerSecond, x.Errors, x.Unsent, x.Latency, x.CPU, late)
			for _, p := range x.Parts {
				line(i+1, x.Name+":"+p.Verb, x.Rate*p.Share, p.Latency.Count, 0, p.Errors, 0, p.Latency, 0, 0)
			}
		}
		for _, s := range run.Sweeps {
			for _, p := range s.Points {
				line(i+1, s.Row, p.Rate, p.Latency.Count, p.PerSecond, p.Errors, p.Unsent, p.Latency, p.CPU, p.LateP99Ms)
			}
		}
	}
	return out.Flush()
}

// Histograms are those of each row, of all runs together, and of each verb of a mix, mix-VERB.
func (r *Report) Histograms() (out []measure.Named) {
	for _, x := range r.Rows {
		out = append(out, measure.Named{Name: x.Name, Histogram: x.latency})
		for _, p := range x.Parts {
			out = append(out, measure.Named{Name: x.Name + "-" + p.Verb, Histogram: p.latency})
		}
	}
	return out
}

func numbers(f []float64) []string {
	var s []string
	for _, n := range f {
		s = append(s, number(n))
	}
	return s
}

// number prints about three digits.
func number(f float64) string {
	switch {
	case f == 0:
		return "-"
	case f < 100:
		return fmt.Sprintf("%.1f", f)
	default:
		return fmt.Sprintf("%.0f", f)
	}
}

// at prints a moment of a day.
func at(t time.Time) string { return t.Format("15:04:05") }
