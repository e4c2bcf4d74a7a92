package metrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quorate/quorate/apiserver/wire/request"
)

type lifecycleSeries struct {
	deprecated, features, served        *prometheus.GaugeVec
	auditEvents, auditLevels, auditLost *prometheus.CounterVec
}

func (s *lifecycleSeries) init(r *registrar) {
	s.deprecated = r.gauge("apiserver_requested_deprecated_apis", "Deprecated versions that were asked for; constant 1.",
		"group", "version", "resource", "subresource", "removed_release")
	s.features = r.gauge("kubernetes_feature_enabled", "Feature gates: 1 is enabled.", "name", "stage")
	s.served = r.gauge("quorate_api_resources", "Resources that this node serves; the hash differs between nodes that serve different ones.", "hash")
	s.auditEvents = r.counter("apiserver_audit_event_total", "Audit events that were made.")
	s.auditLevels = r.counter("apiserver_audit_level_total", "Requests by the level that the audit policy gave them.", "level")
	s.auditLost = r.counter("apiserver_audit_error_total", "Audit events that were lost.", "plugin", "reason")
}

// Deprecated counts a request for a version that is on its way out.
func (m *Metrics) Deprecated(k *request.Kind, removedRelease string) {
	m.lifecycle.deprecated.WithLabelValues(k.Group, k.Version, k.Resource, k.Subresource, removedRelease).Set(1)
}

// Feature says what a feature gate is set to.
func (m *Metrics) Feature(name, stage string, enabled bool) {
	m.lifecycle.features.WithLabelValues(name, stage).Set(truth(enabled))
}

// Served says how many resources this node serves, and their hash.
func (m *Metrics) Served(hash string, resources int) {
	m.lifecycle.served.Reset()
	m.lifecycle.served.WithLabelValues(hash).Set(float64(resources))
}

// AuditLevel, AuditEvent and AuditLost are audit.Observer.
func (m *Metrics) AuditLevel(level string) { m.lifecycle.auditLevels.WithLabelValues(level).Inc() }

// AuditEvent counts an event.
func (m *Metrics) AuditEvent() { m.lifecycle.auditEvents.WithLabelValues().Inc() }

// AuditLost counts an event that was not written. Reasons are a closed set.
func (m *Metrics) AuditLost(reason string) {
	m.lifecycle.auditLost.WithLabelValues("log", reason).Inc()
}

// CheckShowHidden checks --show-hidden-metrics-for-version against the minor version
// that is served: only the previous one may be named.
func CheckShowHidden(version string, minor int) error {
	if want := fmt.Sprintf("1.%d", minor-1); version != "" && version != want {
		return fmt.Errorf("show-hidden-metrics-for-version must be omitted or have the value '%s'. Only the previous minor version is allowed", want)
	}
	return nil
}

// ShowHidden registers the families that upstream has deprecated for so long that
// it hides them, for dashboards that have not moved on.
func (m *Metrics) ShowHidden() error { return m.registry.Register(hidden{&m.store}) }

// hidden are, with the metric that took their place:
//   - apiserver_storage_db_total_size_in_bytes: apiserver_storage_size_bytes
type hidden struct{ store *storeSeries }

var dbSizeDesc = prometheus.NewDesc("apiserver_storage_db_total_size_in_bytes",
	"Size of the state file, with its reserve.", []string{"endpoint"}, nil)

// Describe implements prometheus.Collector.
func (h hidden) Describe(ch chan<- *prometheus.Desc) { ch <- dbSizeDesc }

// Collect implements prometheus.Collector.
func (h hidden) Collect(ch chan<- prometheus.Metric) {
	if stats := h.store.stats.Load(); stats != nil {
		ch <- prometheus.MustNewConstMetric(dbSizeDesc, prometheus.GaugeValue, float64((*stats)().DBBytes), "local")
	}
}
