package burst

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/internal/must"
)

// serve is a burst at a server of the test.
func serve(t *testing.T, o Options, h http.HandlerFunc) *Burst {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	target := client.Cluster{Nodes: []client.Node{{Name: "n1", API: s.URL}}, TLS: &tls.Config{RootCAs: roots}}
	b := newBurst(target, o)
	t.Cleanup(func() { _ = client.CloseLinks(b.admin.Links) })
	return b
}

// TestLost: what was acknowledged and is not there is found, in the Deployments and in the events.
func TestLost(t *testing.T) {
	for name, c := range map[string]struct {
		list, events, want string
	}{
		"nothing":       {`"resourceVersion":"9","annotations":{"burst":"1-2"}`, "5 9", ""},
		"a later write": {`"resourceVersion":"11","annotations":{"burst":"7-7"}`, "5 9 11", ""},
		"an old object": {`"resourceVersion":"5","annotations":{"burst":"1-1"}`, "5 9", `"1-1" at revision 5, and "1-2" was acknowledged at 9`},
		"another value": {`"resourceVersion":"9","annotations":{"burst":"1-1"}`, "5 9", `"1-1" at revision 9, and "1-2"`},
		"no object":     {``, "5 9", `d-0 is gone`},
		"an event":      {`"resourceVersion":"9","annotations":{"burst":"1-2"}`, "9", `n1 lacks 1 event`},
	} {
		t.Run(name, func(t *testing.T) {
			b := serve(t, DefaultOptions(), func(w http.ResponseWriter, _ *http.Request) {
				items := ""
				if c.list != "" {
					items = `{"metadata":{"name":"d-0",` + c.list + `}}`
				}
				fmt.Fprintf(w, `{"items":[%s]}`, items)
			})
			b.watches = []*watch{{seen: map[uint64]struct{}{}, whole: make(chan struct{})}}
			b.watches[0].event([]byte(`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5"}}}`))
			must.OK(t, b.awaitBegun(t.Context()))
			for revision := range strings.FieldsSeq(c.events) {
				b.watches[0].event([]byte(`{"object":{"metadata":{"resourceVersion":"` + revision + `"}}}`))
			}
			for i, revision := range []int{5, 9} {
				must.OK(t, b.acknowledged("d-0", fmt.Sprintf("1-%d", i+1), fmt.Appendf(nil, `{"resourceVersion":"%d"}`, revision), time.Millisecond))
			}
			lost, err := b.lost(t.Context())
			if err != nil || (len(lost) > 0) != (c.want != "") || len(lost) > 0 && !strings.Contains(lost[0], c.want) {
				t.Errorf("%v %v, want %q", lost, err, c.want)
			}
		})
	}
}

// TestAnswers: what a patcher makes of the answers.
func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		codes string // of the answers, the last one again and again
		want  string // of the counts
		lost  int64
	}{
		"success":                  {"200", "200:1", 0},
		"refused, and then served": {"429 429 200", "200:1 429:2", 0},
		"refused for ever":         {"429", "429:11 given up:1", 1},
		"of unknown outcome":       {"504", "504:1", 1},
		"a conflict":               {"409", "409:1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			codes := strings.Fields(c.codes)
			b := serve(t, DefaultOptions(), func(w http.ResponseWriter, r *http.Request) {
				code := codes[0]
				codes = codes[min(1, len(codes)-1):]
				var n int
				_, _ = fmt.Sscan(code, &n)
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(n)
				fmt.Fprint(w, `{"metadata":{"resourceVersion":"5"}}`)
			})
			p := newPatcher(b, 4, b.admin.Links[0])
			var answer bytes.Buffer
			err := p.send(t.Context(), []byte("{}"), &answer)
			if (err == nil) != (codes[0] == "200") {
				t.Error(err)
			}
			var got []string
			for _, code := range []string{"200", "409", "429", "504", "given up", "none"} {
				if n := b.answers[code]; n > 0 {
					got = append(got, fmt.Sprintf("%s:%d", code, n))
				}
			}
			r := Report{Answers: b.answers}
			if fmt.Sprint(got) != "["+c.want+"]" || r.Lost() != c.lost || r.Failed() == (b.answers["200"] > 0) {
				t.Errorf("%v, %d lost, failed %v; want %s and %d", got, r.Lost(), r.Failed(), c.want, c.lost)
			}
		})
	}
}

