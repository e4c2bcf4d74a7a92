package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quorate/quorate/apiserver/admission"
	upstream "k8s.io/apiserver/pkg/admission/metrics"
)

// TestAdmission: each plugin, phase, operation and outcome counts in its own series.
func TestAdmission(t *testing.T) {
	m := newMetrics(t)
	n := uint64(0)
	for _, phase := range []string{admission.PhaseAdmit, admission.PhaseValidate} {
		for _, operation := range []admission.Operation{admission.Create, admission.Update, admission.Delete, admission.Connect} {
			for _, rejected := range []bool{false, true} {
				n++
				a := &admission.Attributes{Operation: operation}
				for range n {
					m.PluginAsked("A", phase, a, time.Millisecond, rejected)
					m.PluginAsked("B", phase, a, time.Millisecond, rejected)
					m.StepDone(phase, a, time.Millisecond, rejected)
				}
				labels := map[string]string{"type": phase, "operation": string(operation), "rejected": fmt.Sprint(rejected)}
				if got := find(t, m, "apiserver_admission_step_admission_duration_seconds", labels).GetHistogram().GetSampleCount(); got != n {
					t.Errorf("step %v: %d, want %d", labels, got, n)
				}
				if got := find(t, m, "apiserver_admission_step_admission_duration_seconds_summary", labels).GetSummary(); got.GetSampleCount() != n || len(got.GetQuantile()) != 3 {
					t.Errorf("summary %v: %v, want %d", labels, got, n)
				}
				for _, name := range []string{"A", "B"} {
					labels["name"] = name
					if got := find(t, m, "apiserver_admission_controller_admission_duration_seconds", labels).GetHistogram().GetSampleCount(); got != n {
						t.Errorf("plugin %v: %d, want %d", labels, got, n)
					}
				}
			}
		}
	}
}

// TestAdmissionAtOnce: names that come for the first time at once are all counted.
func TestAdmissionAtOnce(t *testing.T) {
	m := newMetrics(t)
	a := &admission.Attributes{Operation: admission.Create}
	var wg sync.WaitGroup
	for range 4 {
		for i := range 8 {
			wg.Go(func() { m.PluginAsked(fmt.Sprint("P", i), admission.PhaseAdmit, a, time.Millisecond, false) })
		}
	}
	wg.Wait()
	for i := range 8 {
		if got := find(t, m, "apiserver_admission_controller_admission_duration_seconds", map[string]string{"name": fmt.Sprint("P", i)}).GetHistogram().GetSampleCount(); got != 4 {
			t.Errorf("P%d: %d", i, got)
		}
	}
}

// TestAdmissionAllocatesNothing: observations are made for every write.
func TestAdmissionAllocatesNothing(t *testing.T) {
	m := newMetrics(t)
	a := &admission.Attributes{Operation: admission.Create}
	plugin := func() { m.PluginAsked("A", admission.PhaseAdmit, a, time.Millisecond, false) }
	if n := testing.AllocsPerRun(100, plugin); n != 0 {
		t.Errorf("a plugin costs %v allocations", n)
	}
	step := func() { m.StepDone(admission.PhaseAdmit, a, time.Millisecond, false) }
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("a step costs %v allocations", n)
	}
}

func BenchmarkPluginAsked(b *testing.B) {
	m, a := &Metrics{}, &admission.Attributes{Operation: admission.Create}
	m.admission.init(&registrar{registry: prometheus.NewRegistry()})
	b.ReportAllocs()
	for b.Loop() {
		m.PluginAsked("A", admission.PhaseAdmit, a, time.Microsecond, false)
	}
}

func BenchmarkStepDone(b *testing.B) {
	m, a := &Metrics{}, &admission.Attributes{Operation: admission.Create}
	m.admission.init(&registrar{registry: prometheus.NewRegistry()})
	b.ReportAllocs()
	for b.Loop() {
		m.StepDone(admission.PhaseAdmit, a, time.Microsecond, false)
	}
}

// TestLibraries: /metrics has what upstream's libraries count of admission, and what they count
// besides only once.
func TestLibraries(t *testing.T) {
	if !slices.IsSorted(ofLibraries) {
		t.Error("the list is not sorted")
	}
	m := newMetrics(t)
	for _, name := range ofLibraries {
		if strings.Contains(contract(t, m), name+" ") {
			t.Errorf("%s is one of ours", name)
		}
	}
	exercise(m)
	a := &admission.Attributes{Operation: admission.Create}
	upstream.Metrics.ObserveWebhook(context.Background(), "hook.example.com", time.Millisecond, false, a, "admit", 200)
	upstream.Metrics.ObserveAdmissionStep(context.Background(), time.Millisecond, false, a, "from-the-library")
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	body := w.Body.String()
	for _, want := range []string{
		`apiserver_admission_webhook_admission_duration_seconds_count{name="hook.example.com",operation="CREATE",rejected="false",type="admit"} `,
		`apiserver_admission_step_admission_duration_seconds_count{operation="CREATE",rejected="false",type="admit"} 1`,
	} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("%s is missing", want)
		}
	}
	for _, not := range []string{"from-the-library", "rest_client_"} {
		if strings.Contains(body, not) {
			t.Errorf("/metrics has %s", not)
		}
	}
	if n := strings.Count(body, "# TYPE go_goroutines "); n != 1 {
		t.Errorf("go_goroutines is there %d times", n)
	}
}

var errRefused = errors.New("refused")

// asksAll is a plugin that refuses or not.
type asksAll struct{ err error }

func (asksAll) Handles(*admission.Attributes) bool                      { return true }
func (p asksAll) Validate(context.Context, *admission.Attributes) error { return p.err }

// TestChainObserved: the metrics are an observer of a chain.
func TestChainObserved(t *testing.T) {
	m := newMetrics(t)
	chain := admission.NewChain([]admission.Named{{Name: "A", Plugin: asksAll{}}, {Name: "B", Plugin: asksAll{errRefused}}, {Name: "C", Plugin: asksAll{}}}, m)
	if err := chain.Validate(t.Context(), &admission.Attributes{Operation: admission.Delete}); !errors.Is(err, errRefused) {
		t.Fatal(err)
	}
	find(t, m, "apiserver_admission_controller_admission_duration_seconds", map[string]string{"name": "A", "rejected": "false", "operation": "DELETE"})
	find(t, m, "apiserver_admission_controller_admission_duration_seconds", map[string]string{"name": "B", "rejected": "true", "type": "validate"})
	find(t, m, "apiserver_admission_step_admission_duration_seconds", map[string]string{"rejected": "true", "type": "validate"})
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if strings.Contains(w.Body.String(), `name="C"`) {
		t.Error("C was asked")
	}
}
