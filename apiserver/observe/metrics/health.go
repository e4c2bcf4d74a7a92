package metrics

import "github.com/prometheus/client_golang/prometheus"

type healthSeries struct {
	state *prometheus.GaugeVec
	total *prometheus.CounterVec
}

func (s *healthSeries) init(r *registrar) {
	s.state = r.gauge("kubernetes_healthcheck", "Result of the last run of a health check: 1 is passed.", "name", "type")
	s.total = r.counter("kubernetes_healthchecks_total", "Runs of health checks by result.", "name", "status", "type")
}

// HealthCheck is for health.Config.Observe.
func (m *Metrics) HealthCheck(name, kind string, ok bool) {
	value, result := 0.0, "error"
	if ok {
		value, result = 1, "success"
	}
	m.health.state.WithLabelValues(name, kind).Set(value)
	m.health.total.WithLabelValues(name, result, kind).Inc()
}
