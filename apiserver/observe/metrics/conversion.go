package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quorate/quorate/apiserver/types/conversion"
)

type conversionSeries struct {
	total              *prometheus.CounterVec
	duration, versions *prometheus.HistogramVec
}

func (s *conversionSeries) init(r *registrar) {
	s.total = r.counter("apiserver_conversion_webhook_request_total", "Calls of conversion webhooks by result and kind of failure.", "result", "failure_type")
	s.duration = r.histogram("apiserver_conversion_webhook_duration_seconds", "Time of calls of conversion webhooks.", conversionBuckets, "result", "failure_type")
	s.versions = r.histogram("apiserver_crd_conversion_webhook_duration_seconds", "Time of conversions by webhooks, by definition and versions.",
		prometheus.ExponentialBuckets(0.001, 2, 15), "crd_name", "from_version", "to_version", "succeeded")
}

var conversionBuckets = []float64{0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 45, 60}

// Converted counts a call of a conversion webhook. Names of definitions and their
// versions make series: there are as many as there are definitions with a webhook.
func (m *Metrics) Converted(e *conversion.Call) {
	result := "success"
	if e.Failure != "" {
		result = "failure"
	}
	s := &m.conversions
	s.total.WithLabelValues(result, e.Failure).Inc()
	s.duration.WithLabelValues(result, e.Failure).Observe(e.Duration.Seconds())
	s.versions.WithLabelValues(e.Definition, e.From, e.To, strconv.FormatBool(e.Failure == "")).Observe(e.Duration.Seconds())
}
