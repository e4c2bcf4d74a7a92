package aggregator

import "github.com/prometheus/client_golang/prometheus"

var unavailable = prometheus.NewDesc("aggregator_unavailable_apiservice",
	"Gauge of APIServices which are marked as unavailable broken down by APIService name.", []string{"name"}, nil)

func newLost() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "aggregator_unavailable_apiservice_total",
		Help: "Counter of APIServices which are marked as unavailable broken down by APIService name and reason.",
	}, []string{"name", "reason"})
}

// Lost counts an APIService that is no longer available.
func (a *Aggregator) Lost(name, reason string) { a.lost.WithLabelValues(name, reason).Inc() }

// Describe implements prometheus.Collector.
func (a *Aggregator) Describe(ch chan<- *prometheus.Desc) {
	ch <- unavailable
	a.lost.Describe(ch)
}

// Collect implements prometheus.Collector. Those without a Service are always available: they have no
// series.
func (a *Aggregator) Collect(ch chan<- prometheus.Metric) {
	for _, r := range a.Remotes() {
		value := 1.0
		if r.Available {
			value = 0
		}
		ch <- prometheus.MustNewConstMetric(unavailable, prometheus.GaugeValue, value, r.Name)
	}
	a.lost.Collect(ch)
}
