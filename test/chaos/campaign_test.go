//go:build linux && amd64

package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/quorate/quorate/test/judges/check"
	"github.com/quorate/quorate/test/judges/report"
)

// row is a line of the campaign's table: the simulation, or a scenario.
type row struct {
	Name   string         `json:"name"`
	Runs   int            `json:"runs"` // seeds
	Failed int            `json:"failed"`
	Counts check.Counts   `json:"counts"`
	More   map[string]int `json:"more,omitempty"`
	Took   time.Duration  `json:"took"`
}

// summary is what campaign.json holds.
type summary struct {
	When    time.Time `json:"when"`
	Rows    []row     `json:"rows"`
	Results []*Result `json:"results"`
}

// TestCampaign plays every scenario, prints the table and writes the report.
func TestCampaign(t *testing.T) {
	if !*campaign {
		t.Skip("make chaos plays it")
	}
	b := newBinaries(t)
	sum := summary{When: time.Now().UTC()}
	var runs []report.Run
	sim, err := simulation()
	if err != nil {
		t.Error(err)
	} else if sim != nil {
		sum.Rows = append(sum.Rows, *sim)
		runs = append(runs, report.Run{Name: sim.Name, Verdict: &check.Verdict{Name: sim.Name, Counts: sim.Counts}, Note: "go test ./test/sim -run TestChaos"})
	}
	for _, s := range Scenarios {
		r := row{Name: s.Name, More: map[string]int{}}
		for n := range *rounds {
			t.Run(fmt.Sprintf("%s/%d", s.Name, *seed+n), func(t *testing.T) {
				r.Runs++
				r.Failed++ // unless it ends well
				res := playOne(t, s, *seed+n, b.of(s))
				if res.OK() {
					r.Failed--
				}
				r.add(res)
				sum.Results = append(sum.Results, res)
				name := fileOf(s.Name, *seed+n)
				runs = append(runs, report.Run{Name: s.Name, Seed: *seed + n, Verdict: res.Verdict, Link: name + ".html",
					Note: strings.Join(append([]string{s.About}, res.Failures...), "; ")})
			})
		}
		sum.Rows = append(sum.Rows, r)
	}
	var table strings.Builder
	sum.print(&table)
	t.Log("\n" + table.String())
	if *outDir == "" {
		return
	}
	text, err := json.MarshalIndent(sum, "", "  ")
	if err := errors.Join(err, os.WriteFile(filepath.Join(*outDir, "campaign.json"), text, 0o644),
		os.WriteFile(filepath.Join(*outDir, "table.txt"), []byte(table.String()), 0o644),
		report.IndexFile(filepath.Join(*outDir, "index.html"), "Quorate under faults", runs)); err != nil {
		t.Error(err)
	}
}

// simulation reads what test/sim has counted; nil if it was not run.
func simulation() (*row, error) {
	if *simFile == "" {
		return nil, nil
	}
	b, err := os.ReadFile(*simFile)
	if err != nil {
		return nil, fmt.Errorf("the simulation's counts: %w", err)
	}
	r := row{Name: "virtual time"}
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("the simulation's counts: %w", err)
	}
	return &r, nil
}

func (r *row) add(res *Result) {
	r.Took += res.Took
	r.Counts.Add(&res.Verdict.Counts)
	for what, n := range res.Counts {
		r.More[what] += n
	}
}

// print prints the table: a line per row, then the faults by kind and what else
// was counted.
func (s *summary) print(out io.Writer) {
	total := row{Name: "total", More: map[string]int{}}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\n\tseeds\tfailed\toperations\tfaults\tunknown\tevents\tforced\tovertaken\tlost\tstale\tduplicated\tmissing\tmisordered\ttook\t")
	fmt.Fprintln(w, "\t\t\t\t\toutcomes\twatched\trelists\twatchers\twrites\treads\tevents\tevents\tevents\t\t")
	line := func(r row) {
		faults := 0
		for _, n := range r.Counts.Faults {
			faults += n
		}
		c := &r.Counts
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t\n", r.Name, r.Runs, r.Failed, c.Operations(), faults, c.Unknown, c.Events,
			c.Relists, c.Overtaken, c.LostWrites, c.StaleReads, c.Duplicated, c.Missing, c.Misordered, r.Took.Round(time.Second))
	}
	for _, r := range s.Rows {
		line(r)
		total.Runs, total.Failed, total.Took = total.Runs+r.Runs, total.Failed+r.Failed, total.Took+r.Took
		total.Counts.Add(&r.Counts)
		for what, n := range r.More {
			total.More[what] += n
		}
	}
	line(total)
	w.Flush()
	tally := func(title string, counts map[string]int) {
		fmt.Fprintf(out, "\n%s:\n", title)
		for _, kind := range slices.Sorted(maps.Keys(counts)) {
			if counts[kind] > 0 {
				fmt.Fprintf(out, "  %-45s %d\n", kind, counts[kind])
			}
		}
	}
	tally("Faults by kind", total.Counts.Faults)
	tally("Also counted", total.More)
}
