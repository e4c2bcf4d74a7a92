package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// inflight remembers the most requests and bytes since the last scrape: what is
// open at the instant of a scrape says little about requests that take a
// millisecond.
type inflight struct {
	kind              string
	requests, maxReqs atomic.Int64
	bytes, maxBytes   atomic.Int64
}

func (i *inflight) init(kind string) { i.kind = kind }

// InFlight is told whenever the admitted requests or their bytes change.
func (m *Metrics) InFlight(mutating bool, requests int, bytes int64) {
	i := &m.inflight[0]
	if mutating {
		i = &m.inflight[1]
	}
	i.requests.Store(int64(requests))
	i.bytes.Store(bytes)
	raise(&i.maxReqs, int64(requests))
	raise(&i.maxBytes, bytes)
}

func raise(p *atomic.Int64, v int64) {
	for old := p.Load(); v > old; old = p.Load() {
		if p.CompareAndSwap(old, v) {
			return
		}
	}
}

var (
	inflightDesc = prometheus.NewDesc("apiserver_current_inflight_requests",
		"The most requests in flight since the last scrape, by kind.", []string{"request_kind"}, nil)
	inflightBytesDesc = prometheus.NewDesc("quorate_inflight_bytes",
		"The most bytes held by requests in flight since the last scrape, by kind.", []string{"request_kind"}, nil)
)

type inflightCollector struct{ kinds *[2]inflight }

func (c inflightCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- inflightDesc
	ch <- inflightBytesDesc
}

func (c inflightCollector) Collect(ch chan<- prometheus.Metric) {
	for n := range c.kinds {
		i := &c.kinds[n]
		ch <- prometheus.MustNewConstMetric(inflightDesc, prometheus.GaugeValue, float64(i.maxReqs.Swap(i.requests.Load())), i.kind)
		ch <- prometheus.MustNewConstMetric(inflightBytesDesc, prometheus.GaugeValue, float64(i.maxBytes.Swap(i.bytes.Load())), i.kind)
	}
}
