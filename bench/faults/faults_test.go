package faults

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/probe"
	"github.com/quorate/quorate/bench/report/reporttest"
	"github.com/quorate/quorate/internal/must"
)

const ms = time.Millisecond

func TestParseFault(t *testing.T) {
	for _, c := range []struct{ text, want, err string }{
		{"pause:leader@5s+8s", "pause:leader@5s+8s", ""},
		{"kill:n2", "kill:n2", ""},
		{"restart:follower@1m0s", "restart:follower@1m0s", ""},
		{"restart:follower+1s", "", "lasts as long as it takes"},
		{"partition:leader@2s+6s", "partition:leader@2s+6s", ""},
		{"partition=in:n1@2s+6s", "partition=in:n1@2s+6s", ""},
		{"partition=out:follower", "partition=out:follower", ""},
		{"slow-disk:leader", "slow-disk=20ms:leader", ""},
		{"slow-disk=1.5ms:n2@2s+6s", "slow-disk=1.5ms:n2@2s+6s", ""},
		{"partition=both:leader", "", "must be in (the node hears nothing) or out"},
		{"partition=:leader", "", "must be in (the node hears nothing) or out"},
		{"slow-disk=20:leader", "", "must be 100µs to 1m0s"},
		{"slow-disk=-1ms:leader", "", "must be 100µs to 1m0s"},
		{"slow-disk=2m:leader", "", "must be 100µs to 1m0s"},
		{"slow-disk=1ms", "", "which node?"},
		{"kill=hard:leader", "", "a kill has no = behind it"},
		{"explode:leader", "", "the kind must be kill, restart, pause, partition, slow-disk"},
		{"kill", "", "which node?"},
		{"kill:@5s", "", "which node?"},
		{"kill:leader@5", "", "behind @"},
		{"kill:leader@-5s", "", "behind @"},
		{"kill:leader+0s", "", "behind +"},
	} {
		f, err := ParseFault(c.text)
		switch {
		case c.err == "" && (err != nil || f.String() != c.want):
			t.Errorf("%s: %s, %v", c.text, f, err)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v, want %q in it", c.text, err, c.err)
		}
	}
}

