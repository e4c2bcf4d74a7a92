package faults

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/quorate/quorate/bench/measure"
)

// text prints a spread of milliseconds: the median, and behind it the longest if there were several.
func (s Spread) text() string {
	out := "never"
	switch {
	case s.Count > 1:
		out = measure.Ms(s.Median) + " / " + measure.Ms(s.Max)
	case s.Count == 1:
		out = measure.Ms(s.Median)
	}
	if s.Never > 0 && s.Count > 0 {
		out += fmt.Sprintf(", %d× never", s.Never)
	}
	return out
}

// counts prints a spread of numbers.
func (s Spread) counts() string {
	if s.Count > 1 {
		return fmt.Sprintf("%g / %g", s.Median, s.Max)
	}
	return fmt.Sprintf("%g", s.Median)
}

// each says what two figures in one place are.
func (rep *Report) each() string {
	if len(rep.Repeats) > 1 {
		return fmt.Sprintf("; median / longest of %d repeats", len(rep.Repeats))
	}
	return ""
}

// WriteTable writes the report for a terminal.
func (rep *Report) WriteTable(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%s\n%s\n\n%s\n", rep.Title(), rep.Command, rep.loadLine())
	fmt.Fprintf(out, "\nms%s. Gap: the longest time without a success. 95 %%: when that much of the throughput was there again,\nsince the fault began; on the node itself, since it was let come back\n", rep.each())
	for i := range rep.Summary {
		s := &rep.Summary[i]
		fmt.Fprintf(out, "\n%s (%s)\n%s\n\n", s.Fault, rep.victims(i), s.came())
		t := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "\tother nodes: gap\t95 %\terrors\tthe node: gap\t95 %\terrors\tgap before\t")
		for service := range services {
			x := s.Services[service.String()]
			fmt.Fprintf(t, "%s\t", service.title())
			if o := x.Others; o != nil {
				fmt.Fprintf(t, "%s\t%s\t%s\t", o.Gap.text(), o.Recovered.text(), o.Errors.counts())
			} else {
				fmt.Fprint(t, "–\t–\t–\t")
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\n", x.Node.Gap.text(), x.Node.Recovered.text(), x.Node.Errors.counts(), measure.Ms(rep.quiet(service)))
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if s.Delayed != nil {
			if err := rep.writeLatencies(out, s); err != nil {
				return err
			}
		}
		for _, text := range rep.windows(i) {
			fmt.Fprintf(out, "%s\n", text)
		}
	}
	fmt.Fprintln(out)
	for o := late; o < outcomes; o++ {
		if e, ok := rep.Errors[o.String()]; ok {
			fmt.Fprintf(out, "%d errors (%s); the first: %.200s\n", e.Count, o, e.First)
		}
	}
	fmt.Fprintln(out)
	for _, v := range rep.Verdicts {
		fmt.Fprintf(out, "%-7s %s: %s\n", v.Word(), v.Name, v.Measured)
	}
	for _, v := range rep.Violations {
		fmt.Fprintf(out, "        %s\n", v)
	}
	for i, r := range rep.Repeats {
		for _, l := range r.Lost {
			fmt.Fprintf(out, "        repeat %d: %s\n", i+1, l)
		}
	}
	return out.Flush()
}

// writeLatencies shows what a slow disk made of latencies.
func (rep *Report) writeLatencies(w io.Writer, s *Summary) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\t\t\t\t\t\t\t\t\t")
	fmt.Fprintln(t, "latency meanwhile\tother nodes: p50\tp99\tbefore: p50\tp99\tthe node: p50\tp99\tbefore: p50\tp99\t")
	for service := range services {
		fmt.Fprintf(t, "%s\t", service.title())
		for _, cell := range s.latencies(service) {
			fmt.Fprintf(t, "%s\t", cell)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// latencies are the cells of a service: p50 and p99 while the fault lasted and before, on the
// other nodes and on the node itself.
func (s *Summary) latencies(service service) (cells []string) {
	x := s.Services[service.String()]
	for _, seen := range []*SeenSummary{x.Others, &x.Node} {
		if seen == nil || seen.While == nil {
			cells = append(cells, "–", "–", "–", "–")
			continue
		}
		cells = append(cells, seen.While.P50.text(), seen.While.P99.text(), seen.Before.P50.text(), seen.Before.P99.text())
	}
	return cells
}

// shownWindows is how many windows of a fault a line has.
const shownWindows = 5

// windows are a fault's windows of unavailability, a line for each service that had some. Of
// several repeats the first is told; the JSON has all.
func (rep *Report) windows(fault int) (out []string) {
	line := func(service service, where string, s *Seen) {
		if s == nil || len(s.Windows) == 0 {
			return
		}
		var parts []string
		for i, w := range s.Windows {
			if i == shownWindows {
				parts = append(parts, fmt.Sprintf("and %d more", len(s.Windows)-i))
				break
			}
			text := fmt.Sprintf("%s ms from %s on", measure.Ms(w.LengthMs), measure.Ms(w.FromMs))
			if w.Open {
				text += ", not over when the next fault came"
			}
			parts = append(parts, text)
		}
		out = append(out, fmt.Sprintf("nothing served %s: %s: %s", where, service.title(), strings.Join(parts, "; ")))
	}
	f := &rep.Repeats[0].Faults[fault]
	for s := range services {
		x := f.Services[s.String()]
		line(s, "on the other nodes", x.Others)
		line(s, "on the node", &x.Node)
	}
	if len(rep.Repeats) > 1 && len(out) > 0 {
		out = append([]string{"in the first repeat:"}, out...)
	}
	return out
}

// came says how a fault's node came back.
func (s *Summary) came() string {
	if s.Gone != nil {
		return fmt.Sprintf("after SIGTERM: ended %s ms, ready %s ms, writes %s ms", s.Gone.text(), s.Ready.text(), s.Wrote.text())
	}
	text := fmt.Sprintf("after the end of the fault: ready %s ms, writes %s ms", s.Ready.text(), s.Wrote.text())
	if s.Delayed != nil {
		text += fmt.Sprintf("; %s syncs took longer", s.Delayed.counts())
	}
	return text
}

// victims are the nodes that a fault happened to, with their roles, each once.
func (rep *Report) victims(fault int) (out string) {
	seen := map[string]bool{}
	for _, r := range rep.Repeats {
		f := r.Faults[fault]
		name := f.Node + " " + string(f.Role)
		if seen[name] {
			continue
		}
		if seen[name] = true; out != "" {
			out += ", "
		}
		out += name
	}
	return out
}

// quiet is the longest gap before the first fault of all repeats.
func (rep *Report) quiet(s service) (longest float64) {
	for _, r := range rep.Repeats {
		longest = max(longest, r.QuietGapMs[s.String()])
	}
	return longest
}

// WriteCSV writes the time lines: a row for each repeat, bin and service.
func (rep *Report) WriteCSV(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, "repeat,seconds,service,ok,errors,p50_ms,max_ms")
	for i, r := range rep.Repeats {
		for s := range services {
			b := r.Timeline.Services[s.String()]
			for k := range b.OK {
				at := time.Duration(k) * binLength
				fmt.Fprintf(out, "%d,%.1f,%s,%d,%d,%.3f,%.3f\n", i+1, at.Seconds(), s, b.OK[k], b.Errors[k], b.P50Ms[k], b.MaxMs[k])
			}
		}
	}
	return out.Flush()
}
