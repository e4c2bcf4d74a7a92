package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

const metricsBefore = `# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="pods",verb="GET"} 3
apiserver_request_total{code="504",resource="deployments",verb="PATCH"} 1
# TYPE apiserver_request_duration_seconds histogram
apiserver_request_duration_seconds_bucket{resource="pods",verb="GET",le="0.1"} 2
apiserver_request_duration_seconds_bucket{resource="pods",verb="GET",le="0.2"} 3
apiserver_request_duration_seconds_bucket{resource="pods",verb="GET",le="+Inf"} 3
apiserver_request_duration_seconds_sum{resource="pods",verb="GET"} 0.3
apiserver_request_duration_seconds_count{resource="pods",verb="GET"} 3
# TYPE quorate_raft_term gauge
quorate_raft_term 2
`

const metricsAfter = `# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="pods",verb="GET"} 13
apiserver_request_total{code="504",resource="deployments",verb="PATCH"} 3
apiserver_request_total{code="429",resource="deployments",verb="PATCH"} 5
apiserver_request_total{code="500",resource="pods",verb="LIST"} 1
# TYPE apiserver_request_duration_seconds histogram
apiserver_request_duration_seconds_bucket{resource="pods",verb="GET",le="0.1"} 7
apiserver_request_duration_seconds_bucket{resource="pods",verb="GET",le="0.2"} 13
apiserver_request_duration_seconds_bucket{resource="pods",verb="GET",le="+Inf"} 13
apiserver_request_duration_seconds_sum{resource="pods",verb="GET"} 1.3
apiserver_request_duration_seconds_count{resource="pods",verb="GET"} 13
apiserver_request_duration_seconds_bucket{resource="pods",verb="WATCH",le="0.1"} 0
apiserver_request_duration_seconds_bucket{resource="pods",verb="WATCH",le="+Inf"} 9
apiserver_request_duration_seconds_sum{resource="pods",verb="WATCH"} 900
apiserver_request_duration_seconds_count{resource="pods",verb="WATCH"} 9
# TYPE quorate_raft_term gauge
quorate_raft_term 3
`

func TestCounts(t *testing.T) {
	read := func(texts ...string) counts {
		c := counts{codes: map[string]float64{}, took: map[string]map[float64]float64{}}
		for _, text := range texts {
			must.OK(t, c.add([]byte(text)))
		}
		return c
	}
	before, after := read(metricsBefore, metricsBefore), read(metricsAfter, metricsBefore)
	of, n := after.answers(before, "5")
	if n != 3 || of["504 PATCH deployments"] != 2 || of["500 LIST pods"] != 1 || len(of) != 2 {
		t.Errorf("answers of 5xx: %d, %v", n, of)
	}
	if _, n := after.answers(before, "429"); n != 5 {
		t.Errorf("%d answers of 429, want 5", n)
	}
	if after.terms-before.terms != 1 {
		t.Errorf("terms %v and %v: the highest counts", before.terms, after.terms)
	}
	// Five of ten took up to 0.1 s, five more up to 0.2 s; watches are not waited for.
	for _, c := range []struct{ q, want float64 }{{0.25, 0.05}, {0.5, 0.1}, {0.9, 0.18}, {1, 0.2}} {
		if got := after.quantile(before, "reads", c.q); got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("quantile %v is %v, want %v", c.q, got, c.want)
		}
	}
	if got := after.quantile(before, "writes", 0.5); got != 0 {
		t.Errorf("the median of no requests is %v", got)
	}
	if err := (&counts{}).add([]byte("not metrics {")); err == nil {
		t.Error("what is not metrics is read")
	}
}

func TestKperf(t *testing.T) {
	got, err := loadProfile([]byte("count: 10\nloadProfile:\n  version: 1\n  specs:\n  - rate: 10\n"))
	if want := "specs:\n- rate: 10\nversion: 1\n"; string(got) != want || err != nil {
		t.Errorf("profile %q, %v; want %q", got, err, want)
	}
	for _, bad := range []string{"count: 10\n", "[", ""} {
		if got, err := loadProfile([]byte(bad)); err == nil {
			t.Errorf("profile of %q: %q", bad, got)
		}
	}
	for _, c := range []struct {
		result string
		want   int
		ok     bool
	}{
		{`{"total":5}`, 0, true},
		{`{"total":5,"errorStats":{"http/429":2,"connection":1}}`, 3, true},
		{`{"perSpecResults":[],"aggregated":{"total":5,"errorStats":{"http/500":1}}}`, 1, true},
		{`{"total":4}`, 0, false}, // it has not sent all
		{``, 0, false},
	} {
		if n, err := kperfErrors([]byte(c.result), 5); n != c.want || (err == nil) != c.ok {
			t.Errorf("result %s: %d errors, %v", c.result, n, err)
		}
	}
}

