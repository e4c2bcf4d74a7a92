package metrics

import (
	"cmp"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quorate/quorate/apiserver/wire/request"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type requestSeries struct {
	total, terminations      *prometheus.CounterVec
	duration, sli, sizes     *prometheus.HistogramVec
	longRunning              *prometheus.GaugeVec
	watchEvents              *prometheus.CounterVec
	watchSizes               *sizesVec
	refused, retries, panics *prometheus.CounterVec
	turns                    prometheus.Observer
	slots                    prometheus.Observer
	mu                       sync.Mutex // guards the replacement of kinds
	kinds                    atomic.Pointer[map[request.Kind]*kindSeries]
}

// kindSeries are the series of one kind of request, resolved once.
type kindSeries struct {
	labels        []string // verb, group, version, resource, subresource, scope, component
	dryRun        string
	duration, sli prometheus.Observer
	size          prometheus.Observer // nil unless get or list
	longRunning   prometheus.Gauge    // nil unless long-running
	open          atomic.Int64        // long-running requests
	watchEvents   prometheus.Counter  // nil unless watch
	watchSizes    *sizes
	mu            sync.Mutex // guards the replacement of codes
	codes         atomic.Pointer[[]codeSeries]
}

type codeSeries struct {
	code         int
	total        prometheus.Counter
	terminations prometheus.Counter // nil unless the server ended the request in self-defence
}

var (
	sevenLabels  = []string{"verb", "group", "version", "resource", "subresource", "scope", "component"}
	dryRunLabels = []string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"}
	withCode     = func(labels []string) []string { return append(append([]string(nil), labels...), "code") }
	threeLabels  = []string{"group", "version", "resource"}
	// reportedMethods are those of requests for something else than objects, and what is told
	// apart besides the verbs of objects.
	reportedMethods = map[string]string{
		"post": "POST", "put": "PUT", "apply": "APPLY", "connect": "CONNECT", "head": "GET",
	}
)

func (s *requestSeries) init(r *registrar) {
	s.total = r.counter("apiserver_request_total", "Requests by verb, dry run, resource, scope and response code.", withCode(dryRunLabels)...)
	s.duration = r.histogram("apiserver_request_duration_seconds", "Time from a request's arrival to the end of its answer, in seconds.", requestBuckets, dryRunLabels...)
	s.sli = r.histogram("apiserver_request_sli_duration_seconds", "Time that the server itself is responsible for, in seconds.", sliBuckets, sevenLabels...)
	s.sizes = r.histogram("apiserver_response_sizes", "Bytes of the answers to reads.", responseBuckets, sevenLabels...)
	s.longRunning = r.gauge("apiserver_longrunning_requests", "Long-running requests that are open now.", sevenLabels...)
	s.terminations = r.counter("apiserver_request_terminations_total", "Requests that the server ended in self-defence.", withCode(sevenLabels)...)
	s.watchEvents = r.counter("apiserver_watch_events_total", "Events sent to watches.", threeLabels...)
	s.watchSizes = r.sizes("apiserver_watch_events_sizes", "Bytes of events sent to watches.", eventBuckets, threeLabels...)
	s.refused = r.counter("quorate_requests_refused_total", "Requests that were not admitted, by reason.", "request_kind", "reason")
	s.retries = r.counter("quorate_write_retries_total", "Writes computed again after losing a race.", "group", "resource")
	s.panics = r.counter("quorate_panics_total", "Panics contained in requests.", "verb", "group", "resource")
	s.turns = r.histogram("quorate_bulk_write_wait_seconds",
		"Time that a large part of an answer waited for its turn to be written, of those that had to.", turnBuckets).WithLabelValues()
	s.slots = r.histogram("quorate_compute_wait_seconds", "Time that requests waited for their turn to compute, of those that had to.", turnBuckets).WithLabelValues()
	s.kinds.Store(&map[request.Kind]*kindSeries{})
}

