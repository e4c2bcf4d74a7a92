package modes

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/probe"
)

// AllModes are all modes, Any first: the others are compared with it.
var AllModes = []probe.Mode{probe.Any, probe.NotOlderThan, probe.Exact, probe.MostRecent}

// Verb is get or list.
type Verb string

// The verbs.
const (
	Get  Verb = "get"
	List Verb = "list"
)

// AllRoles are the roles in the order of the report.
var AllRoles = []client.Role{client.Leader, client.Follower, client.Nonvoter, client.Server}

// Options say what is measured. Defaults are those of DefaultOptions.
type Options struct {
	Duration time.Duration // of the measurement, at least a second
	// Rate is how many reads per second each cell is sent. Ignored with Loads.
	Rate float64
	// Loads are shares, above 0 and below 1, of the throughput that the cluster has under
	// the same mix of reads, which is found first. Each is measured, one after the other.
	// None: Rate counts.
	Loads []float64
	// Writes is how many writes per second the probes get together.
	Writes  float64
	Objects int // in the collection that is listed, probes included
	Size    int // bytes of each object's value
	Modes   []probe.Mode
	// Nodes are roles or names. A role stands for the first node that has it.
	Nodes []string
	// Command and Commit are for the report.
	Command, Commit string
}

// DefaultOptions are what `quorate bench modes` measures unless it is told otherwise.
func DefaultOptions() Options {
	return Options{
		Duration: 20 * time.Second, Rate: 20, Writes: 100, Objects: 100, Size: 1024,
		Modes: AllModes, Nodes: []string{string(client.Leader), string(client.Follower), string(client.Nonvoter)},
	}
}

// Bounds of the options.
const (
	maxDuration = time.Hour
	maxRate     = 100_000
	maxWrites   = 10_000
	maxObjects  = 10_000
	maxSize     = 512 << 10
	maxLoads    = 20
	// maxCollection bounds what one list returns.
	maxCollection = 256 << 20
	// probeRate is how many writes per second one probe gets: one after the other,
	// so it must be less than one per round trip to the disks.
	probeRate = 25
)

// probes is how many objects share the writes.
func (o *Options) probes() int { return max(1, int((o.Writes+probeRate-1)/probeRate)) }

// Validate says what is wrong with the options, all of it.
func (o *Options) Validate() error {
	var b measure.Bounds
	b.Want(o.Duration >= time.Second && o.Duration <= maxDuration, "duration %s: must be 1s to %s", o.Duration, maxDuration)
	for _, l := range o.Loads {
		b.Want(l > 0 && l < 1, "load %g: must be above 0 and below 1", l)
	}
	b.Want(len(o.Loads) <= maxLoads, "%d loads: at most %d", len(o.Loads), maxLoads)
	b.Want(len(o.Loads) > 0 || o.Rate >= 1 && o.Rate <= maxRate, "rate %g: must be 1 to %d reads per second and cell", o.Rate, maxRate)
	b.Want(o.Writes >= 1 && o.Writes <= maxWrites, "writes %g: must be 1 to %d per second", o.Writes, maxWrites)
	b.Want(o.Objects >= o.probes() && o.Objects <= maxObjects, "objects %d: must be %d (one per %d writes/s) to %d", o.Objects, o.probes(), probeRate, maxObjects)
	b.Want(o.Size >= 1 && o.Size <= maxSize, "size %d: must be 1 to %d bytes", o.Size, maxSize)
	b.Want(o.Size <= 0 || o.Objects <= maxCollection/o.Size, "objects %d of %d bytes: a list would have more than %d bytes", o.Objects, o.Size, maxCollection)
	b.Want(len(o.Modes) > 0, "no modes: choose from %s", join(AllModes))
	for _, m := range o.Modes {
		b.Want(slices.Contains(AllModes, m), "there is no mode %q: choose from %s", m, join(AllModes))
	}
	b.Want(len(o.Nodes) > 0, "no nodes: give roles (%s) or names", join(AllRoles))
	return b.Err()
}

func join[T ~string](list []T) string {
	var s []string
	for _, x := range list {
		s = append(s, string(x))
	}
	return strings.Join(s, ", ")
}

// ParseLoads reads shares of the throughput, separated by commas: "half", or a number above
// 0 and below 1. Empty is none.
func ParseLoads(text string) (out []float64, err error) {
	if text == "" {
		return nil, nil
	}
	for s := range strings.SplitSeq(text, ",") {
		f, err := strconv.ParseFloat(s, 64)
		if s == "half" {
			f, err = 0.5, nil
		}
		if err != nil || !(f > 0 && f < 1) {
			return nil, fmt.Errorf("load %q: must be half, or a number above 0 and below 1", s)
		}
		out = append(out, f)
	}
	return out, nil
}