// TestTable: what must not be makes a verdict, of Quorate alone, and medians are of what was measured.
func TestTable(t *testing.T) {
	good := result{Side: ours, Row: "tool load", Run: 1, Seconds: 2, CPU: 1, MemoryMiB: 10, Ms: map[string][]float64{"reads": {1.5, 20}, "patches": {99.94, 2804}}}
	of := func(change func(*result)) result {
		r := good
		change(&r)
		return r
	}
	theirs := of(func(r *result) { r.Side, r.CPU, r.Failed, r.Errors, r.Elections = peer, 4, 7, 7, 7 })
	for _, c := range []struct {
		name    string
		results []result
		bad     string // in the error
		line    string // in the table, without runs of spaces
	}{
		{"all is well", []result{good, theirs}, "", "tool load quorate 1 2.0 1.0 25 % 10 1.5/20 0/0 99.9/2804 0 0 0 0"},
		{"the peer may fail", []result{good, theirs}, "", "tool load kube-apiserver 1 2.0 4.0 10 1.5/20 0/0 99.9/2804 0 7 7 7"},
		{"one has failed", []result{good, of(func(r *result) { r.Run, r.Failed = 2, 1 })}, "run 2: 1 operations failed", "quorate 2 2.0 1.0 10"},
		{"5xx", []result{of(func(r *result) { r.Errors, r.ErrorsOf = 1, map[string]int{"504 PATCH pods": 1} })}, "1 answers of 5xx map[504 PATCH pods:1]", ""},
		{"an election", []result{of(func(r *result) { r.Elections = 1 })}, "1 elections", ""},
		{"not measured", []result{good, of(func(r *result) { r.Run, r.CPU, r.Error = 2, 0, "it hangs" })}, "run 2: it hangs", "quorate 1 2.0 1.0 10"},
		{"the peer was not measured", []result{good, of(func(r *result) { r.Side, r.Error = peer, "it hangs" })}, "", "run 1 of kube-apiserver was not measured: it hangs"},
	} {
		var b bytes.Buffer
		err := write(&b, c.results)
		if (c.bad == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.bad) {
			t.Errorf("%s: %v; want %q", c.name, err, c.bad)
		}
		if said := strings.Join(strings.Fields(b.String()), " "); !strings.Contains(said, c.line) {
			t.Errorf("%s: %s; want %s", c.name, said, c.line)
		}
	}
}

func TestMedian(t *testing.T) {
	of := func(numbers ...float64) float64 {
		var runs []result
		for _, n := range numbers {
			runs = append(runs, result{CPU: n})
		}
		return median(runs, func(r result) float64 { return r.CPU })
	}
	if of() != 0 || of(3) != 3 || of(3, 1) != 1 || of(5, 9, 1) != 5 {
		t.Errorf("medians %v, %v, %v, %v", of(), of(3), of(3, 1), of(5, 9, 1))
	}
}

// TestRun: -table prints results, and says by its error what they show.
func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results")
	for _, c := range []struct {
		results string
		want    error
	}{
		{`{"side":"quorate","row":"a"}{"side":"kube-apiserver","row":"a","failed":1}`, nil},
		{`{"side":"quorate","row":"a","failed":1}`, errFailed},
	} {
		must.OK(t, os.WriteFile(file, []byte(c.results), 0o600))
		if err := run(t.Context(), []string{"-table", file}, io.Discard, io.Discard); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.results, err, c.want)
		}
	}
	if err := run(t.Context(), []string{"-cluster", file}, io.Discard, io.Discard); err == nil || errors.Is(err, errFailed) {
		t.Errorf("servers that are not described: %v", err)
	}
}

// TestInTurns: each connection reaches the next server, whole and in both directions.
func TestInTurns(t *testing.T) {
	var servers []string
	for _, name := range []string{"a", "b"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must.OK(t, err)
		defer l.Close()
		servers = append(servers, l.Addr().String())
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				said, _ := io.ReadAll(c)
				_, _ = c.Write(append(said, name...))
				c.Close()
			}
		}()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	done := make(chan struct{})
	go func() { inTurns(l, servers); close(done) }()
	for _, want := range []string{"xa", "xb", "xa"} {
		c, err := net.Dial("tcp", l.Addr().String())
		must.OK(t, err)
		_, _ = c.Write([]byte("x"))
		_ = c.(*net.TCPConn).CloseWrite()
		if got, err := io.ReadAll(c); string(got) != want || err != nil {
			t.Errorf("answer %q, %v; want %q", got, err, want)
		}
		c.Close()
	}
	l.Close()
	<-done
}
