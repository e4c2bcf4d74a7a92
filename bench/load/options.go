package load

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/bench/measure"
)

// Options say what is measured. Defaults are those of DefaultOptions.
type Options struct {
	Rows []string // names of rows, in any order; none with a mix
	Mix  Mix
	// Duration is the time per row; rows that are counted end with their objects.
	Duration time.Duration
	// Workers make the closed loop, in which each sends its next operation when the last
	// one is answered.
	Workers     int
	Connections int
	Objects     int
	// Rate is how many operations per second are due, at random times; zero: a closed loop.
	Rate float64
	// Sweep raises the rate, from Rate on, until the 99th percentile is above SweepP99,
	// more than SweepErrors of the operations fail, or the throughput does not follow.
	Sweep       bool
	SweepP99    time.Duration
	SweepErrors float64 // a share
	// Timeout is when an operation is given up; in a closed loop, how long its last ones
	// may take.
	Timeout time.Duration
	Repeat  int
	// Namespace is used if it is there already, and keeps its objects. Empty: a new one.
	Namespace string
	Keep      bool // leave behind what was made
	// Goals judges the rows by those of this project, Calibrate at the speed of the peer's
	// machine.
	Goals, Calibrate bool
	// Command and Commit are for the report.
	Command, Commit string
}

// DefaultOptions are what `quorate bench load` measures unless it is told otherwise.
func DefaultOptions() Options {
	return Options{
		Rows: []string{"all"}, Duration: 5 * time.Second, Workers: 32, Connections: 8, Objects: 10_000,
		SweepP99: 100 * time.Millisecond, SweepErrors: 0.01, Timeout: 10 * time.Second, Repeat: 1,
	}
}

// Bounds of the options.
const (
	maxDuration    = time.Hour
	maxWorkers     = 4096
	maxConnections = 1024
	maxObjects     = 2_000_000
	maxRate        = 200_000
	maxTimeout     = 5 * time.Minute
	maxRepeat      = 100
	// maxMade bounds the objects that a row or a mix creates at a rate.
	maxMade = 5_000_000
)

// Validate says what is wrong with the options, all of it.
func (o *Options) Validate() error {
	var b measure.Bounds
	b.Want(o.Duration >= 100*time.Millisecond && o.Duration <= maxDuration, "duration %s: must be 100ms to %s", o.Duration, maxDuration)
	b.Want(o.Workers >= 1 && o.Workers <= maxWorkers, "workers %d: must be 1 to %d", o.Workers, maxWorkers)
	b.Want(o.Connections >= 1 && o.Connections <= maxConnections, "connections %d: must be 1 to %d", o.Connections, maxConnections)
	b.Want(o.Objects >= o.Workers && o.Objects <= maxObjects, "objects %d: must be %d (one for each worker) to %d", o.Objects, o.Workers, maxObjects)
	b.Want(o.Rate == 0 || o.Rate >= 1 && o.Rate <= maxRate, "rate %g: must be 1 to %d operations per second", o.Rate, maxRate)
	b.Want(o.Rate*o.Duration.Seconds() <= maxMade, "rate %g for %s: at most %d operations", o.Rate, o.Duration, maxMade)
	b.Want(o.SweepP99 >= time.Millisecond && o.SweepP99 <= maxTimeout, "sweep-p99 %s: must be 1ms to %s", o.SweepP99, maxTimeout)
	b.Want(o.SweepErrors >= 0 && o.SweepErrors < 1, "sweep-errors %g: must be a share, from 0 to below 1", o.SweepErrors)
	b.Want(o.Timeout >= 100*time.Millisecond && o.Timeout <= maxTimeout, "timeout %s: must be 100ms to %s", o.Timeout, maxTimeout)
	b.Want(o.Repeat >= 1 && o.Repeat <= maxRepeat, "repeat %d: must be 1 to %d", o.Repeat, maxRepeat)
	b.Want(o.Repeat == 1 || o.Namespace == "", "repeat and namespace exclude each other: each time begins with objects of its own")
	_, err := o.chosen()
	return errors.Join(b.Err(), err)
}

// chosen are the rows to measure, in order.
func (o *Options) chosen() ([]row, error) {
	if len(o.Mix) > 0 {
		return []row{{name: "mix", title: "mix", mix: o.Mix}}, nil
	}
	chosen, err := choose(o.Rows)
	if err != nil {
		return nil, err
	}
	if o.Rate > 0 || o.Sweep {
		all := slices.Equal(o.Rows, []string{"all"})
		for _, r := range chosen {
			if r.verb == "" && !all {
				return nil, fmt.Errorf("rows: %s cannot be sent at a rate: choose from %s", r.name, strings.Join(namesOf(paced()), ", "))
			}
		}
		if all {
			return paced(), nil
		}
	}
	return chosen, nil
}

// Mix is what share of the operations each verb has.
type Mix []Weight

// Weight is that of one verb.
type Weight struct {
	Verb   string
	Weight float64
}

// ParseMix reads VERB=WEIGHT,VERB=WEIGHT.
func ParseMix(text string) (Mix, error) {
	var m Mix
	for part := range strings.SplitSeq(text, ",") {
		name, number, ok := strings.Cut(part, "=")
		weight, err := strconv.ParseFloat(number, 64)
		switch {
		case !ok || err != nil || !(weight > 0 && weight <= 1e6):
			return nil, fmt.Errorf("mix %q: must be VERB=WEIGHT, a number above 0, as in get=80,update=20", part)
		case !slices.Contains(verbNames(), name):
			return nil, fmt.Errorf("mix: there is no verb %q: choose from %s", name, strings.Join(verbNames(), ", "))
		case slices.ContainsFunc(m, func(w Weight) bool { return w.Verb == name }):
			return nil, fmt.Errorf("mix: %s is there twice", name)
		}
		m = append(m, Weight{name, weight})
	}
	return m, nil
}

// String is the mix as ParseMix reads it.
func (m Mix) String() string {
	var parts []string
	for _, w := range m {
		parts = append(parts, fmt.Sprintf("%s=%g", w.Verb, w.Weight))
	}
	return strings.Join(parts, ",")
}

// at is the index of the verb that a number from 0 to 1 falls on.
func (m Mix) at(x float64) int {
	sum := 0.0
	for _, w := range m {
		sum += w.Weight
	}
	x *= sum
	for i, w := range m {
		if x -= w.Weight; x < 0 {
			return i
		}
	}
	return len(m) - 1
}
