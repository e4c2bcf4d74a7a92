package delivery

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// bounds are those of the buckets. 0.1 ms is less than an event takes to an idle node's
// connection; 60 s is about when a client that takes nothing is given up.
var bounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second, 60 * time.Second,
}

// bucket is the index of a duration's bucket. Most are among the first.
func bucket(d time.Duration) int {
	for i, bound := range bounds {
		if d <= bound {
			return i
		}
	}
	return len(bounds)
}

// counts are a part of a histogram, for some of the watches.
type counts struct {
	buckets [len(bounds) + 1]atomic.Uint64
	sum     atomic.Int64 // nanoseconds
}

// stripes are how many parts a histogram has: what thousands of watches count at the same
// time would otherwise be one cache line that every processor wants.
const stripes = 8

// stripe are the histograms of the watches that use it, on cache lines of their own.
type stripe struct {
	encoded, flushed counts
	_                [64]byte
}

// collect sums up one histogram.
func (r *Resource) collect(desc *prometheus.Desc, stage string, of func(*stripe) *counts) prometheus.Metric {
	var each [len(bounds) + 1]uint64
	var sum int64
	for i := range r.stripes {
		c := of(&r.stripes[i])
		for b := range c.buckets {
			each[b] += c.buckets[b].Load()
		}
		sum += c.sum.Load()
	}
	buckets, total := make(map[float64]uint64, len(bounds)), uint64(0)
	for i, bound := range bounds {
		total += each[i]
		buckets[bound.Seconds()] = total
	}
	return prometheus.MustNewConstHistogram(desc, total+each[len(bounds)], time.Duration(sum).Seconds(), buckets, stage, r.group, r.resource)
}
