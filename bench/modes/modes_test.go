package modes

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Options)
		want   string // "" if it is good
	}{
		{"defaults", func(*Options) {}, ""},
		{"half load needs no rate", func(o *Options) { o.Load, o.Rate = 0.5, 0 }, ""},
		{"too short", func(o *Options) { o.Duration = time.Millisecond }, "duration 1ms"},
		{"for ever", func(o *Options) { o.Duration = 2 * time.Hour }, "duration 2h"},
		{"no rate", func(o *Options) { o.Rate = 0 }, "rate 0"},
		{"not a rate", func(o *Options) { o.Rate = math.NaN() }, "rate NaN"},
		{"full load", func(o *Options) { o.Load = 1 }, "load 1"},
		{"no writes", func(o *Options) { o.Writes = 0 }, "writes 0"},
		{"more writers than objects", func(o *Options) { o.Writes, o.Objects = 1000, 10 }, "objects 10: must be 40"},
		{"too many objects", func(o *Options) { o.Objects = 1e6 }, "objects 1000000"},
		{"no value", func(o *Options) { o.Size = 0 }, "size 0"},
		{"a list that no list can be", func(o *Options) { o.Objects, o.Size = 10000, 500<<10 }, "a list would have more"},
		{"no modes", func(o *Options) { o.Modes = nil }, "no modes"},
		{"another mode", func(o *Options) { o.Modes = []Mode{"latest"} }, `there is no mode "latest"`},
		{"no nodes", func(o *Options) { o.Nodes = nil }, "no nodes"},
		{"two mistakes", func(o *Options) { o.Size, o.Rate = 0, -1 }, "rate -1: must be 1 to 100000 reads per second and cell\nsize 0"},
	} {
		o := DefaultOptions()
		c.change(&o)
		switch err := o.Validate(); {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q in it", c.name, err, c.want)
		}
	}
}

func TestParseLoad(t *testing.T) {
	for text, want := range map[string]float64{"": 0, "half": 0.5, "0.25": 0.25, "0": -1, "1": -1, "-0.5": -1, "NaN": -1, "quarter": -1} {
		got, err := ParseLoad(text)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %g, %v, want %g", text, got, err, want)
		}
	}
}

func TestChoose(t *testing.T) {
	all := []target{{Node{Name: "n1"}, Follower}, {Node{Name: "n2"}, Leader}, {Node{Name: "n3"}, Follower}}
	for _, c := range []struct{ wanted, want, missing, err string }{
		{"leader,follower", "n2 n1", "", ""},
		{"n3,n1,leader", "n2 n3 n1", "", ""},
		{"follower,n1", "n1", "", ""},
		{"leader,nonvoter", "n2", "nonvoter", ""},
		{"nonvoter", "", "", "no node is nonvoter"},
		{"n4", "", "", `no node or role "n4"`},
	} {
		chosen, missing, err := choose(all, strings.Split(c.wanted, ","))
		var names []string
		for _, n := range chosen {
			names = append(names, n.Name)
		}
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.wanted, err, c.err)
			}
			continue
		}
		if got := strings.Join(names, " "); err != nil || got != c.want || join(missing) != c.missing {
			t.Errorf("%s: %s, missing %s, %v", c.wanted, got, join(missing), err)
		}
	}
}