// WaitedForTurn is told how long a large part of an answer has waited for its turn.
func (m *Metrics) WaitedForTurn(d time.Duration) { m.requests.turns.Observe(d.Seconds()) }

// WaitedForSlot implements apiserver.Observer.
func (m *Metrics) WaitedForSlot(d time.Duration) { m.requests.slots.Observe(d.Seconds()) }

// of finds the series of a kind: one look-up in a map that is replaced, never
// changed, when a new kind appears. Kinds are few: the server leaves out names
// that it does not know.
func (s *requestSeries) of(k *request.Kind) *kindSeries {
	if x := (*s.kinds.Load())[*k]; x != nil {
		return x
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.kinds.Load()
	if x := old[*k]; x != nil {
		return x
	}
	x := s.resolve(k)
	next := make(map[request.Kind]*kindSeries, len(old)+1)
	for key, value := range old {
		next[key] = value
	}
	// The caller's strings may be parts of a request's path.
	next[cloned(k)] = x
	s.kinds.Store(&next)
	return x
}

func cloned(k *request.Kind) request.Kind {
	c := *k
	for _, p := range []*string{&c.Verb, &c.Group, &c.Version, &c.Resource, &c.Subresource, &c.Scope, &c.Component} {
		*p = strings.Clone(*p)
	}
	return c
}

func (s *requestSeries) resolve(k *request.Kind) *kindSeries {
	c := cloned(k)
	verb := cmp.Or(request.Reported(c.Verb), reportedMethods[c.Verb], "other")
	x := &kindSeries{labels: []string{verb, c.Group, c.Version, c.Resource, c.Subresource, c.Scope, c.Component}}
	if c.DryRun {
		x.dryRun = "All"
	}
	x.duration = s.duration.WithLabelValues(x.withDryRun()...)
	x.sli = s.sli.WithLabelValues(x.labels...)
	if verb == "GET" || verb == "LIST" {
		x.size = s.sizes.WithLabelValues(x.labels...)
	}
	if c.LongRunning {
		x.longRunning = s.longRunning.WithLabelValues(x.labels...)
	}
	if verb == "WATCH" {
		x.watchEvents = s.watchEvents.WithLabelValues(c.Group, c.Version, c.Resource)
		x.watchSizes = s.watchSizes.with(c.Group, c.Version, c.Resource)
	}
	x.codes.Store(&[]codeSeries{})
	return x
}

// withDryRun is the labels with dry_run in its place, and room for the code.
func (x *kindSeries) withDryRun() []string {
	out := make([]string, 0, len(x.labels)+2)
	out = append(out, x.labels[0], x.dryRun)
	return append(out, x.labels[1:]...)
}

func (s *requestSeries) code(x *kindSeries, code int) *codeSeries {
	find := func(codes []codeSeries) *codeSeries {
		for i := range codes {
			if codes[i].code == code {
				return &codes[i]
			}
		}
		return nil
	}
	if c := find(*x.codes.Load()); c != nil {
		return c
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	old := *x.codes.Load()
	if c := find(old); c != nil {
		return c
	}
	text := strconv.Itoa(code)
	c := codeSeries{code: code, total: s.total.WithLabelValues(append(x.withDryRun(), text)...)}
	if code == http.StatusTooManyRequests {
		c.terminations = s.terminations.WithLabelValues(append(append([]string(nil), x.labels...), text)...)
	}
	next := append(append([]codeSeries(nil), old...), c)
	x.codes.Store(&next)
	return &next[len(next)-1]
}

// RequestStarted counts an open long-running request.
func (m *Metrics) RequestStarted(k *request.Kind) {
	if k.LongRunning {
		x := m.requests.of(k)
		x.open.Add(1)
		x.longRunning.Inc()
	}
}

// RequestDone counts a request that ended. A code outside 100..599 counts as 200,
// that of an answer without an explicit code.
func (m *Metrics) RequestDone(k *request.Kind, e request.End) {
	x := m.requests.of(k)
	if k.LongRunning {
		x.open.Add(-1)
		x.longRunning.Dec()
	}
	if e.Code < 100 || e.Code > 599 {
		e.Code = http.StatusOK
	}
	c := m.requests.code(x, e.Code)
	c.total.Inc()
	if c.terminations != nil {
		c.terminations.Inc()
	}
	seconds := e.Duration.Seconds()
	x.duration.Observe(seconds)
	x.sli.Observe(seconds)
	if x.size != nil {
		x.size.Observe(float64(e.ResponseBytes))
	}
}

// Gone drops the series of a resource that is not served any more, as apiserver.Observer has it: definitions come and go,
// and each would leave some 280 series for good. While a watch is still open, nothing is dropped: its end would begin a
// series below zero.
func (m *Metrics) Gone(gvr schema.GroupVersionResource, last bool) {
	s := &m.requests
	s.mu.Lock()
	next, open := maps.Clone(*s.kinds.Load()), int64(0)
	maps.DeleteFunc(next, func(k request.Kind, x *kindSeries) bool {
		of := k.Group == gvr.Group && k.Version == gvr.Version && k.Resource == gvr.Resource
		if of {
			open += x.open.Load()
		}
		return of
	})
	if open > 0 {
		s.mu.Unlock()
		return
	}
	s.kinds.Store(&next)
	s.mu.Unlock()
	version := prometheus.Labels{"group": gvr.Group, "version": gvr.Version, "resource": gvr.Resource}
	for _, v := range []interface{ DeletePartialMatch(prometheus.Labels) int }{
		s.total, s.duration, s.sli, s.sizes, s.longRunning, s.terminations, s.watchEvents, m.lifecycle.deprecated,
	} {
		v.DeletePartialMatch(version)
	}
	s.watchSizes.drop(gvr.Group, gvr.Version, gvr.Resource)
	if !last {
		return
	}
	resource := prometheus.Labels{"group": gvr.Group, "resource": gvr.Resource}
	m.store.operations.Range(func(key, _ any) bool {
		if k := key.(operationKey); k.group == gvr.Group && k.resource == gvr.Resource {
			m.store.operations.Delete(key)
		}
		return true
	})
	for _, v := range []interface{ DeletePartialMatch(prometheus.Labels) int }{s.retries, s.panics, m.store.requestTotal, m.store.requestTime} {
		v.DeletePartialMatch(resource)
	}
	m.conversions.versions.DeletePartialMatch(prometheus.Labels{"crd_name": gvr.GroupResource().String()})
}

// RequestRefused counts a request that was not admitted. Reasons are a closed set.
func (m *Metrics) RequestRefused(mutating bool, reason string) {
	m.requests.refused.WithLabelValues(requestKind(mutating), reason).Inc()
}

// WatchEvents counts the events of one flush; each is taken to be of average size.
func (m *Metrics) WatchEvents(k *request.Kind, events int, bytes int64) {
	if events <= 0 {
		return
	}
	x := m.requests.of(k)
	if x.watchEvents == nil {
		return
	}
	x.watchEvents.Add(float64(events))
	x.watchSizes.add(events, bytes)
}

// WriteRetried counts a write that is computed again.
func (m *Metrics) WriteRetried(k *request.Kind) {
	m.requests.retries.WithLabelValues(k.Group, k.Resource).Inc()
}

// Panicked counts a contained panic; the request also counts as terminated.
func (m *Metrics) Panicked(k *request.Kind) {
	x := m.requests.of(k)
	m.requests.panics.WithLabelValues(x.labels[0], x.labels[1], x.labels[3]).Inc()
	m.requests.terminations.WithLabelValues(append(append([]string(nil), x.labels...), "500")...).Inc()
}

func requestKind(mutating bool) string {
	if mutating {
		return "mutating"
	}
	return "readOnly"
}
