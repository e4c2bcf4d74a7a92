package compare

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/faults"
	"github.com/quorate/quorate/bench/host"
	"github.com/quorate/quorate/bench/load"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/modes"
)

// better says which direction of a figure is the good one.
type better int

const (
	lower  better = -1
	higher better = 1
)

// series is a figure with its values, one per run.
type series struct {
	row, figure string
	better      better
	values      []float64
}

// Set is what is compared with others: reports of one state of affairs.
type Set struct {
	Name    string
	series  []*series
	index   map[[2]string]*series // by row and figure
	reports int
	// said is what the reports say of where they come from, by what it is, each once.
	said map[string][]string
}

func newSet(name string) *Set {
	return &Set{Name: name, index: map[[2]string]*series{}, said: map[string][]string{}}
}

const (
	maxFile  = 256 << 20
	maxFiles = 10_000
	// maxRuns bounds the values of a figure: each is compared with each.
	maxRuns = 1000
)

// Read reads a report, or all reports in a directory and those below it. Other files are
// left alone.
func Read(path string) (*Set, error) {
	s := newSet(path)
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return s, s.file(path, true)
	}
	files := 0
	err = filepath.WalkDir(path, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(file) != ".json" {
			return err
		}
		if files++; files > maxFiles {
			return fmt.Errorf("%s: more than %d files", path, maxFiles)
		}
		return s.file(file, false)
	})
	if err == nil && s.reports == 0 {
		err = fmt.Errorf("%s: there is no report in it", path)
	}
	return s, err
}

// file adds a report. One that is none is an error if it was named.
func (s *Set) file(file string, named bool) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.Size() > maxFile {
		return fmt.Errorf("%s: more than %d bytes", file, maxFile)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	err = s.add(raw)
	if errors.Is(err, errNoReport) && !named {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

var errNoReport = errors.New("it is not a report of quorate bench load, modes or faults")

// add adds a report's figures.
func (s *Set) add(raw []byte) error {
	var head struct{ Schema string }
	if err := json.Unmarshal(raw, &head); err != nil {
		return fmt.Errorf("%w: %w", errNoReport, err)
	}
	known := map[string]func([]byte) error{load.Schema: s.load, modes.Schema: s.modes, faults.Schema: s.faults}
	add, ok := known[head.Schema]
	if !ok {
		kind, _, _ := strings.Cut(head.Schema, "/")
		for schema := range known {
			if strings.HasPrefix(schema, kind+"/") && kind != "" {
				return fmt.Errorf("its schema is %s: this program reads %s", head.Schema, schema)
			}
		}
		return errNoReport
	}
	if err := add(raw); err != nil {
		return err
	}
	for _, x := range s.series {
		if len(x.values) > maxRuns {
			return fmt.Errorf("%s has more than %d runs", s.Name, maxRuns)
		}
	}
	s.reports++
	return nil
}

// note adds a value of a figure.
func (s *Set) note(row, figure string, b better, value float64) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return
	}
	x := s.index[[2]string{row, figure}]
	if x == nil {
		x = &series{row: row, figure: figure, better: b}
		s.series, s.index[[2]string{row, figure}] = append(s.series, x), x
	}
	x.values = append(x.values, value)
}

// from notes where a report comes from.
func (s *Set) from(commit string, m host.Machine, options any) {
	settings, _ := json.Marshal(options)
	for what, text := range map[string]string{
		"commit": commit, "machine": fmt.Sprintf("%s, Linux %s, %d × %s, data on %s", m.Go, m.Kernel, m.CPUs, m.Processor, m.FileSystem), "settings": string(settings),
	} {
		if !slices.Contains(s.said[what], text) {
			s.said[what] = append(s.said[what], text)
		}
	}
}

func (s *Set) latency(row string, l measure.Latency) {
	if l.Count > 0 {
		s.note(row, "p50 ms", lower, l.P50Ms)
		s.note(row, "p99 ms", lower, l.P99Ms)
	}
}