func TestValidate(t *testing.T) {
	at := func(at, length time.Duration) Fault { return Fault{Kind: Kill, Target: "leader", At: at, For: length} }
	for _, c := range []struct {
		name   string
		change func(*Options)
		want   string // "" if it is good
	}{
		{"defaults", func(*Options) {}, ""},
		{"no faults", func(o *Options) { o.Faults = nil }, "no faults"},
		{"nothing to compare with", func(o *Options) { o.Faults = []Fault{at(time.Second, time.Second)} }, "begins too early"},
		{"in each other", func(o *Options) { o.Faults = []Fault{at(5*time.Second, 5*time.Second), at(8*time.Second, time.Second)} }, "begins too early"},
		{"for ever", func(o *Options) { o.Faults = []Fault{at(5*time.Second, time.Hour)} }, "at most 5m0s long"},
		{"no writes", func(o *Options) { o.Writes = 0 }, "writes 0"},
		{"too many objects", func(o *Options) { o.Writes = 2000 }, "objects are needed"},
		{"never", func(o *Options) { o.Repeat = 0 }, "repeat 0"},
	} {
		o := DefaultOptions()
		c.change(&o)
		if err := o.Validate(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestNeeds(t *testing.T) {
	for _, c := range []struct {
		kinds                 []Kind
		partitions, slowDisks bool
	}{{[]Kind{Kill, Restart, Pause}, false, false}, {[]Kind{Kill, Partition}, true, false}, {[]Kind{SlowDisk, Pause}, false, true}, {[]Kind{SlowDisk, Partition}, true, true}} {
		var all []Fault
		for _, k := range c.kinds {
			all = append(all, Fault{Kind: k, Target: "leader"})
		}
		if p, s := Needs(all); p != c.partitions || s != c.slowDisks {
			t.Errorf("%v needs partitions %v, slow disks %v", c.kinds, p, s)
		}
	}
}

// machines notes what is done to nodes.
type machines struct {
	Machines
	done []string
}

func (m *machines) note(format string, args ...any) error {
	m.done = append(m.done, fmt.Sprintf(format, args...))
	return nil
}

func (m *machines) Pause(node string) error             { return m.note("pause %s", node) }
func (m *machines) Resume(node string) error            { return m.note("resume %s", node) }
func (m *machines) Cut(node string, in, out bool) error { return m.note("cut %s %v %v", node, in, out) }
func (m *machines) Heal(node string) error              { return m.note("heal %s", node) }
func (m *machines) Slow(node string, d time.Duration) (int64, error) {
	return 7, m.note("slow %s %s", node, d)
}

// TestOne: what is begun is ended, on the same node, after its time.
func TestOne(t *testing.T) {
	for _, c := range []struct{ fault, want string }{
		{"pause:n1@1ms+30ms", "pause n1, resume n1"},
		{"partition:n1@1ms+30ms", "cut n1 true true, heal n1"},
		{"partition=in:n1@1ms+30ms", "cut n1 true false, heal n1"},
		{"partition=out:n1@1ms+30ms", "cut n1 false true, heal n1"},
		{"slow-disk=5ms:n1@1ms+30ms", "slow n1 5ms, slow n1 0s"},
	} {
		f, err := ParseFault(c.fault)
		must.OK(t, err)
		o := DefaultOptions()
		space := &probe.Space{Namespace: "x", Ledger: probe.NewLedger(1)}
		target := Target{Cluster: client.Cluster{Nodes: []client.Node{{Name: "n1", API: "https://127.0.0.1:1"}}, TLS: &tls.Config{}}}
		l := newLoad(&o, &target, space, measure.NewStopwatch(), []client.Role{client.Leader})
		m := &machines{}
		p, err := l.one(t.Context(), m, f, 0, 0)
		if err != nil || strings.Join(m.done, ", ") != c.want {
			t.Errorf("%s: it did %q (%v)", f, m.done, err)
		}
		if length := p.end - p.began; length < 30*time.Millisecond || p.role != client.Leader {
			t.Errorf("%s: %s long, to a %s", f, length, p.role)
		}
		if (p.delayed == 7) != (f.Kind == SlowDisk) {
			t.Errorf("%s: %d syncs were delayed", f, p.delayed)
		}
	}
}

// steady are answers each 10 ms, but those that were due in the hole failed.
func steady(node uint8, s service, length, from, to time.Duration) (out []sample) {
	for due := time.Duration(0); due < length; due += 10 * ms {
		x := sample{due: due, end: due + ms, service: s, node: node}
		if due >= from && due < to {
			x.outcome = noWay
		}
		out = append(out, x)
	}
	return out
}

func all(*sample) bool { return true }

func TestWindows(t *testing.T) {
	samples := steady(0, writes, 10*time.Second, 4*time.Second, 5500*ms)
	if w := longestGap(samples, 4*time.Second, 10*time.Second, all); w.Length != 1501*ms || w.From != 0 || w.Open {
		t.Errorf("the gap: %+v", w)
	}
	if w := longestGap(samples, 4*time.Second, 5*time.Second, all); w.Length != time.Second || !w.Open {
		t.Errorf("a gap that does not end: %+v", w)
	}
	if w := longestGap(samples, time.Second, 2*time.Second, all); w.Length != 10*ms {
		t.Errorf("no gap: %+v", w)
	}
	// Two holes are two windows; what is shorter is none.
	two := append(steady(0, writes, 5*time.Second, time.Second, 2*time.Second), steady(1, writes, time.Second, 0, 0)...)
	for i := range two {
		if two[i].due >= 3*time.Second && two[i].due < 3300*ms || two[i].due >= 4*time.Second && two[i].due < 4200*ms {
			two[i].outcome = noWay
		}
	}
	if w := longerThan(250*ms, two, 0, 5*time.Second, all); len(w) != 2 || w[0].From != 991*ms || w[0].Length != 1010*ms || w[1].From != 2991*ms || w[1].Length != 310*ms || w[1].Open {
		t.Errorf("windows %+v", w)
	}
	if w := longerThan(250*ms, two, 0, 1500*ms, all); len(w) != 1 || !w[0].Open || w[0].Length != 509*ms {
		t.Errorf("a window that does not end: %+v", w)
	}
	within := inTime(samples, 0, 4*time.Second, all)
	if before, n := share(samples, 0, 4*time.Second, within, all); within != inTimeLeast || before != 1 || n != 400 {
		t.Errorf("before: %g of %d within %s", before, n, within)
	}
	if d, ok := recovery(samples, 4*time.Second, 10*time.Second, within, 1, all); !ok || d < 1450*ms || d > 1500*ms {
		t.Errorf("recovered after %s, %v", d, ok)
	}
	if d, ok := recovery(samples, 4*time.Second, 6*time.Second, within, 1, all); ok {
		t.Errorf("recovered after %s, half a second before the end", d)
	}
	// Answers that come late are no recovery.
	for i := range samples {
		if samples[i].due > 5500*ms && samples[i].due < 7*time.Second {
			samples[i].end += time.Second
		}
	}
	if d, ok := recovery(samples, 4*time.Second, 10*time.Second, within, 1, all); !ok || d < 2900*ms || d > 3100*ms {
		t.Errorf("recovered after %s, %v, though answers were late until 3 s", d, ok)
	}
}

// TestPool: a probe of whose write nobody knows is not written again.
func TestPool(t *testing.T) {
	p := newPool(2)
	a, first, _ := p.take()
	b, _, _ := p.take()
	if _, _, ok := p.take(); ok || a == b {
		t.Fatal("a third of two")
	}
	p.acknowledged(a)
	if k, number, ok := p.take(); !ok || k != a || number != first+1 {
		t.Errorf("took %d, write %d, %v", k, number, ok)
	}
}

// sampleReport is a report of two repeats of a kill and a restart.
func sampleReport(t *testing.T) *Report {
	t.Helper()
	o := DefaultOptions()
	o.Faults = Schedule([]Fault{{Kind: Kill, Target: "leader"}, {Kind: Restart, Target: "n2"}})
	o.Repeat, o.Command, o.Commit = 2, `quorate bench faults --output-dir '<script>&'`, "abc"
	r := &runner{opt: o, target: Target{Cluster: client.Cluster{Nodes: []client.Node{{Name: "n1"}, {Name: "n2"}}}}}
	rep := r.newReport()
	for turn := range 2 {
		l := &load{opt: &r.opt, nodes: r.target.Nodes, length: o.length(), lag: measure.NewHistogram(), firsts: map[outcome]string{noWay: "refused by <b>n1</b>"}}
		for s := range services {
			l.samples = append(l.samples, steady(0, s, l.length, 5*time.Second, 11*time.Second)...)
			l.samples = append(l.samples, steady(1, s, l.length, 5*time.Second, 5200*ms+time.Duration(turn)*100*ms)...)
		}
		rep.add(&round{load: l, turn: turn, played: []played{
			{Fault: o.Faults[0], node: 0, role: client.Leader, began: 5 * time.Second, end: 10 * time.Second, back: back{ready: time.Second, wrote: 1100 * ms}},
			{Fault: o.Faults[1], node: 1, role: client.Leader, began: 20 * time.Second, end: 20 * time.Second, back: back{gone: time.Second}},
		}})
	}
	rep.finish()
	return rep
}

func TestReport(t *testing.T) {
	rep := sampleReport(t)
	kill := rep.Summary[0].Services["write"]
	if g := kill.Others.Gap; g.Median != 251 || g.Max != 301 || g.Count != 2 {
		t.Errorf("the others' gap: %+v", g)
	}
	if g := kill.Node.Gap; g.Median != 6001 {
		t.Errorf("the node's gap: %+v", g)
	}
	if r := kill.Node.Recovered; r.Median < 950 || r.Median > 1000 {
		t.Errorf("the node recovered: %+v, since it was started", r)
	}
	if e := kill.Others.Errors; e.Max != 30 {
		t.Errorf("errors: %+v", e)
	}
	if w := rep.Summary[1].Wrote; w.Never != 2 || rep.Summary[1].Gone.Median != 1000 {
		t.Errorf("the restart: %+v", rep.Summary[1])
	}
	if b := rep.Repeats[0].Timeline.Services["any"]; b.OK[10] != 20 || b.Errors[51] != 20 || b.MaxMs[10] != 1 {
		t.Errorf("bins: %d, %d, %g", b.OK[10], b.Errors[51], b.MaxMs[10])
	}
	if rep.Failed() {
		t.Error("errors are no broken promise")
	}
	for name, change := range map[string]func(*Report){
		"lost":                  func(r *Report) { r.Repeats[1].Lost = []string{"o-1"} },
		"stale":                 func(r *Report) { r.Promises["most-recent"] = Kept{Answers: 5, Broken: 1} },
		"no reads, no proof":    func(r *Report) { r.Promises["any"] = Kept{} },
		"what nobody asked for": func(r *Report) { r.Errors["strange"] = Error{Count: 1} },
	} {
		r := sampleReport(t)
		change(r)
		if r.judge(); !r.Failed() {
			t.Errorf("%s: it has not failed", name)
		}
	}
}

// TestSlowDisk: of a slow disk the latencies are told, and how many syncs it was that took longer.
func TestSlowDisk(t *testing.T) {
	o := DefaultOptions()
	o.Faults = Schedule([]Fault{{Kind: SlowDisk, Target: "leader", Delay: 20 * ms}})
	r := &runner{opt: o, target: Target{Cluster: client.Cluster{Nodes: []client.Node{{Name: "n1"}, {Name: "n2"}}}}}
	rep := r.newReport()
	for turn := range 2 {
		l := &load{opt: &r.opt, nodes: r.target.Nodes, length: o.length(), lag: measure.NewHistogram()}
		for s := range services {
			for node := range uint8(2) {
				one := steady(node, s, l.length, 0, 0)
				for i := range one {
					if x := &one[i]; s == writes && x.due >= 5*time.Second && x.due < 10*time.Second {
						x.end += 20*ms + time.Duration(node)*10*ms
					}
				}
				l.samples = append(l.samples, one...)
			}
		}
		rep.add(&round{load: l, turn: turn, played: []played{
			{Fault: o.Faults[0], node: 0, role: client.Leader, began: 5 * time.Second, end: 10 * time.Second, back: back{ready: ms, wrote: ms}, delayed: int64(40 + turn)},
		}})
	}
	rep.finish()
	x := rep.Summary[0].Services["write"]
	if x.Node.While.P50.Median != 21 || x.Others.While.P99.Max != 31 || x.Node.Before.P99.Median != 1 || x.Node.While.P50.Count != 2 {
		t.Errorf("writes: %+v, %+v before; on the others %+v", x.Node.While, x.Node.Before, x.Others.While)
	}
	if d := rep.Summary[0].Delayed; d == nil || d.Median != 40.5 || rep.Repeats[1].Faults[0].How != "20ms" || *rep.Repeats[1].Faults[0].SyncsDelayed != 41 {
		t.Errorf("delayed: %+v of %+v", d, rep.Repeats[1].Faults[0])
	}
	var table, page bytes.Buffer
	must.OK(t, errors.Join(rep.Doc().WriteTable(&table), rep.Doc().WriteHTML(&page)))
	for _, want := range []string{"slow-disk=20ms:leader@5s+5s (n1 leader)", "40.5 / 41 syncs took longer", "latency meanwhile", "31.0 / 31.0", "; the kernel asks this program before each sync\n"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	for _, want := range []string{"<th>latency meanwhile</th>", "<td>21.0 / 21.0</td>", "slow-disk=20ms n1"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %q in the page", want)
		}
	}
	if kill := sampleReport(t); kill.Summary[0].Delayed != nil || kill.Summary[1].Services["write"].Node.While != nil || kill.Summary[0].Services["write"].Node.While == nil {
		t.Errorf("of a kill and of a restart: %+v", kill.Summary)
	}
}

func TestForms(t *testing.T) {
	rep := sampleReport(t)
	var table, page, raw, csv bytes.Buffer
	for _, err := range []error{rep.Doc().WriteTable(&table), rep.Doc().WriteHTML(&page), rep.WriteJSON(&raw), rep.WriteCSV(&csv)} {
		must.OK(t, err)
	}
	for _, want := range []string{"kill:leader@5s+5s (n1 leader)", "251 / 301", "never", "missed  Every node came back: 2 of 4", "in the first repeat:", "nothing served on the node: Writes: 6001 ms from 0.00 on", "ok      No acknowledged write is lost"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	if n, want := strings.Count(csv.String(), "\n"), 1+2*4*int(DefaultOptions().After+20*time.Second)/int(binLength); n != want {
		t.Errorf("%d lines of CSV, want %d", n, want)
	}
	text := string(reporttest.Page(t, page.String(), 1+2*3, "<b>n1</b>", "'<script>"))
	for _, x := range []string{text, raw.String()} {
		var back Report
		if err := json.Unmarshal([]byte(x), &back); err != nil || back.Schema != Schema || len(back.Repeats) != 2 || back.Command != rep.Command {
			t.Errorf("the report: %v, %d repeats", err, len(back.Repeats))
		}
	}
}
