package churn

import (
	"time"

	"github.com/quorate/quorate/bench/measure"
)

// Options say what is written.
type Options struct {
	Writes   int64
	Duration time.Duration // after which there are no more writes; zero: no bound
	Objects  int           // that live at a time, with a tenth more or less
	Clients  int
	// Smallest and Largest are bytes of an object's value. The logarithm of the size is uniform between them.
	Smallest, Largest int
	Seed              uint64
	Every             time.Duration // between samples
	Rest              time.Duration // how long samples are taken after the last write
	Timeout           time.Duration
	// Command and Commit are for the report.
	Command, Commit string
}

// DefaultOptions are those of `quorate bench churn`. The rest is longer than the history of watches and one try to shrink files.
func DefaultOptions() Options {
	return Options{Writes: 5_000_000, Objects: 20_000, Clients: 32, Smallest: 100, Largest: 32 << 10, Seed: 1, Every: 5 * time.Second, Rest: 7 * time.Minute, Timeout: 30 * time.Second}
}

// Validate reports options that cannot be measured.
func (o *Options) Validate() error {
	var b measure.Bounds
	b.Want(o.Writes >= 1, "--writes %d: must be at least 1", o.Writes)
	b.Want(o.Duration >= 0, "--duration %s: must not be negative", o.Duration)
	b.Want(o.Clients >= 1 && o.Clients <= 10_000, "--clients %d: must be 1 to 10000", o.Clients)
	b.Want(o.Objects >= o.Clients, "--objects %d: must be at least one for each of --clients", o.Objects)
	b.Want(o.Smallest >= 1 && o.Smallest <= o.Largest, "--smallest %d: must be 1 to --largest", o.Smallest)
	b.Want(o.Largest <= 1<<20, "--largest %d: must be at most 1048576, which a ConfigMap may have", o.Largest)
	b.Want(o.Every >= 100*time.Millisecond, "--every %s: must be at least 100ms", o.Every)
	b.Want(o.Rest >= 0, "--rest %s: must not be negative", o.Rest)
	b.Want(o.Timeout >= time.Second, "--timeout %s: must be at least a second", o.Timeout)
	return b.Err()
}
