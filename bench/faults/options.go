package faults

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
)

// Machines are those on which the nodes run, for who does something to them. Errors of
// its methods end the measurement. What they do they do at once.
type Machines interface {
	// Kill and Stop end a node's process, by SIGKILL and SIGTERM, and wait until it is gone.
	Kill(ctx context.Context, node string) error
	Stop(ctx context.Context, node string) error
	// Start starts it again, and does not wait until it serves.
	Start(ctx context.Context, node string) error
	// Pause lets a process stand still, Resume lets it go on.
	Pause(node string) error
	Resume(node string) error
	// Cut cuts a node off from the others until Heal: in is what they send to it, out what it sends.
	Cut(node string, in, out bool) error
	Heal(node string) error
	// Slow makes each sync of a node take so much longer, until it is called with zero. It returns
	// how many did since it was called last.
	Slow(node string, delay time.Duration) (delayed int64, err error)
	// Mend makes everything as it was before the first of these calls, whatever has happened.
	Mend(ctx context.Context) error
}

// Target is what is measured.
type Target struct {
	client.Cluster
	Machines Machines
}

// Options say what is played and measured. Defaults are those of DefaultOptions.
type Options struct {
	Faults []Fault // by Schedule
	// Repeat is how often the faults are played, each time from the beginning.
	Repeat int
	// After is how long to measure behind the end of the last fault.
	After time.Duration
	// Writes is how many writes per second all nodes get together, Reads how many reads
	// of each mode per second and node.
	Writes, Reads float64
	// Timeout is when a request is given up.
	Timeout time.Duration
	Size    int // bytes of each object's value
	// Command and Commit are for the report.
	Command, Commit string
}

// DefaultOptions are what `quorate bench faults` measures unless it is told otherwise.
func DefaultOptions() Options {
	return Options{Faults: Schedule(DefaultFaults()), Repeat: 1, After: defaultRest, Writes: 100, Reads: 30, Timeout: 10 * time.Second, Size: 256}
}

// Bounds of the options.
const (
	maxFor     = 5 * time.Minute
	maxLength  = time.Hour // of one repeat
	maxRepeat  = 1000
	maxRate    = 2000
	maxProbes  = 20_000
	maxTimeout = time.Minute
	maxSize    = 64 << 10
	// maxSamples bounds the requests of one repeat, which are kept until it is judged.
	maxSamples = 4_000_000
)

// length is how long one repeat is.
func (o *Options) length() time.Duration {
	if len(o.Faults) == 0 {
		return 0
	}
	return o.Faults[len(o.Faults)-1].end() + o.After
}

// probes is how many objects share the writes of one repeat. One whose write got no
// answer is not written again: it may still happen. So there are enough for all writes
// during the longest fault, and for as long as a request may take.
func (o *Options) probes() int {
	longest := time.Duration(0)
	for _, f := range o.Faults {
		longest = max(longest, f.For)
	}
	return 64 + int(o.Writes*(longest+o.Timeout).Seconds()*1.2)
}

// Validate says what is wrong with the options, all of it.
func (o *Options) Validate() error {
	var b measure.Bounds
	b.Want(len(o.Faults) > 0, "no faults")
	b.Want(o.Repeat >= 1 && o.Repeat <= maxRepeat, "repeat %d: must be 1 to %d", o.Repeat, maxRepeat)
	b.Want(o.After >= leastRest && o.After <= maxFor, "after %s: must be %s to %s", o.After, leastRest, maxFor)
	b.Want(o.Writes >= 1 && o.Writes <= maxRate, "writes %g: must be 1 to %d per second", o.Writes, maxRate)
	b.Want(o.Reads >= 1 && o.Reads <= maxRate, "reads %g: must be 1 to %d per second, mode and node", o.Reads, maxRate)
	b.Want(o.Timeout >= 100*time.Millisecond && o.Timeout <= maxTimeout, "timeout %s: must be 100ms to %s", o.Timeout, maxTimeout)
	b.Want(o.Size >= 1 && o.Size <= maxSize, "size %d: must be 1 to %d bytes", o.Size, maxSize)
	b.Want(o.length() <= maxLength, "the faults take %s: at most %s", o.length(), maxLength)
	if b = append(b, check(o.Faults)); b.Err() == nil {
		b.Want(o.probes() <= maxProbes, "writes %g with faults that long and a timeout of %s: %d objects are needed, at most %d are made", o.Writes, o.Timeout, o.probes(), maxProbes)
	}
	return b.Err()
}

// checkLoad refuses a load whose samples would not fit.
func (o *Options) checkLoad(nodes int) error {
	if n := o.rate(nodes) * o.length().Seconds(); n > maxSamples {
		return fmt.Errorf("%.0f requests in one repeat: at most %d", n, maxSamples)
	}
	return nil
}

// rate is how many requests per second all nodes get together.
func (o *Options) rate(nodes int) float64 { return o.Writes + float64(modes)*o.Reads*float64(nodes) }
