package load

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/report"
	"github.com/quorate/quorate/internal/must"
)

// TestMain lets the test binary be the bare server, as the program itself can be.
func TestMain(m *testing.M) {
	if slices.Equal(os.Args[1:], BareArguments) {
		if err := ServeBare(os.Stdin, os.Stdout); err != nil {
			os.Exit(2)
		}
		return
	}
	os.Exit(m.Run())
}

func TestBareServer(t *testing.T) {
	s, err := startBare(t.Context())
	must.OK(t, err)
	b := newBench(Options{Workers: 8, Objects: 100, Namespace: "n"}, &Target{}, s.conns)
	got := newTally(1)
	closedLoop(t.Context(), 8, 50*time.Millisecond, got, b.closed(&row{verb: get}, 8))
	if n := got.all().TotalCount(); got.errors > 0 || n < 8 || got.cut {
		t.Errorf("%d calls, %d errors, %v", n, got.errors, got.first)
	}
	// An object is too short an answer to a list, and no first event of a watch.
	for _, v := range []verb{list, watch} {
		got = newTally(1)
		closedLoop(t.Context(), 2, 50*time.Millisecond, got, b.closed(&row{verb: v}, 2))
		if got.errors == 0 || got.all().TotalCount() > 0 {
			t.Errorf("%s: %d calls, %d errors, %v", v, got.all().TotalCount(), got.errors, got.first)
		}
	}
	// A row whose context ends is cut short, and what was under way is no error.
	ctx, cancel := context.WithCancel(t.Context())
	got = newTally(1)
	time.AfterFunc(20*time.Millisecond, cancel)
	closedLoop(ctx, 8, time.Hour, got, b.closed(&row{verb: get}, 8))
	if !got.cut || got.errors > 0 {
		t.Errorf("cut %v, %d errors: %v", got.cut, got.errors, got.first)
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
	if bytes.Contains(raw, []byte("resourceVersion")) {
		t.Errorf("a new object has a resourceVersion: %s", raw)
	}
	put := newReplacement("n", 7, 4).at([]byte("123"))
	if got := decode(put); got.Metadata.ResourceVersion != "123" || got.Metadata.Labels["round"] != "4" || got.Data["value"] != o.Data["value"] {
		t.Errorf("unexpected replacement %s", put)
	}
	if got := decode(mergePatch(5)); got.Metadata.Labels["round"] != "5" {
		t.Errorf("unexpected patch %s", mergePatch(5))
	}
	if v, err := client.VersionOf(put); string(v) != "123" || err != nil {
		t.Errorf("version %q, %v", v, err)
	}
	if round, ok := roundOf(put); round != 4 || !ok {
		t.Errorf("round %d, %t", round, ok)
	}
	for _, bad := range []string{"", `{}`, `"resourceVersion":"`, `"resourceVersion":""`, `"round":"`, `"round":"x"`} {
		if v, err := client.VersionOf([]byte(bad)); err == nil {
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
		b := newBench(Options{Objects: c.objects}, &Target{}, nil)
		owner := make([]int, c.objects)
		for w := range c.workers {
			for n := range 2 * c.objects {
				i := b.mine(w, n, c.workers)
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
	latency := measure.NewHistogram()
	if err := follow(strings.NewReader(event("1")+event("2")), 2, latency); err != nil || latency.TotalCount() != 2 {
		t.Errorf("%d events, %v", latency.TotalCount(), err)
	}
	for _, bad := range []string{"", event("1"), event("1") + event("x"), event("1") + `{"type":"ERROR"}` + "\n"} {
		if err := follow(strings.NewReader(bad), 2, measure.NewHistogram()); err == nil {
			t.Errorf("no error from %q", bad)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Options)
		want   string // "" if it is good
	}{
		{"defaults", func(*Options) {}, ""},
		{"too short", func(o *Options) { o.Duration = time.Millisecond }, "duration 1ms"},
		{"nobody works", func(o *Options) { o.Workers = 0 }, "workers 0"},
		{"less objects than workers", func(o *Options) { o.Objects = 3 }, "objects 3: must be 32"},
		{"no connection", func(o *Options) { o.Connections = 0 }, "connections 0"},
		{"no rate", func(o *Options) { o.Rate = math.NaN() }, "rate NaN"},
		{"too many objects made", func(o *Options) { o.Rate, o.Duration = 100_000, time.Hour }, "at most 5000000 operations"},
		{"a row that is none", func(o *Options) { o.Rows = []string{"get", "nonsense"} }, `there is no row "nonsense"`},
		{"no row", func(o *Options) { o.Rows = nil }, "choose from"},
		{"a row that has no rate", func(o *Options) { o.Rows, o.Rate = []string{"get", "watch"}, 10 }, "watch cannot be sent at a rate"},
		{"all that have one", func(o *Options) { o.Rate = 10 }, ""},
		{"a sweep of one that has none", func(o *Options) { o.Rows, o.Sweep = []string{"create-quota"}, true }, "create-quota cannot be sent at a rate"},
		{"a watch in a mix", func(o *Options) { o.Rows, o.Mix, o.Rate = nil, Mix{{"watch", 1}}, 10 }, ""},
		{"for ever", func(o *Options) { o.Repeat = 1000 }, "repeat 1000"},
		{"again and again in one namespace", func(o *Options) { o.Repeat, o.Namespace = 2, "n" }, "exclude each other"},
	} {
		o := DefaultOptions()
		c.change(&o)
		if err := o.Validate(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	o := DefaultOptions()
	o.Rows = []string{"patch", "get"}
	chosen, err := o.chosen()
	if err != nil || !slices.Equal(namesOf(chosen), []string{"get", "patch"}) {
		t.Errorf("chosen %v, %v", namesOf(chosen), err)
	}
	for _, r := range rows {
		if p := peers[r.name]; p == (figures{}) && strings.HasPrefix(r.name, "create-") {
			continue // measured beside a peer only
		} else if p.Limit == 0 || p.Goal > p.Limit || p.Limit > p.Three {
			t.Errorf("peers.go: the figures of %s are missing or unlikely: %+v", r.name, p)
		}
		if r.verb != "" == (r.run != nil) {
			t.Errorf("%s has a verb and what runs it, or neither", r.name)
		}
	}
}

func TestMix(t *testing.T) {
	for _, bad := range []string{"", "get", "get=", "get=0", "get=-1", "get=NaN", "delete=1", "get=1,get=2", "get=1,,list=1"} {
		if m, err := ParseMix(bad); err == nil {
			t.Errorf("%q is %v", bad, m)
		}
	}
	m, err := ParseMix("get=60,update=30,list=10")
	if err != nil || m.String() != "get=60,update=30,list=10" {
		t.Fatalf("%v, %v", m, err)
	}
	for x, want := range map[float64]int{0: 0, 0.59: 0, 0.61: 1, 0.89: 1, 0.91: 2, 0.9999999: 2, 1: 2} {
		if got := m.at(x); got != want {
			t.Errorf("%g falls on %d, want %d", x, got, want)
		}
	}
}

// FuzzMix: what is taken is written as it is read.
func FuzzMix(f *testing.F) {
	f.Add("get=80,update=15,list=5")
	f.Add("watch=1e3")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseMix(text)
		if err != nil {
			return
		}
		again, err := ParseMix(m.String())
		if err != nil || again.String() != m.String() {
			t.Errorf("%q: %s, %v", text, again, err)
		}
		if i := m.at(0.5); i < 0 || i >= len(m) {
			t.Errorf("%q: %d", text, i)
		}
	})
}

// TestEtcdRefuses: what etcd has not is refused by name, and left out of all.
func TestEtcdRefuses(t *testing.T) {
	etcd := &Target{Etcd: true}
	for _, c := range []struct{ rows, mix, want string }{
		{"get,patch", "", "rows: etcd has no patch"}, {"create-quota", "", "rows: etcd has no create-quota"}, {"", "get=1,watch=1", "mix: etcd has no watch"}, {"get,update", "", ""}, {"all", "", ""},
	} {
		o := DefaultOptions()
		o.Rows = strings.Split(c.rows, ",")
		if c.mix != "" {
			o.Mix, _ = ParseMix(c.mix)
		}
		chosen, err := o.chosen()
		must.OK(t, err)
		can, err := etcd.check(chosen, c.rows == "all")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s%s: %v, want %q", c.rows, c.mix, err, c.want)
		}
		if c.rows == "all" && len(can) != len(etcdVerbs) {
			t.Errorf("all of etcd: %v, want %v", namesOf(can), etcdVerbs)
		}
	}
}

// done is a tally of times, within a second.
func done(micros ...int64) *tally {
	t := newTally(1)
	for _, m := range micros {
		t.parts[0].latency.Record(m)
	}
	t.elapsed = time.Second
	return t
}

// reportOf is a report of rows that two processes were measured with.
func reportOf(o Options, bare []float64, made ...Row) *Report {
	r := newReport(&o, &Target{Cluster: client.Cluster{Nodes: []client.Node{{Name: "n1", PID: 1, API: "a"}, {Name: "n2", PID: 2}}}})
	r.Runs = []RunReport{{Bare: bare, Rows: made, Memory: Memory{ResidentBytes: 1 << 30}}}
	r.finish()
	return r
}

func TestVerdict(t *testing.T) {
	broken := done(1000)
	broken.errors, broken.first = 1, client.ErrNoVersion
	for _, c := range []struct {
		what    string
		ops     *tally
		spent   [2]time.Duration
		bare    []float64
		verdict string
		failed  bool
	}{
		{"160 µs", done(1000), [2]time.Duration{100, 60}, nil, "goal", false},
		{"320 µs", done(1000), [2]time.Duration{200, 120}, nil, "within limit", false},
		{"640 µs", done(1000), [2]time.Duration{400, 240}, nil, "ABOVE LIMIT", true},
		{"640 µs on a machine of half the speed", done(1000), [2]time.Duration{400, 240}, []float64{40, 58}, "within limit", false},
		{"nothing done", done(), [2]time.Duration{100, 60}, nil, "ERRORS", true},
		{"errors", broken, [2]time.Duration{100, 60}, nil, "ERRORS", true},
	} {
		b := &bench{Options: DefaultOptions()}
		b.Goals = true
		one := b.newRow(&rows[0], c.ops, []time.Duration{0, 0}, []time.Duration{c.spent[0] * time.Microsecond, c.spent[1] * time.Microsecond})
		r := reportOf(b.Options, c.bare, one)
		if got := r.Rows[0].verdict(r.slower()); got != c.verdict || r.Failed() != c.failed {
			t.Errorf("%s: %s, failed %t", c.what, got, r.Failed())
		}
		var table, raw bytes.Buffer
		if err := r.Doc().WriteTable(&table); err != nil || !strings.Contains(table.String(), c.verdict) {
			t.Errorf("%s: %v in\n%s", c.what, err, table.String())
		}
		must.OK(t, report.WriteJSON(&raw, r))
		if back, err := parseReport("x", raw.Bytes()); err != nil || back.Rows[0].CPU != r.Rows[0].CPU {
			t.Errorf("%s: %v in %s", c.what, err, raw.String())
		}
		// Without goals only errors count.
		b.Goals = false
		one = b.newRow(&rows[0], c.ops, []time.Duration{0, 0}, []time.Duration{c.spent[0] * time.Microsecond, c.spent[1] * time.Microsecond})
		if r := reportOf(b.Options, nil, one); r.Failed() != (c.verdict == "ERRORS") {
			t.Errorf("%s, without goals: failed %t", c.what, r.Failed())
		}
	}
	for _, bad := range []string{"", "{}", "[]", `{"schema":"quorate.bench.modes/v1"}`} {
		if _, err := parseReport("x", []byte(bad)); err == nil {
			t.Errorf("%q is a report", bad)
		}
	}
}

// TestAgainst: beside a peer that was measured here the share decides, not the
// figures of another machine.
func TestAgainst(t *testing.T) {
	peer := &Report{Rows: []Row{{Name: "update", Ops: 10, CPU: 1000}, {Name: "get", Ops: 10, CPU: 1000}, {Name: "list", Ops: 10, CPU: 1000}}}
	ours := func(cpu float64, errors int64) *Report {
		return &Report{Rows: []Row{{Name: "update", Title: "update", Ops: 10, CPU: cpu, Errors: errors, Peer: &figures{Limit: 1}}, {Name: "watch", Ops: 10, CPU: 1e9}}}
	}
	for _, c := range []struct {
		ours   *Report
		want   string
		failed bool
	}{
		{ours(200, 0), "goal", false}, {ours(201, 0), "within limit", false}, {ours(500, 0), "within limit", false},
		{ours(501, 0), "ABOVE LIMIT", true}, {ours(100, 1), "ERRORS", true},
	} {
		var b strings.Builder
		must.OK(t, c.ours.WriteAgainst(&b, peer))
		if got := c.ours.FailedBeside(peer); got != c.failed || !strings.Contains(b.String(), c.want) {
			t.Errorf("failed %v, want %v and %q in\n%s", got, c.failed, c.want, b.String())
		}
		if strings.Contains(b.String(), "watch") {
			t.Errorf("a row that the peer lacks:\n%s", b.String())
		}
	}
}
