package metrics

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	compat "github.com/hashicorp/go-metrics/compat"
	dto "github.com/prometheus/client_model/go"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/conversion"
	"github.com/quorate/quorate/apiserver/wire/request"
	"github.com/quorate/quorate/internal/must"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

var update = flag.Bool("update", false, "rewrite testdata")

func newMetrics(t *testing.T) *Metrics {
	t.Helper()
	m, err := New(version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.3+quorate-test"}, "test")
	must.OK(t, err)
	return m
}

var pods = request.Kind{Verb: "list", Version: "v1", Resource: "pods", Scope: "namespace", Component: "apiserver"}

// TestGone: a resource that has gone leaves no series, and what is there beside it stays.
func TestGone(t *testing.T) {
	m := newMetrics(t)
	text := func() string {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Body.String()
	}
	use := func(gvr schema.GroupVersionResource) {
		for _, verb := range []string{"get", "list", "watch", "create", "apply"} {
			k := request.Kind{Verb: verb, Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource, Scope: "cluster", Component: "apiserver", LongRunning: verb == "watch"}
			m.WatchEvents(&k, 2, 4000)
			for _, code := range []int{200, 429} {
				m.RequestStarted(&k)
				m.RequestDone(&k, request.End{Code: code})
			}
			m.WriteRetried(&k)
			m.Panicked(&k)
			m.Deprecated(&k, "1.37")
		}
		m.StoreOperation("create", gvr.Group, gvr.Resource, time.Millisecond)
		m.Converted(&conversion.Call{Definition: gvr.GroupResource().String(), From: "v1", To: "v2"})
	}
	v1, v2 := schema.GroupVersionResource{Group: "g.example", Version: "v1", Resource: "as"}, schema.GroupVersionResource{Group: "g.example", Version: "v2", Resource: "as"}
	other := schema.GroupVersionResource{Group: "g.example", Version: "v1", Resource: "bs"}
	use(other)
	before := strings.Count(text(), "\n")
	use(v1)
	withOne := strings.Count(text(), "\n")
	use(v2)
	watch := request.Kind{Verb: "watch", Group: v2.Group, Version: v2.Version, Resource: v2.Resource, Scope: "cluster", Component: "apiserver", LongRunning: true}
	m.RequestStarted(&watch)
	m.Gone(v2, false)
	if got := text(); !strings.Contains(got, `,verb="WATCH",version="v2"} 1`) {
		t.Error("the series of an open watch is dropped")
	}
	m.RequestDone(&watch, request.End{Code: 200})
	m.Gone(v2, false)
	if got := text(); strings.Contains(got, `,version="v2"`) || strings.Count(got, "\n") != withOne {
		t.Errorf("a version has gone: %d lines, want %d", strings.Count(got, "\n"), withOne)
	}
	m.Gone(v1, true)
	if got := text(); strings.Contains(got, `"as"`) || strings.Contains(got, `"as.g.example"`) || strings.Count(got, "\n") != before {
		t.Errorf("the resource has gone: %d lines, want %d", strings.Count(got, "\n"), before)
	}
	use(v1)
	if got := text(); strings.Count(got, "\n") != withOne {
		t.Errorf("it is back: %d lines, want %d", strings.Count(got, "\n"), withOne)
	}
}

// exercise touches every family once.
func exercise(m *Metrics) {
	watch := request.Kind{Verb: "watch", Version: "v1", Resource: "pods", Scope: "cluster", Component: "apiserver", LongRunning: true}
	for _, k := range []*request.Kind{&pods, &watch} {
		m.RequestStarted(k)
		m.RequestDone(k, request.End{Code: 200, Duration: 20 * time.Millisecond, ResponseBytes: 5000})
	}
	m.RequestDone(&pods, request.End{Code: 429})
	m.RequestRefused(true, "requests")
	m.InFlight(true, 3, 1000)
	m.WatchEvents(&watch, 2, 4000)
	m.WriteRetried(&pods)
	m.Panicked(&pods)
	m.Converted(&conversion.Call{Definition: "routes.example.com", From: "v1", To: "v1beta1", Duration: time.Millisecond})
	m.Converted(&conversion.Call{Definition: "routes.example.com", From: "v1", To: "v1beta1", Failure: "conversion_webhook_call_failure"})
	m.Deprecated(&pods, "1.37")
	m.Feature("WatchList", "BETA", true)
	m.Served("abc", 3)
	m.AuditLevel("Metadata")
	m.AuditEvent()
	m.AuditLost("full")
	m.SetStore(func() StoreStats {
		return StoreStats{ClusterID: "c1", HasLeader: true, Commit: 12, Applied: 10, DBBytes: 4096,
			Namespaces: []NamespaceStats{{Name: "n", Bytes: 1}}, Tables: []TableStats{{Group: "apps", Resource: "deployments", Objects: 7}}}
	})
	m.LogWrite(time.Millisecond)
	m.BackendCommit(time.Millisecond)
	m.StoreOperation("create", "", "pods", time.Millisecond)
	p := m.Peer("n2")
	p.Sent(10)
	p.Received(10)
	p.Failed()
	m.Read("any", "follower", time.Second, 3)
	m.ReadIndexWait(time.Millisecond)
	m.ReadWait(time.Millisecond, time.Millisecond)
	m.PeerRoundTrip("n2", time.Millisecond)
	m.ClientCertificate(time.Hour)
	m.Authenticated("success")
	m.Authorized("allowed")
	m.HealthCheck("ping", "livez", true)
	create := &admission.Attributes{Operation: admission.Create}
	m.AdmissionPlugins("abc", 3)
	m.PluginAsked("LimitRanger", admission.PhaseAdmit, create, time.Millisecond, false)
	m.StepDone(admission.PhaseAdmit, create, time.Millisecond, false)
	m.ControllerRuns("namespace-controller", true)
	m.ControllerFailed("namespace-controller")
}

// contract describes every family: name, type, labels, bucket bounds.
func contract(t *testing.T, m *Metrics) string {
	t.Helper()
	families, err := m.registry.Gather()
	must.OK(t, err)
	var lines []string
	for _, f := range families {
		// What the Go and process collectors have depends on platform and Go
		// version; the dashboards' own are checked below.
		if strings.HasPrefix(f.GetName(), "go_") || strings.HasPrefix(f.GetName(), "process_") || strings.HasPrefix(f.GetName(), "promhttp_") {
			continue
		}
		x := f.GetMetric()[0]
		var labels, bounds []string
		for _, l := range x.GetLabel() {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		for _, b := range x.GetHistogram().GetBucket() {
			bounds = append(bounds, strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64))
		}
		line := fmt.Sprintf("%s %s {%s}", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ","))
		if len(bounds) > 0 {
			line += " " + strings.Join(bounds, " ")
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestContract(t *testing.T) {
	m := newMetrics(t)
	exercise(m)
	got := contract(t, m)
	const file = "testdata/contract.txt"
	if *update {
		must.OK(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must.OK(t, err)
	if got != string(want) {
		t.Errorf("the families that function exercise touches differ from %s; if that is meant: go test ./apiserver/observe/metrics -update\n%s", file, cmp.Diff(string(want), got))
	}
}

func TestProcessAndGoCollectors(t *testing.T) {
	w := httptest.NewRecorder()
	newMetrics(t).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, name := range []string{"process_resident_memory_bytes", "process_cpu_seconds_total", "go_goroutines"} {
		if !strings.Contains(w.Body.String(), "\n"+name+" ") {
			t.Errorf("%s is missing", name)
		}
	}
}

func find(t *testing.T, m *Metrics, name string, labels map[string]string) *dto.Metric {
	t.Helper()
	families, err := m.registry.Gather()
	must.OK(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	next:
		for _, x := range f.GetMetric() {
			for _, l := range x.GetLabel() {
				if want, ok := labels[l.GetName()]; ok && want != l.GetValue() {
					continue next
				}
			}
			return x
		}
	}
	t.Fatalf("no %s with %v", name, labels)
	return nil
}

func TestRequests(t *testing.T) {
	m := newMetrics(t)
	k := pods
	k.Verb, k.DryRun = "create", true
	m.RequestStarted(&k)
	m.RequestDone(&k, request.End{Code: 201, Duration: 1100 * time.Millisecond})
	m.RequestDone(&k, request.End{Code: 201})
	m.RequestDone(&k, request.End{}) // an answer without WriteHeader
	if got := find(t, m, "apiserver_request_total", map[string]string{"verb": "POST", "dry_run": "All", "code": "201"}).GetCounter().GetValue(); got != 2 {
		t.Errorf("201: %v", got)
	}
	if got := find(t, m, "apiserver_request_total", map[string]string{"verb": "POST", "code": "200"}).GetCounter().GetValue(); got != 1 {
		t.Errorf("200: %v", got)
	}
	if got := find(t, m, "apiserver_request_duration_seconds", map[string]string{"verb": "POST"}).GetHistogram().GetSampleCount(); got != 3 {
		t.Errorf("durations: %v", got)
	}
	k = pods
	k.Verb = "BREW"
	m.RequestDone(&k, request.End{Code: 405})
	find(t, m, "apiserver_request_total", map[string]string{"verb": "other", "code": "405"})
}

func TestLongRunning(t *testing.T) {
	m := newMetrics(t)
	k := request.Kind{Verb: "watch", Resource: "pods", LongRunning: true}
	m.RequestStarted(&k)
	m.RequestStarted(&k)
	m.RequestDone(&k, request.End{Code: 200})
	if got := find(t, m, "apiserver_longrunning_requests", nil).GetGauge().GetValue(); got != 1 {
		t.Errorf("open: %v", got)
	}
}

func TestInFlightIsThePeakSinceTheLastScrape(t *testing.T) {
	m := newMetrics(t)
	m.InFlight(false, 7, 0)
	m.InFlight(false, 2, 0)
	labels := map[string]string{"request_kind": "readOnly"}
	for i, want := range []float64{7, 2} {
		if got := find(t, m, "apiserver_current_inflight_requests", labels).GetGauge().GetValue(); got != want {
			t.Errorf("scrape %d: %v, want %v", i, got, want)
		}
	}
}

func TestLagNeverWrapsAround(t *testing.T) {
	m := newMetrics(t)
	m.SetStore(func() StoreStats { return StoreStats{Commit: 5, Applied: 6} })
	if got := find(t, m, "quorate_follower_lag_entries", nil).GetGauge().GetValue(); got != 0 {
		t.Errorf("lag %v", got)
	}
}

func TestHandshakeErrors(t *testing.T) {
	m := newMetrics(t)
	l := m.ErrorLog(slog.New(slog.DiscardHandler))
	l.Print("http: TLS handshake error from 127.0.0.1:1: EOF")
	l.Print("http: something else")
	if got := find(t, m, "apiserver_tls_handshake_errors_total", nil).GetCounter().GetValue(); got != 1 {
		t.Errorf("%v", got)
	}
}

// TestBrokenConnectionsDoNotFillTheLog: anybody can break as many as he can open.
func TestBrokenConnectionsDoNotFillTheLog(t *testing.T) {
	var said bytes.Buffer
	l := newMetrics(t).ErrorLog(slog.New(slog.NewTextHandler(&said, nil)))
	for range 1000 {
		l.Print("http2: server: error reading preface from client 127.0.0.1:1: EOF")
	}
	if lines := strings.Count(said.String(), "\n"); lines == 0 || lines > 60 {
		t.Errorf("%d lines for 1000 connections", lines)
	}
}

func TestRaftSink(t *testing.T) {
	m := newMetrics(t)
	must.OK(t, m.InstallRaftSink())
	compat.IncrCounter([]string{"raft", "transition", "heartbeat_timeout"}, 3)
	compat.IncrCounter([]string{"raft", "apply"}, 1) // per write: not passed on
	compat.SetGauge([]string{"raft", "peers"}, 2)
	if got := find(t, m, "raft_transition_heartbeat_timeout", nil).GetCounter().GetValue(); got != 3 {
		t.Errorf("raft_transition_heartbeat_timeout %v", got)
	}
	find(t, m, "raft_peers", nil)
}

// One goroutine per verb and scrapes in between; run with -race.
func TestConcurrentUse(t *testing.T) {
	m := newMetrics(t)
	var wg sync.WaitGroup
	for _, verb := range []string{"get", "list", "create", "update"} {
		wg.Go(func() {
			for code := 200; code < 300; code++ {
				k := pods
				k.Verb, k.Subresource = verb, strconv.Itoa(code%10)
				m.RequestStarted(&k)
				m.RequestDone(&k, request.End{Code: code})
			}
		})
	}
	wg.Go(func() {
		for range 5 {
			if _, err := m.registry.Gather(); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	var total float64
	families, err := m.registry.Gather()
	must.OK(t, err)
	for _, f := range families {
		if f.GetName() == "apiserver_request_total" {
			for _, x := range f.GetMetric() {
				total += x.GetCounter().GetValue()
			}
		}
	}
	if total != 400 {
		t.Errorf("counted %v requests, want 400", total)
	}
}

func TestRequestDoneDoesNotAllocate(t *testing.T) {
	m := newMetrics(t)
	k := pods
	end := request.End{Code: 200, Duration: time.Millisecond, ResponseBytes: 100}
	m.RequestDone(&k, end)
	if n := testing.AllocsPerRun(100, func() { m.RequestStarted(&k); m.RequestDone(&k, end) }); n > 0 {
		t.Errorf("%v allocations per request", n)
	}
}

func BenchmarkRequestDone(b *testing.B) {
	m, err := New(version.Info{}, "test")
	if err != nil {
		b.Fatal(err)
	}
	k := pods
	end := request.End{Code: 200, Duration: time.Millisecond, ResponseBytes: 100}
	for b.Loop() {
		m.RequestStarted(&k)
		m.RequestDone(&k, end)
	}
}

func TestHidden(t *testing.T) {
	for version, ok := range map[string]bool{"": true, "1.35": true, "1.34": false, "1.36": false, "v1.35": false, "x": false} {
		if err := CheckShowHidden(version, 36); (err == nil) != ok {
			t.Errorf("%q: %v", version, err)
		}
	}
	const family = "apiserver_storage_db_total_size_in_bytes"
	for _, show := range []bool{false, true} {
		m := newMetrics(t)
		m.SetStore(func() StoreStats { return StoreStats{DBBytes: 7} })
		if show {
			must.OK(t, m.ShowHidden())
		}
		families, err := m.Registry().Gather()
		must.OK(t, err)
		found := false
		for _, f := range families {
			if f.GetName() == family {
				found = f.GetMetric()[0].GetGauge().GetValue() == 7
			}
		}
		if found != show {
			t.Errorf("shown: %v, found: %v", show, found)
		}
	}
}
