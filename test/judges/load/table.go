package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/quorate/quorate/bench/report"
)

// The names of the sides.
const (
	ours = "quorate"
	peer = "kube-apiserver"
)

// result is what a row has cost one side, and what failed.
type result struct {
	Side      string               `json:"side"`
	Row       string               `json:"row"` // the tool and its load
	Run       int                  `json:"run"`
	Error     string               `json:"error,omitempty"` // why it could not be measured
	Seconds   float64              `json:"seconds"`
	CPU       float64              `json:"cpuSeconds"`         // of all servers; of the peer's without kube-controller-manager's
	MemoryMiB int64                `json:"memoryMiB"`          // the most that all servers had resident at one time
	Ms        map[string][]float64 `json:"ms"`                 // by the kind of request, the 50th and the 99th percentile
	Failed    int                  `json:"failed"`             // as the tool counts it
	Refused   int                  `json:"refused"`            // answers of 429, which clients repeat
	Errors    int                  `json:"errors"`             // answers of 5xx
	ErrorsOf  map[string]int       `json:"errorsOf,omitempty"` // the same, by code, verb and resource
	Elections int                  `json:"elections"`
}

// verdict says what a row of ours must not have.
func (r result) verdict() error {
	switch {
	case r.Side != ours:
	case r.Error != "":
		return fmt.Errorf("%s, run %d: %s", r.Row, r.Run, r.Error)
	case r.Failed != 0 || r.Errors != 0 || r.Elections != 0:
		return fmt.Errorf("%s, run %d: %d operations failed, %d answers of 5xx %v, %d elections: want none", r.Row, r.Run, r.Failed, r.Errors, r.ErrorsOf, r.Elections)
	}
	return nil
}

// write prints the medians of the runs of each row and side, with the sums of what failed, and returns what must not be. Runs that could
// not be measured are in no line.
func write(w io.Writer, results []result) error {
	var names []string
	by := map[string][]result{}
	var bad []error
	var notes []string
	for _, r := range results {
		if !slices.Contains(names, r.Row) {
			names = append(names, r.Row)
		}
		if bad = append(bad, r.verdict()); r.Error == "" {
			by[r.Row+r.Side] = append(by[r.Row+r.Side], r)
		} else if r.Side != ours {
			notes = append(notes, fmt.Sprintf("%s, run %d of %s was not measured: %s\n", r.Row, r.Run, r.Side, r.Error))
		}
	}
	head := []string{"load", "side", "runs", "seconds", "CPU s", "share", "MiB", "reads p50/p99 ms", "writes", "patches", "429", "failed", "5xx", "elections"}
	var lines [][]string
	for _, name := range names {
		of := median(by[name+peer], func(r result) float64 { return r.CPU })
		for _, side := range []string{ours, peer} {
			runs := by[name+side]
			if len(runs) == 0 {
				continue
			}
			cpu, share := median(runs, func(r result) float64 { return r.CPU }), ""
			if side == ours && of > 0 {
				share = fmt.Sprintf("%.0f %%", 100*cpu/of)
			}
			line := []string{name, side, fmt.Sprint(len(runs)), fmt.Sprintf("%.1f", median(runs, func(r result) float64 { return r.Seconds })), fmt.Sprintf("%.1f", cpu), share,
				fmt.Sprintf("%.0f", median(runs, func(r result) float64 { return float64(r.MemoryMiB) }))}
			for _, kind := range []string{"reads", "writes", "patches"} {
				at := func(i int) float64 {
					return median(runs, func(r result) float64 {
						if len(r.Ms[kind]) < 2 {
							return 0
						}
						return r.Ms[kind][i]
					})
				}
				line = append(line, ms(at(0))+"/"+ms(at(1)))
			}
			for _, n := range []func(result) int{
				func(r result) int { return r.Refused }, func(r result) int { return r.Failed }, func(r result) int { return r.Errors }, func(r result) int { return r.Elections },
			} {
				all := 0
				for _, r := range runs {
					all += n(r)
				}
				line = append(line, fmt.Sprint(all))
			}
			lines = append(lines, line)
		}
	}
	var b strings.Builder
	if err := report.WriteColumns(&b, head, lines); err != nil {
		return err
	}
	if _, err := io.WriteString(w, b.String()+strings.Join(notes, "")); err != nil {
		return err
	}
	return errors.Join(bad...)
}

// ms prints milliseconds with three digits, or more where they are whole.
func ms(n float64) string {
	if n >= 100 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.3g", n)
}

// median returns the median of what is said of runs, the lower one of two, and zero of none.
func median(runs []result, of func(result) float64) float64 {
	if len(runs) == 0 {
		return 0
	}
	sorted := slices.SortedFunc(slices.Values(runs), func(a, b result) int { return cmp.Compare(of(a), of(b)) })
	return of(sorted[(len(sorted)-1)/2])
}
