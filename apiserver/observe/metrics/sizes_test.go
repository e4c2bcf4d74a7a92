package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quorate/quorate/apiserver/wire/request"
	"github.com/quorate/quorate/internal/must"
	"k8s.io/apimachinery/pkg/version"
)

// TestSizes compares batches with a histogram of Prometheus that is told of each event.
func TestSizes(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := &registrar{registry: registry}
	ours := r.sizes("sizes", "Of things.", eventBuckets, "a", "b")
	theirs := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "sizes", Help: "Of things.", Buckets: eventBuckets}, []string{"a", "b"})
	other := prometheus.NewRegistry()
	other.MustRegister(theirs)
	for _, b := range []struct {
		label string
		n     int
		bytes int64
	}{
		{"x", 1, 0}, {"x", 1, 1}, {"x", 1, 1024}, {"x", 1, 1025}, {"y", 128, 128 * 2048}, {"y", 3, 10}, {"y", 7, 7 << 20}, {"x", 2, 2*131072 + 1},
	} {
		ours.with(b.label, "").add(b.n, b.bytes)
		for range b.n {
			theirs.WithLabelValues(b.label, "").Observe(float64(b.bytes) / float64(b.n))
		}
	}
	got, err := registry.Gather()
	if err != nil || r.err != nil {
		t.Fatal(err, r.err)
	}
	want, err := other.Gather()
	must.OK(t, err)
	for _, f := range want {
		for _, m := range f.Metric {
			m.Histogram.CreatedTimestamp = nil
		}
	}
	if len(got) != 1 || len(got[0].Metric) != 2 || got[0].String() != want[0].String() {
		t.Errorf("%v\nwant\n%v", got, want)
	}
}

// BenchmarkWatchEvents is what a flush of a watch costs, by how many events it has.
func BenchmarkWatchEvents(b *testing.B) {
	m, err := New(version.Info{}, "test")
	if err != nil {
		b.Fatal(err)
	}
	k := request.Kind{Verb: "watch", Version: "v1", Resource: "pods", Scope: "cluster", Component: "apiserver", LongRunning: true}
	for name, n := range map[string]int{"1": 1, "128": 128} {
		b.Run(name, func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					m.WatchEvents(&k, n, int64(n)*1500)
				}
			})
		})
	}
}
