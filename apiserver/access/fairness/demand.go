package fairness

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// integral follows a value over time: its average, deviation and peak.
type integral struct {
	since, at time.Duration
	value     float64
	sum, sum2 float64 // of value and its square, times nanoseconds
	peak      float64
}

func (i *integral) set(now time.Duration, value float64) {
	i.advance(now)
	i.value = value
	i.peak = max(i.peak, value)
}

func (i *integral) advance(now time.Duration) {
	d := float64(now - i.at)
	i.sum += i.value * d
	i.sum2 += i.value * i.value * d
	i.at = now
}

// moments are the results of one period.
type moments struct{ average, deviation, peak float64 }

// reset returns the moments since the last reset and starts over.
func (i *integral) reset(now time.Duration) moments {
	i.advance(now)
	m := moments{peak: i.peak}
	if d := float64(now - i.since); d > 0 {
		m.average = i.sum / d
		m.deviation = math.Sqrt(max(0, i.sum2/d-m.average*m.average))
	}
	*i = integral{since: now, at: now, value: i.value, peak: i.value}
	return m
}

// occupancy is a histogram of what part of something is in use, in which every
// nanosecond is an observation.
type occupancy struct {
	bounds []float64
	counts []uint64 // nanoseconds in each bucket, and above the last bound
	sum    float64
	at     time.Duration
	ratio  float64
}

func newOccupancy(now time.Duration, bounds ...float64) occupancy {
	return occupancy{bounds: bounds, counts: make([]uint64, len(bounds)+1), at: now}
}

func (o *occupancy) set(now time.Duration, value, whole int) {
	o.advance(now)
	o.ratio = float64(value) / float64(max(whole, 1))
}

func (o *occupancy) advance(now time.Duration) {
	d := now - o.at
	if d <= 0 {
		return
	}
	i := 0
	for i < len(o.bounds) && o.ratio > o.bounds[i] {
		i++
	}
	o.counts[i] += uint64(d)
	o.sum += o.ratio * float64(d)
	o.at = now
}

// metric is the histogram as Prometheus wants it.
func (o *occupancy) metric(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(o.bounds))
	var total uint64
	for i, bound := range o.bounds {
		total += o.counts[i]
		buckets[bound] = total
	}
	return prometheus.MustNewConstHistogram(desc, total+o.counts[len(o.bounds)], o.sum, buckets, labels...)
}