// TestBroken is the judge of each answer.
func TestBroken(t *testing.T) {
	const ms = time.Millisecond
	stale := func(age time.Duration) answer { return answer{staleness: staleness{versions: 1, age: age}} }
	said := func(age, bound time.Duration) answer {
		a := stale(age)
		a.bound, a.bounded = bound, true
		return a
	}
	for _, c := range []struct {
		name       string
		mode       Mode
		verb       Verb
		a          answer
		asked, got uint64
		want       bool
	}{
		{"Any may be stale", Any, Get, said(90*ms, 100*ms), 9, 5, false},
		{"Any at its bound", Any, Get, said(100*ms, 100*ms), 9, 5, false},
		{"Any staler than it says", Any, Get, said(100*ms+1, 100*ms), 9, 5, true},
		{"Any that knows no bound", Any, List, stale(time.Hour), 9, 5, false},
		{"Most Recent, current", MostRecent, Get, answer{}, 9, 5, false},
		{"Most Recent that lacks one", MostRecent, Get, stale(1), 9, 9, true},
		{"Not older: the object itself may be older", NotOlderThan, Get, answer{}, 9, 5, false},
		{"Not older: a list may not", NotOlderThan, List, answer{}, 9, 8, true},
		{"Not older, newer", NotOlderThan, List, answer{}, 9, 12, false},
		{"Not older that lacks one", NotOlderThan, Get, stale(1), 9, 9, true},
		{"Exact", Exact, List, answer{}, 9, 9, false},
		{"Exact, newer", Exact, List, answer{}, 9, 10, true},
		{"Exact that lacks one", Exact, List, stale(1), 9, 9, true},
	} {
		if got := broken(c.mode, c.verb, c.a, c.asked, c.got); (got != "") != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

func TestMarks(t *testing.T) {
	object := newObject(3, 4, 100)
	var decoded struct {
		Metadata struct{ Name string }
		Data     map[string]string
	}
	if err := json.Unmarshal(object, &decoded); err != nil || decoded.Data["probe"] != "3/0" || len(decoded.Data["value"]) != 100 || decoded.Metadata.Name != objectName(3) {
		t.Errorf("%s: %v", object, err)
	}
	if strings.Contains(string(newObject(4, 4, 10)), probeKey) {
		t.Error("the fifth object of four probes is a probe")
	}
	var got []int64
	list := `{"metadata":{"resourceVersion":"77"},"items":[{"metadata":{"resourceVersion":"5"},"data":{` + mark(0, 12) + `}},{"data":{` + mark(1, 0) + `}}]}`
	if err := marks([]byte(list), func(k int, n int64) { got = append(got, int64(k), n) }); err != nil || !slices.Equal(got, []int64{0, 12, 1, 0}) {
		t.Errorf("%v, %v", got, err)
	}
	if n, err := revisionOf([]byte(list)); err != nil || n != 77 {
		t.Errorf("revision %d, %v", n, err)
	}
	for _, bad := range []string{`"probe":"1"`, `"probe":"1/x"`, `"probe":"-1/2"`, `"probe":"1/-2"`, `"probe":"1/2`} {
		if err := marks([]byte(bad), func(int, int64) {}); err == nil {
			t.Errorf("%s is taken for a mark", bad)
		}
	}
	if _, err := revisionOf([]byte(`{"metadata":{}}`)); err == nil {
		t.Error("a revision out of nothing")
	}
}

// TestPace: as many calls as the rate says, each after it was due, and a slow
// start of one does not move the next.
func TestPace(t *testing.T) {
	clock := newStopwatch()
	var due, fired []time.Duration
	pace(t.Context(), clock, 2000, 20*time.Millisecond, 220*time.Millisecond, func(d time.Duration) {
		due, fired = append(due, d), append(fired, clock.now())
		if len(due) == 1 {
			time.Sleep(50 * time.Millisecond) // the pacer itself is held up
		}
	})
	// 400 on average; six standard deviations are 120.
	if n := len(due); n < 280 || n > 520 {
		t.Errorf("%d calls", n)
	}
	late := 0
	for i := range due {
		if fired[i] < due[i] || due[i] < 20*time.Millisecond || due[i] >= 220*time.Millisecond || i > 0 && due[i] < due[i-1] {
			t.Fatalf("call %d was due at %v and came at %v", i, due[i], fired[i])
		}
		if fired[i]-due[i] > 20*time.Millisecond {
			late++
		}
	}
	// What was due while the pacer was held up came late, and says so.
	if late < 20 {
		t.Errorf("only %d calls were late after a stop of 50 ms", late)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	pace(ended, clock, 10, 0, time.Hour, func(time.Duration) { t.Error("called after the end") })
}

func TestMetrics(t *testing.T) {
	was := parseMetrics([]byte("# HELP x y\n# TYPE x counter\nx_sum{to=\"a b\"} 1\nx_count{to=\"a b\"} 1\nx_sum{to=\"c\"} 2\nx_count{to=\"c\"} 2\nxx 5\n"))
	is := parseMetrics([]byte("x_sum{to=\"a b\"} 1.5\nx_count{to=\"a b\"} 3\nx_sum{to=\"c\"} 3.5\nx_count{to=\"c\"} 4\nxx 7\nnonsense\ny 1e3\n"))
	if n, mean := observed(was, is, "x"); n != 4 || mean != 500 {
		t.Errorf("all: %d, %g ms", n, mean)
	}
	if n, mean := observed(was, is, `x{to="a b"}`); n != 2 || mean != 250 {
		t.Errorf("one: %d, %g ms", n, mean)
	}
	if n, mean := observed(was, is, "z"); n != 0 || mean != 0 {
		t.Errorf("none: %d, %g ms", n, mean)
	}
	if grown(was, is, "xx") != 2 || grown(was, is, "y") != 1000 {
		t.Errorf("counters: %g, %g", grown(was, is, "xx"), grown(was, is, "y"))
	}
}

func TestLatencyOf(t *testing.T) {
	h := newHistogram()
	for i := range int64(1000) {
		record(h, (i+1)*1000) // 1 to 1000 ms
	}
	l := latencyOf(h, true)
	for name, c := range map[string][2]float64{
		"p50": {l.P50Ms, 500}, "p90": {l.P90Ms, 900}, "p99": {l.P99Ms, 990}, "p99.9": {l.P999Ms, 999}, "max": {l.MaxMs, 1000}, "mean": {l.MeanMs, 500.5},
	} {
		if math.Abs(c[0]/c[1]-1) > 0.002 {
			t.Errorf("%s is %g, want %g", name, c[0], c[1])
		}
	}
	if l.Count != 1000 || l.Curve[0].Ms > 1.01 || l.Curve[len(l.Curve)-1] != (Point{100, l.MaxMs}) {
		t.Errorf("%d values, curve %v", l.Count, l.Curve)
	}
	for i, p := range l.Curve {
		if i > 0 && (p.Percentile <= l.Curve[i-1].Percentile || p.Ms < l.Curve[i-1].Ms) {
			t.Errorf("the curve falls at %v", p)
		}
		if p.Percentile > 99.9 && p.Percentile < 100 {
			t.Errorf("%g %% of 1000 reads", p.Percentile)
		}
	}
	// What is out of range is at its ends.
	record(h, -5)
	record(h, int64(time.Hour/time.Microsecond))
	if got := latencyOf(h, false); got.Count != 1002 || got.MaxMs < 60_000 || got.MaxMs > 60_100 {
		t.Errorf("%+v", got)
	}
	if got := latencyOf(newHistogram(), true); got.Count != 0 || got.MeanMs != 0 || got.MaxMs != 0 {
		t.Errorf("nothing: %+v", got)
	}
}

// TestGivesUp: a cluster that breaks ends the run with its error.
func TestGivesUp(t *testing.T) {
	r := &run{}
	r.ctx, r.giveUp = context.WithCancelCause(t.Context())
	for range maxErrors - 1 {
		r.failed(io.ErrUnexpectedEOF)
		r.failed(nil)
	}
	if r.ctx.Err() != nil {
		t.Fatal("given up too early")
	}
	r.failed(http.ErrServerClosed)
	if err := context.Cause(r.ctx); err == nil || !strings.Contains(err.Error(), "given up after 50 errors, the last: "+http.ErrServerClosed.Error()) {
		t.Errorf("cause %v", err)
	}
}
