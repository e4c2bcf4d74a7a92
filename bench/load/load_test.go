package main

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary be the bare server, as the program itself can be.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == bareArgument {
		if err := serveBare(os.Stdin, os.Stdout); err != nil {
			os.Exit(2)
		}
		return
	}
	os.Exit(m.Run())
}

func TestBareServer(t *testing.T) {
	b := newBench(options{workers: 8, objects: 100, namespace: "n"}, &cluster{}, nil)
	s, err := startBare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.conns, b.duration = s.conns, 50*time.Millisecond
	out, err := getter("")(t.Context(), b)
	if err != nil || out.errors > 0 || out.latency.TotalCount() < 8 {
		t.Errorf("%d calls, %d errors, %v, %v", out.latency.TotalCount(), out.errors, out.first, err)
	}
	// An object is too short an answer to a list.
	out, err = lister("", whole)(t.Context(), b)
	if err != nil || out.errors == 0 || out.latency.TotalCount() > 0 {
		t.Errorf("lists: %d calls, %d errors, %v", out.latency.TotalCount(), out.errors, err)
	}
	s.stop()
	if !s.child.ProcessState.Success() {
		t.Errorf("the bare server ended with %v", s.child.ProcessState)
	}
}

func TestObject(t *testing.T) {
	type configMap struct {
		Metadata struct {
			Name, Namespace, ResourceVersion string
			Labels                           map[string]string
		}
		Data map[string]string
	}
	decode := func(raw []byte) (o configMap) {
		t.Helper()
		if err := json.Unmarshal(raw, &o); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		return o
	}
	raw := object("n", 7, 3, "")
	o := decode(raw)
	if o.Metadata.Name != "cm-000007" || len(o.Data) != 1 || len(o.Data["value"]) != valueSize || len(o.Metadata.Labels) != 2 {
		t.Errorf("unexpected object %s", raw)
	}
	if bytes.Contains(raw, versionKey) {
		t.Errorf("a new object has a resourceVersion: %s", raw)
	}
	put := newReplacement("n", 7, 4).at([]byte("123"))
	if got := decode(put); got.Metadata.ResourceVersion != "123" || got.Metadata.Labels["round"] != "4" || got.Data["value"] != o.Data["value"] {
		t.Errorf("unexpected replacement %s", put)
	}
	if got := decode(mergePatch(5)); got.Metadata.Labels["round"] != "5" {
		t.Errorf("unexpected patch %s", mergePatch(5))
	}
	if v, err := versionOf(put); string(v) != "123" || err != nil {
		t.Errorf("version %q, %v", v, err)
	}
	if round, ok := roundOf(put); round != 4 || !ok {
		t.Errorf("round %d, %t", round, ok)
	}
	for _, bad := range []string{"", `{}`, `"resourceVersion":"`, `"resourceVersion":""`, `"round":"`, `"round":"x"`} {
		if v, err := versionOf([]byte(bad)); err == nil {
			t.Errorf("%s has version %q", bad, v)
		}
		if r, ok := roundOf([]byte(bad)); ok {
			t.Errorf("%s has round %d", bad, r)
		}
	}
}

// Every object belongs to exactly one worker, which comes by all of its own.
func TestMine(t *testing.T) {
	for _, c := range []struct{ objects, workers int }{{10, 3}, {32, 32}, {33, 32}, {7, 1}} {
		b := newBench(options{objects: c.objects, workers: c.workers}, &cluster{}, nil)
		owner := make([]int, c.objects)
		for w := range c.workers {
			for n := range 2 * c.objects {
				i := b.mine(w, n)
				if owner[i] != 0 && owner[i] != w+1 {
					t.Fatalf("%+v: object %d belongs to workers %d and %d", c, i, owner[i]-1, w)
				}
				owner[i] = w + 1
			}
		}
		if i := slices.Index(owner, 0); i >= 0 {
			t.Errorf("%+v: nobody writes object %d", c, i)
		}
	}
}

func TestFollow(t *testing.T) {
	event := func(round string) string {
		return `{"type":"MODIFIED","object":{"metadata":{"labels":{"app":"a","round":"` + round + `"}}}}` + "\n"
	}
	latency := newLatency()
	if err := follow(strings.NewReader(event("1")+event("2")), 2, latency); err != nil || latency.TotalCount() != 2 {
		t.Errorf("%d events, %v", latency.TotalCount(), err)
	}
	for _, bad := range []string{"", event("1"), event("1") + event("x"), event("1") + `{"type":"ERROR"}` + "\n"} {
		if err := follow(strings.NewReader(bad), 2, newLatency()); err == nil {
			t.Errorf("no error from %q", bad)
		}
	}
}