// TestFailed: each of what must not happen makes a report a failure.
func TestFailed(t *testing.T) {
	good := Report{Answers: map[string]int64{"200": 9, "409": 1, "429": 3}, Others: []OtherReport{{Name: "get"}}}
	if good.Failed() {
		t.Error("nothing failed")
	}
	for name, change := range map[string]func(*Report){
		"an election":    func(r *Report) { r.Elections = 1 },
		"a cut watch":    func(r *Report) { r.WatchesCut = 1 },
		"a lost write":   func(r *Report) { r.LostWrites = []string{"one"} },
		"no success":     func(r *Report) { r.Answers = map[string]int64{"409": 5} },
		"a refusal":      func(r *Report) { r.Answers = map[string]int64{"200": 5, "403": 1} },
		"no answer":      func(r *Report) { r.Answers = map[string]int64{"none": 1} },
		"a strange one":  func(r *Report) { r.Answers = map[string]int64{"strange": 1} },
		"another client": func(r *Report) { r.Others = []OtherReport{{Errors: 1}} },
	} {
		bad := good
		change(&bad)
		if !bad.Failed() {
			t.Errorf("%s is no failure", name)
		}
		if err := errors.Join(bad.Doc().WriteTable(io.Discard), json.NewEncoder(io.Discard).Encode(&bad)); err != nil {
			t.Error(err)
		}
	}
}

// TestDelay reads the histogram of two nodes before and after.
func TestDelay(t *testing.T) {
	metrics := func(counts ...int) []byte {
		var b bytes.Buffer
		for i, bound := range []string{"0.001", "0.1", "+Inf"} {
			fmt.Fprintf(&b, "quorate_raft_scheduling_delay_seconds_bucket{le=%q} %d\n", bound, counts[i])
		}
		fmt.Fprintf(&b, "quorate_raft_scheduling_delay_seconds_sum %d\nquorate_raft_term 4\n", counts[2])
		return b.Bytes()
	}
	var before, after cost
	before.delays, after.delays = map[float64]float64{}, map[float64]float64{}
	before.add(client.ParseMetrics(metrics(5, 5, 5)))
	after.add(client.ParseMetrics(metrics(55, 95, 100)))
	after.add(client.ParseMetrics(metrics(0, 0, 5)))
	got := delayBetween(before, after)
	if want := (Delay{Count: 100, MeanMs: 1000, P50Ms: 1, P99Ms: beyond * 1000, MaxMs: beyond * 1000}); got != want || after.term != 4 {
		t.Errorf("%+v, want %+v; term %v", got, want, after.term)
	}
	if got := delayBetween(cost{}, cost{}); got != (Delay{}) {
		t.Errorf("of nothing: %+v", got)
	}
}

// TestBodies: each kind of patch is one, and has the value.
func TestBodies(t *testing.T) {
	for name, k := range kinds {
		body := k.body("d-1", "4-7", 7)
		var v any
		if err := json.Unmarshal(body, &v); err != nil || !bytes.Contains(body, []byte(`"4-7"`)) {
			t.Errorf("%s: %v: %s", name, err, body)
		}
	}
	objects := map[string]map[int]bool{} // and the nodes of their clients
	b := &Burst{opt: DefaultOptions()}
	for number := range 900 {
		p := newPatcher(b, number, nil)
		if objects[p.object] == nil {
			objects[p.object] = map[int]bool{}
		}
		objects[p.object][number%3] = true
	}
	for name, nodes := range objects {
		if len(nodes) != 3 {
			t.Errorf("the clients of %s are at %d nodes", name, len(nodes))
		}
	}
	if len(objects) != 300 {
		t.Errorf("%d objects", len(objects))
	}
}

func TestValidate(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"--duration":  func(o *Options) { o.Duration = 0 },
		"--clients 0": func(o *Options) { o.Clients = 0 },
		"--objects 0": func(o *Options) { o.Objects = 0 },
		"--user":      func(o *Options) { o.User = "nobody" },
		`"put"`:       func(o *Options) { o.Patches = []string{"put"} },
		"--patches":   func(o *Options) { o.Patches = nil },
		"--timeout":   func(o *Options) { o.Timeout = 0 },
	} {
		o := DefaultOptions()
		must.OK(t, o.Validate())
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
