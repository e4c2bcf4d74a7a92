package metrics

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// sizesVec is a histogram of sizes in bytes that counts many of one size at the price of one. Prometheus' takes one at
// a time, which was 2 % of what a watch event costs.
type sizesVec struct {
	desc   *prometheus.Desc
	bounds []float64

	mu   sync.Mutex
	sets []*sizes
}

// sizes is one series. Safe for concurrent use.
type sizes struct {
	labels  []string
	bounds  []float64
	buckets []atomic.Uint64
	sum     atomic.Uint64
}

// sizes registers a histogram of sizes.
func (r *registrar) sizes(name, help string, buckets []float64, labels ...string) *sizesVec {
	v := &sizesVec{desc: prometheus.NewDesc(name, help, labels, nil), bounds: buckets}
	r.add(v)
	return v
}

// with returns the series with these labels. It is there from then on, until it is dropped.
func (v *sizesVec) with(labels ...string) *sizes {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range v.sets {
		if slices.Equal(s.labels, labels) {
			return s
		}
	}
	s := &sizes{labels: labels, bounds: v.bounds, buckets: make([]atomic.Uint64, len(v.bounds)+1)}
	v.sets = append(v.sets, s)
	return s
}

// drop forgets the series with these labels, until they are asked for again.
func (v *sizesVec) drop(labels ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sets = slices.DeleteFunc(slices.Clone(v.sets), func(s *sizes) bool { return slices.Equal(s.labels, labels) })
}

// add counts n things that have so many bytes together; each is taken to be of average size.
func (s *sizes) add(n int, bytes int64) {
	i, _ := slices.BinarySearch(s.bounds, float64(bytes)/float64(n)) // a bound is part of its bucket
	s.buckets[i].Add(uint64(n))
	s.sum.Add(uint64(bytes))
}

// Describe implements prometheus.Collector.
func (v *sizesVec) Describe(out chan<- *prometheus.Desc) { out <- v.desc }

// Collect implements prometheus.Collector.
func (v *sizesVec) Collect(out chan<- prometheus.Metric) {
	v.mu.Lock()
	sets := slices.Clone(v.sets)
	v.mu.Unlock()
	for _, s := range sets {
		buckets, total := make(map[float64]uint64, len(s.bounds)), uint64(0)
		for i, bound := range s.bounds {
			total += s.buckets[i].Load()
			buckets[bound] = total
		}
		total += s.buckets[len(s.bounds)].Load()
		out <- prometheus.MustNewConstHistogram(v.desc, total, float64(s.sum.Load()), buckets, s.labels...)
	}
}
