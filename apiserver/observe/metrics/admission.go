package metrics

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quorate/quorate/apiserver/admission"
)

// admissionBuckets are upstream's.
var admissionBuckets = []float64{0.005, 0.025, 0.1, 0.5, 1.0, 2.5}

type admissionSeries struct {
	plugins, steps *prometheus.HistogramVec
	summary        *prometheus.SummaryVec
	loaded         *prometheus.GaugeVec

	// The series that were needed once: by the names of plugins, of which there are as many
	// as in the table, and those of the steps. A name that comes for the first time makes
	// another map.
	byPlugin atomic.Pointer[map[string]*admissionCells]
	ofSteps  admissionCells
}

// admissionCells are series by phase, operation and whether the write was rejected.
type admissionCells [2][4][2]atomic.Pointer[admissionCell]

// admissionCell is what one observation goes to.
type admissionCell struct {
	histogram prometheus.Observer
	summary   prometheus.Observer // nil: there is none
}

func (s *admissionSeries) init(r *registrar) {
	s.plugins = r.histogram("apiserver_admission_controller_admission_duration_seconds",
		"Time of admission plugins, by name, type (validate or admit) and operation.", admissionBuckets, "name", "type", "operation", "rejected")
	s.steps = r.histogram("apiserver_admission_step_admission_duration_seconds",
		"Time of all admission plugins of a step, by type (validate or admit) and operation.", admissionBuckets, "type", "operation", "rejected")
	s.summary = prometheus.NewSummaryVec(prometheus.SummaryOpts{
		Name:       "apiserver_admission_step_admission_duration_seconds_summary",
		Help:       "Time of all admission plugins of a step, by type (validate or admit) and operation.",
		Objectives: map[float64]float64{0.5: 0.05, 0.9: 0.01, 0.99: 0.001}, MaxAge: 5 * time.Hour,
	}, []string{"type", "operation", "rejected"})
	r.add(s.summary)
	s.loaded = r.gauge("quorate_admission_plugins", "How many admission plugins this node asks; the hash is of their names and of what they were told.", "hash")
	s.byPlugin.Store(&map[string]*admissionCells{})
}

// AdmissionPlugins says how many plugins this node asks, and the hash of its settings.
func (m *Metrics) AdmissionPlugins(hash string, n int) {
	m.admission.loaded.WithLabelValues(hash).Set(float64(n))
}

// PluginAsked implements admission.Observer.
func (m *Metrics) PluginAsked(plugin, phase string, a *admission.Attributes, took time.Duration, rejected bool) {
	s := &m.admission
	cells := (*s.byPlugin.Load())[plugin]
	if cells == nil {
		cells = s.newPlugin(plugin)
	}
	cell := cells.at(phase, a.Operation, rejected)
	c := cell.Load()
	if c == nil {
		c = &admissionCell{histogram: s.plugins.WithLabelValues(plugin, phase, string(a.Operation), strconv.FormatBool(rejected))}
		cell.Store(c)
	}
	c.histogram.Observe(took.Seconds())
}

// StepDone implements admission.Observer.
func (m *Metrics) StepDone(phase string, a *admission.Attributes, took time.Duration, rejected bool) {
	s := &m.admission
	cell := s.ofSteps.at(phase, a.Operation, rejected)
	c := cell.Load()
	if c == nil {
		labels := []string{phase, string(a.Operation), strconv.FormatBool(rejected)}
		c = &admissionCell{s.steps.WithLabelValues(labels...), s.summary.WithLabelValues(labels...)}
		cell.Store(c)
	}
	c.histogram.Observe(took.Seconds())
	c.summary.Observe(took.Seconds())
}

// newPlugin adds a name.
func (s *admissionSeries) newPlugin(name string) *admissionCells {
	for {
		before := s.byPlugin.Load()
		if cells := (*before)[name]; cells != nil {
			return cells
		}
		cells := &admissionCells{}
		now := map[string]*admissionCells{name: cells}
		for k, v := range *before {
			now[k] = v
		}
		if s.byPlugin.CompareAndSwap(before, &now) {
			return cells
		}
	}
}

// at is the place of a series. What makes it looks it up by its labels: two that are made at
// once are the same.
func (c *admissionCells) at(phase string, operation admission.Operation, rejected bool) *atomic.Pointer[admissionCell] {
	i, j, k := 0, 0, 0
	if phase == admission.PhaseValidate {
		i = 1
	}
	switch operation {
	case admission.Update:
		j = 1
	case admission.Delete:
		j = 2
	case admission.Connect:
		j = 3
	}
	if rejected {
		k = 1
	}
	return &c[i][j][k]
}