func (s *Set) load(raw []byte) error {
	var r load.Report
	if err := json.Unmarshal(raw, &r); err != nil {
		return err
	}
	o := r.Options
	o.Repeat = 0 // more runs are no other settings
	s.from(r.Commit, r.Machine, o)
	for _, run := range r.Runs {
		for _, x := range run.Rows {
			if x.Cut {
				continue // it may have been in its slow beginning only
			}
			s.note(x.Name, "ops/s", higher, x.PerSecond)
			s.latency(x.Name, x.Latency)
			if x.CPU > 0 {
				s.note(x.Name, "CPU µs/op", lower, x.CPU)
			}
			if x.Allocs > 0 {
				s.note(x.Name, "allocs/op", lower, x.Allocs)
				s.note(x.Name, "B/op", lower, x.AllocatedBytes)
			}
			s.note(x.Name, "errors", lower, float64(x.Errors))
			for _, p := range x.Parts {
				s.latency(x.Name+":"+p.Verb, p.Latency)
			}
		}
		for _, x := range run.Sweeps {
			if !x.Cut {
				s.note(x.Row, "knee/s", higher, x.Knee)
			}
		}
		for _, m := range []struct {
			name  string
			bytes int64
		}{
			{"memory", run.ResidentBytes}, {"memory, shared pages once", run.ProportionalBytes},
			{"memory at rest", run.RestBytes}, {"memory at rest, shared pages once", run.RestProportionalBytes},
		} {
			if m.bytes > 0 {
				s.note(m.name, "MiB", lower, float64(m.bytes)/(1<<20))
			}
		}
	}
	return nil
}

func (s *Set) modes(raw []byte) error {
	var r modes.Report
	if err := json.Unmarshal(raw, &r); err != nil {
		return err
	}
	o := r.Options
	if o.Load > 0 {
		o.RatePerCell = 0 // it follows from the throughput
	}
	s.from(r.Commit, r.Machine, o)
	if r.Saturation != nil {
		s.note("throughput", "reads/s", higher, r.Saturation.ReadsPerSecond)
	}
	s.latency("writes", r.Writes.Latency)
	seen := map[string]bool{}
	for _, c := range r.Cells {
		row := fmt.Sprintf("%s %s %s", c.Verb, c.Mode, c.Role)
		if seen[row] && c.Role == client.Follower {
			row += " " + c.Node // a second node of the role
		}
		seen[row] = true
		s.latency(row, c.Latency)
		s.note(row, "errors", lower, float64(c.Errors))
		if c.Staleness.Age.Count > 0 {
			s.note(row, "stale share", lower, c.Staleness.Share)
			s.note(row, "stale p99 ms", lower, c.Staleness.Age.P99Ms)
		}
	}
	return nil
}

func (s *Set) faults(raw []byte) error {
	var r faults.Report
	if err := json.Unmarshal(raw, &r); err != nil {
		return err
	}
	o := r.Options
	o.Repeat = 0
	s.from(r.Commit, r.Machine, o)
	optional := func(row, figure string, v *float64) {
		if v != nil {
			s.note(row, figure, lower, *v)
		}
	}
	// What a slow disk does is no gap, but latency.
	meanwhile := func(row, service, where string, f *faults.FaultReport, seen *faults.Seen) {
		if w := seen.While; f.Kind == faults.SlowDisk && w != nil && w.Count > 0 {
			s.note(row, service+" p50 "+where+" ms", lower, w.P50Ms)
			s.note(row, service+" p99 "+where+" ms", lower, w.P99Ms)
		}
	}
	for _, repeat := range r.Repeats {
		for i, f := range repeat.Faults {
			row := fmt.Sprintf("%d %s %s", i+1, f.Kind, f.Role)
			if i < len(o.Faults) {
				row = o.Faults[i]
			}
			optional(row, "ready ms", f.ReadyMs)
			optional(row, "writable ms", f.WroteMs)
			for _, name := range slices.Sorted(maps.Keys(f.Services)) {
				x := f.Services[name]
				if x.Others != nil {
					s.note(row, name+" gap elsewhere ms", lower, x.Others.GapMs)
					optional(row, name+" recovered elsewhere ms", x.Others.RecoveredMs)
					meanwhile(row, name, "elsewhere", &f, x.Others)
				}
				s.note(row, name+" gap on it ms", lower, x.Node.GapMs)
				optional(row, name+" recovered on it ms", x.Node.RecoveredMs)
				meanwhile(row, name, "on it", &f, &x.Node)
			}
		}
	}
	return nil
}
