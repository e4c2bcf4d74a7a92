package metrics

import "github.com/prometheus/client_golang/prometheus"

type controllerSeries struct {
	running  *prometheus.GaugeVec
	failures *prometheus.CounterVec
}

func (s *controllerSeries) init(r *registrar) {
	s.running = r.gauge("running_managed_controllers", "Indicates where instances of a controller are currently running: 1 at the node that leads.", "manager", "name")
	s.failures = r.counter("quorate_controller_failures_total", "Attempts of a controller that failed; each is made again.", "name")
}

// ControllerRuns says whether a controller runs at this node.
func (m *Metrics) ControllerRuns(name string, runs bool) {
	m.controllers.running.WithLabelValues("quorate", name).Set(truth(runs))
	m.controllers.failures.WithLabelValues(name) // there before it counts: rates begin at zero
}

// ControllerFailed counts an attempt of a controller that failed and is made again.
func (m *Metrics) ControllerFailed(name string) {
	m.controllers.failures.WithLabelValues(name).Inc()
}