func TestFlags(t *testing.T) {
	for _, args := range []string{"-o yaml", "--workers 0", "--objects 3", "extra", "--nonsense"} {
		var discard bytes.Buffer
		if _, err := parse(strings.Fields(args), &discard); err == nil {
			t.Errorf("%s is accepted", args)
		}
	}
	if _, err := choose("get,nonsense"); err == nil {
		t.Error("an unknown scenario is accepted")
	}
	chosen, err := choose("patch,get")
	if err != nil || !slices.Equal(names(chosen), []string{"get", "patch"}) {
		t.Errorf("chosen %v, %v", names(chosen), err)
	}
	for _, s := range scenarios {
		if p := peers[s.name]; p == (figures{}) && strings.HasPrefix(s.name, "create-") {
			continue // measured beside a peer only
		} else if p.Limit == 0 || p.Goal > p.Limit || p.Limit > p.Three {
			t.Errorf("%s has unlikely figures %+v", s.name, p)
		}
	}
}

func TestReport(t *testing.T) {
	done := func(micros ...int64) outcome {
		o := outcome{latency: newLatency(), elapsed: time.Second}
		for _, m := range micros {
			_ = o.latency.RecordValue(m)
		}
		return o
	}
	zero, spent := []time.Duration{0, 0}, []time.Duration{100 * time.Microsecond, 60 * time.Microsecond}
	create := scenarios[0]
	for _, c := range []struct {
		what    string
		ops     outcome
		spent   []time.Duration
		bare    []float64
		verdict string
		passed  bool
	}{
		{"160 µs", done(1000), spent, nil, "goal", true},
		{"320 µs", done(1000), []time.Duration{200 * time.Microsecond, 120 * time.Microsecond}, nil, "within limit", true},
		{"640 µs", done(1000), []time.Duration{400 * time.Microsecond, 240 * time.Microsecond}, nil, "ABOVE LIMIT", false},
		{"640 µs on a machine of half the speed", done(1000), []time.Duration{400 * time.Microsecond, 240 * time.Microsecond}, []float64{40, 58}, "within limit", true},
		{"nothing done", done(), spent, nil, "ERRORS", false},
		{"errors", outcome{latency: done(1000).latency, elapsed: time.Second, errors: 1, first: errNoVersion}, spent, nil, "ERRORS", false},
	} {
		r := &report{Nodes: []string{"n1", "n2"}, Bare: c.bare, Rows: []row{newRow(create, c.ops, zero, c.spent)}}
		if got := r.Rows[0].verdict(r.slower()); got != c.verdict || r.passed(nil) != c.passed {
			t.Errorf("%s: %s, passed %t", c.what, got, r.passed(nil))
		}
		var table, raw bytes.Buffer
		if err := r.writeTable(&table); err != nil || !strings.Contains(table.String(), c.verdict) {
			t.Errorf("%s: %v in\n%s", c.what, err, table.String())
		}
		var back report
		if err := r.writeJSON(&raw); err != nil || json.Unmarshal(raw.Bytes(), &back) != nil || back.Rows[0].CPU != r.Rows[0].CPU {
			t.Errorf("%s: %v in %s", c.what, err, raw.String())
		}
	}
}

// TestAgainst: beside a peer that was measured here the share decides, not the
// figures of another machine.
func TestAgainst(t *testing.T) {
	peer := &report{Rows: []row{{Scenario: "update", Ops: 10, CPU: 1000}, {Scenario: "get", Ops: 10, CPU: 1000}, {Scenario: "list", Ops: 10, CPU: 1000}}}
	ours := func(cpu float64, errors int64) *report {
		return &report{Rows: []row{{Scenario: "update", Title: "update", Ops: 10, CPU: cpu, Errors: errors, Peer: figures{Limit: 1}}, {Scenario: "watch", Ops: 10, CPU: 1e9}}}
	}
	for _, c := range []struct {
		ours   *report
		want   string
		passed bool
	}{
		{ours(200, 0), "goal", true}, {ours(201, 0), "within limit", true}, {ours(500, 0), "within limit", true},
		{ours(501, 0), "ABOVE LIMIT", false}, {ours(100, 1), "ERRORS", false},
	} {
		var b strings.Builder
		if err := c.ours.writeAgainst(&b, peer); err != nil {
			t.Fatal(err)
		}
		if got := c.ours.passed(peer); got != c.passed || !strings.Contains(b.String(), c.want) {
			t.Errorf("passed %v, want %v and %q in\n%s", got, c.passed, c.want, b.String())
		}
		if strings.Contains(b.String(), "watch") {
			t.Errorf("a row that the peer lacks:\n%s", b.String())
		}
	}
}
