package fairness

import (
	"math"
	"time"
)

// Bounds of what requests are estimated to cost.
const (
	bytesPerSeat    = 100_000
	streamedBytes   = 1_000_000 // a list that is streamed never holds more
	maxListSeats    = 100
	maxWriteSeats   = 10
	watchersPerSeat = 10
	eventTime       = 5 * time.Millisecond // of one seat, for that many watchers
)

// Work is the estimated cost of a request: seats while it runs, and perhaps seats
// for some time after its answer, which nobody waits for.
type Work struct {
	Seats int
	// After is what the request's consequences take (events to watchers): so many
	// seats for so long.
	AfterSeats int
	After      time.Duration
}

// One is the work of most requests.
var One = Work{Seats: 1}

// seats is what the request occupies from its start to the end of After.
func (w Work) seats() int { return max(w.Seats, w.AfterSeats) }

// Collection is what a list or the start of a watch is estimated by.
type Collection struct {
	Objects, Bytes int64 // of the whole table
	Limit          int64 // of the request; zero: none
	Single         bool  // narrowed to one object by its name
}

// List is the work of reading a collection: a seat for each 100 kB that it may
// hold at once, but what is streamed never holds more than 1 MB.
func (c *Class) List(of Collection) Work {
	n := of.Objects
	switch {
	case of.Single:
		n = min(n, 1)
	case of.Limit > 0:
		n = min(n, of.Limit)
	}
	if of.Objects == 0 || n == 0 {
		return One
	}
	bytes := min(float64(of.Bytes)*float64(n)/float64(of.Objects), streamedBytes)
	seats := int(math.Ceil(bytes / bytesPerSeat))
	return Work{Seats: max(1, min(seats, c.mostSeats(maxListSeats)))}
}

// Write is the work of a change that so many watchers are sent.
func (c *Class) Write(watchers int) Work {
	w := One
	c.flow.watchers.Observe(float64(watchers))
	if watchers < watchersPerSeat {
		return w
	}
	seats := (watchers + watchersPerSeat - 1) / watchersPerSeat
	work := time.Duration(seats) * eventTime
	w.AfterSeats = min(seats, c.mostSeats(maxWriteSeats))
	w.After = work / time.Duration(w.AfterSeats)
	return w
}

// mostSeats is what one request of the level may take: wide ones keep seats idle
// until there are enough for them.
func (c *Class) mostSeats(limit int) int {
	if most := int(c.flow.level.mostSeats.Load()); most > 0 {
		return min(most, limit)
	}
	return limit
}
