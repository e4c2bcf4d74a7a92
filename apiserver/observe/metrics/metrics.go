package metrics

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/version"
)

// Metrics is the registry of one node. Methods are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	handler  http.Handler

	requests  requestSeries
	inflight  [2]inflight
	store     storeSeries
	reads     readSeries
	security  securitySeries
	health    healthSeries
	lifecycle lifecycleSeries

	admission   admissionSeries
	conversions conversionSeries
	controllers controllerSeries
}

// New makes a registry with every family of the contract. info is what
// kubernetes_build_info says; quorate is Quorate's own version.
func New(info version.Info, quorate string) (*Metrics, error) {
	m := &Metrics{registry: prometheus.NewRegistry()}
	r := &registrar{registry: m.registry}
	r.add(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.requests.init(r)
	for i, kind := range []string{"readOnly", "mutating"} {
		m.inflight[i].init(kind)
	}
	r.add(inflightCollector{&m.inflight})
	m.store.init(r)
	m.reads.init(r)
	m.security.init(r)
	m.health.init(r)
	m.lifecycle.init(r)
	m.admission.init(r)
	m.conversions.init(r)
	m.controllers.init(r)
	buildInfo(r, info, quorate)
	if r.err != nil {
		return nil, fmt.Errorf("register metrics: %w", r.err)
	}
	m.handler = promhttp.HandlerFor(m.gatherers(), promhttp.HandlerOpts{
		Registry: m.registry, EnableOpenMetrics: true, MaxRequestsInFlight: 4,
	})
	return m, nil
}

// ServeHTTP serves the text format, compressed if the client accepts it.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.handler.ServeHTTP(w, r) }

// Registry is for collectors that this package does not know.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// registrar keeps the first error.
type registrar struct {
	registry *prometheus.Registry
	err      error
}

func (r *registrar) add(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.registry.Register(c); err != nil && r.err == nil {
			r.err = err
		}
	}
}

func (r *registrar) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	r.add(v)
	return v
}

func (r *registrar) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	r.add(v)
	return v
}

func (r *registrar) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	r.add(v)
	return v
}

func buildInfo(r *registrar, info version.Info, quorate string) {
	r.gauge("kubernetes_build_info", "Version of the Kubernetes API that is served; constant 1.",
		"major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform").
		WithLabelValues(info.Major, info.Minor, info.GitVersion, info.GitCommit, info.GitTreeState, info.BuildDate,
			info.GoVersion, info.Compiler, info.Platform).Set(1)
	r.gauge("quorate_build_info", "Version of Quorate; constant 1.", "version", "commit", "go_version").
		WithLabelValues(quorate, info.GitCommit, info.GoVersion).Set(1)
}
