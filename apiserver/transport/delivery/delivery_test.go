package delivery

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/watch"
)

// env is a store with one watch of it.
type env struct {
	t   *testing.T
	mem *memstore.Store
	d   *Delivery
	w   *Watch
	cur *watch.Watcher
	log strings.Builder
	// behind is since when the hub is, if it is.
	behind atomic.Int64
	mu     sync.Mutex
}

func (e *env) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.log.Write(b)
}

func newEnv(t *testing.T) *env {
	e := &env{t: t, mem: memstore.New()}
	t.Cleanup(func() { _ = e.mem.Close() })
	e.d = New(Config{Behind: func() (watch.Moment, bool) {
		since := watch.Moment(e.behind.Load())
		return since, since != 0
	}, Log: slog.New(slog.NewTextHandler(e, nil))})
	e.w = e.d.Add("", "things")
	var err error
	if e.cur, err = e.mem.Watch("things", e.mem.Applied(), mvcc.Interest{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.cur.Close)
	e.w.Follow(e.cur, e.mem.Applied())
	e.read()
	e.w.Nothing()
	return e
}

func (e *env) put(key string) {
	e.t.Helper()
	if _, err := e.mem.Propose(e.t.Context(), &proto.Write{Table: "things", Key: key, Op: proto.Op_OP_PUT, Value: []byte(`{}`)}); err != nil {
		e.t.Fatal(err)
	}
}

// read reads as a watch does, and returns the moments of what is to be counted.
func (e *env) read() []watch.Moment {
	e.t.Helper()
	var versions [8]*mvcc.Version
	var came [8]watch.Moment
	n, _, err := e.cur.Next(versions[:])
	must.OK(e.t, err)
	e.w.Read(versions[:n], came[:])
	return came[:n]
}

// gauge is the canary's verdict: what waits, and for how long, and what has stalled.
func (e *env) verdict() string {
	var all []string
	for c, name := range causeNames {
		if age := time.Duration(e.d.found.ages[c].Load()); age > 0 {
			all = append(all, fmt.Sprint(name, " ", age))
		}
		if n := e.d.found.stalls[c].Load(); n > 0 {
			all = append(all, fmt.Sprint(name, " stalled ", n))
		}
	}
	return strings.Join(all, ", ")
}

// TestCanary: what is not delivered is seen by what it waits for, and since when; what waits
// for this node for 10 s is a stall, counted and logged once; what waits for a client never is.
func TestCanary(t *testing.T) {
	for _, row := range []struct {
		name  string
		stall func(e *env) (end func())
		// after 9 s, after 29 s and at the end.
		soon, late, end string
	}{
		{"nothing", func(e *env) func() { return func() {} }, "", "", ""},
		{"the hub", func(e *env) func() {
			// One that is held by a mutex would hold the test's clock, too: apiserver has that test.
			since := watch.Now()
			e.behind.Store(int64(since))
			return func() { e.behind.Store(0) }
		}, "hub 8s", "hub 28s, hub stalled 1", "hub stalled 1"},
		{"who does not read", func(e *env) func() {
			e.put("a")
			return func() { e.w.Flushed(e.read(), watch.Now()) }
		}, "server 8s", "server 28s, server stalled 1", "server stalled 1"},
		{"who does not encode", func(e *env) func() {
			e.put("a")
			synctest.Wait()
			came := e.read()
			return func() { e.w.Flushed(came, watch.Now()) }
		}, "server 8s", "server 28s, server stalled 1", "server stalled 1"},
		{"a webhook", func(e *env) func() {
			e.put("a")
			synctest.Wait()
			came := e.read()
			e.w.Converts(true)
			return func() { e.w.Converts(false); e.w.Flushed(came, watch.Now()) }
		}, "conversion 8s", "conversion 28s, conversion stalled 1", "conversion stalled 1"},
		{"a client", func(e *env) func() {
			e.put("a")
			synctest.Wait()
			came := e.read()
			e.w.Writing(watch.Now())
			e.put("b") // it waits for the client, too
			return func() {
				e.w.Flushed(came, watch.Now())
				e.d.check(e.watches) // right then, before what has waited for the client is read
				e.w.Flushed(e.read(), watch.Now())
			}
		}, "client 8s", "client 28s", ""},
		{"a client that takes a little", func(e *env) func() {
			e.put("a")
			synctest.Wait()
			came := e.read()
			e.w.Writing(watch.Now())
			time.Sleep(27 * time.Second)
			e.w.Wrote()
			return func() { e.w.Flushed(came, watch.Now()) }
		}, "client 8s", "server 1s", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEnv(t)
				synctest.Wait()
				done := make(chan struct{})
				var wg sync.WaitGroup
				wg.Go(func() { e.d.Run(done, e.watches, func() {}) })
				began := time.Now()
				ended := make(chan func())
				go func() { ended <- row.stall(e) }()
				at := func(seconds int, want string) {
					t.Helper()
					time.Sleep(time.Until(began.Add(time.Duration(seconds) * time.Second)))
					synctest.Wait() // the canary has looked: a row may look, too
					if got := e.verdict(); got != want {
						t.Errorf("after %d s: %q, want %q", seconds, got, want)
					}
				}
				at(9, row.soon)
				end := <-ended
				at(29, row.late)
				end()
				at(35, row.end)
				close(done)
				wg.Wait()
				if got := gathered(t, e.d, oldestDesc); got != "" {
					t.Errorf("without a canary the server says\n%s", got)
				}
				want := 0
				if row.end != "" {
					want = 1
				}
				said := e.log.String()
				if strings.Count(said, "watch events are not delivered") != want || strings.Count(said, "watch events are delivered again") != want {
					t.Errorf("want %d lines that a stall began, and that it ended:\n%s", want, said)
				}
			})
		})
	}
}

func (e *env) watches(yield func(*Watch) bool) { yield(e.w) }

// TestLateCanary: a canary that does not look says so, or who asks does.
func TestLateCanary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		e.d.found.checked.Store(int64(watch.Now()))
		time.Sleep(time.Minute)
		text := func() string { return gathered(t, e.d, oldestDesc) }
		if got, want := text(), `{waits_for="check"} 58`; !strings.Contains(got, want) {
			t.Errorf("no %s before the check:\n%s", want, got)
		}
		e.d.check(e.watches)
		if got, want := text(), `{waits_for="check"} 56`; !strings.Contains(got, want) {
			t.Errorf("no %s after it:\n%s", want, got)
		}
		if got, want := e.verdict(), "check 56s, check stalled 1"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// gathered is a family as /metrics has it, one series a line.
func gathered(t *testing.T, d *Delivery, of *prometheus.Desc) string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	must.OK(t, r.Register(d))
	families, err := r.Gather()
	must.OK(t, err)
	var out strings.Builder
	for _, f := range families {
		if !strings.Contains(of.String(), `"`+f.GetName()+`"`) {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			fmt.Fprintf(&out, "{%s} ", strings.Join(labels, ","))
			if h := m.GetHistogram(); h != nil {
				fmt.Fprintf(&out, "%d in %g s", h.GetSampleCount(), h.GetSampleSum())
				before := uint64(0)
				for _, b := range h.GetBucket() {
					if n := b.GetCumulativeCount(); n != before {
						fmt.Fprintf(&out, ", %d to %g", n-before, b.GetUpperBound())
						before = n
					}
				}
			} else {
				fmt.Fprint(&out, m.GetGauge().GetValue()+m.GetCounter().GetValue())
			}
			out.WriteString("\n")
		}
	}
	return out.String()
}

// TestHistograms: an event is counted from when it came to when it was encoded, which leaves out
// how long the client let the watch wait, and to when the client had taken it, which does not.
// What was there when the watch began is not counted.
func TestHistograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		e.put("a")
		synctest.Wait()
		came := e.read()
		time.Sleep(3 * time.Millisecond)
		encoded := watch.Now()
		e.w.Writing(encoded)
		e.put("b")
		time.Sleep(4 * time.Second)
		e.put("c")
		time.Sleep(16 * time.Second) // the client takes it at last
		e.w.Flushed(came, encoded)
		came = e.read()
		if len(came) != 2 {
			t.Fatalf("%d events, want 2", len(came))
		}
		time.Sleep(20 * time.Millisecond)
		e.w.Flushed(came, watch.Now())
		want := `{group="",resource="things",stage="encoded"} 3 in 0.043 s, 1 to 0.005, 2 to 0.025
{group="",resource="things",stage="flushed"} 3 in 56.043 s, 3 to 30
`
		if got := gathered(t, e.d, delayDesc); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
		if e.w.News(&mvcc.Version{Revision: e.w.from}) || !e.w.News(&mvcc.Version{Revision: e.w.from + 1}) {
			t.Error("what was there when the watch began is counted, or what came since is not")
		}
	})
}

// TestBuckets: each event is in the bucket of its own time, however many come together.
func TestBuckets(t *testing.T) {
	var c counts
	var came []watch.Moment
	end := watch.Moment(2 * time.Hour)
	for i := len(bounds) - 1; i >= 0; i-- {
		came = append(came, end-watch.Moment(bounds[i])-1, end-watch.Moment(bounds[i]))
	}
	came = append(came, end)
	c.add(came, 0, end)
	for i := range c.buckets {
		if got := c.buckets[i].Load(); got != 2 && (i != len(bounds) || got != 1) {
			t.Errorf("%d in bucket %d, want 2, in the last 1", got, i)
		}
	}
}

// TestBounded: resources beyond the bound are counted as one; what is served no more is
// forgotten when nobody watches it, and not before.
func TestBounded(t *testing.T) {
	d := New(Config{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	var all []*Watch
	for i := range maxResources + 10 {
		all = append(all, d.Add("g", fmt.Sprint("r", i)))
	}
	all = append(all, d.Add("g", "r0"))
	if len(d.resources) != maxResources || all[maxResources].resource != d.other || all[len(all)-1].resource != all[0].resource {
		t.Errorf("%d resources are told apart, want %d", len(d.resources), maxResources)
	}
	if n := strings.Count(gathered(t, d, delayDesc), "\n"); n != 2*maxResources {
		t.Errorf("%d series, want %d", n, 2*maxResources)
	}
	now := watch.Now()
	all[maxResources].Flushed([]watch.Moment{now - 1}, now)
	if n := strings.Count(gathered(t, d, delayDesc), "\n"); n != 2*maxResources+2 {
		t.Errorf("%d series with those of the others, want %d", n, 2*maxResources+2)
	}
	asked := 0
	served := func(_, resource string) bool { asked++; return resource == "r1" }
	d.Forget(true, served)
	if len(d.resources) != maxResources || asked != 0 {
		t.Errorf("%d resources are left, %d were asked about: all are watched", len(d.resources), asked)
	}
	for _, w := range all[:len(all)-1] {
		d.Remove(w)
	}
	d.Forget(false, served)
	if d.resources[name{"g", "r0"}] == nil || d.resources[name{"g", "r1"}] == nil || len(d.resources) != 2 {
		t.Errorf("%d resources are left, want the one that is watched and the one that is served", len(d.resources))
	}
	asked = 0
	d.Forget(false, served)
	if asked != 0 {
		t.Error("asked though nothing has changed")
	}
	d.Remove(all[len(all)-1])
	d.Forget(true, func(string, string) bool { return false })
	if len(d.resources) != 0 {
		t.Errorf("%d resources are left, want none", len(d.resources))
	}
}

// TestNoAllocation: what is noted on an event's way allocates nothing.
func TestNoAllocation(t *testing.T) {
	e := newEnv(t)
	e.put("a")
	table := e.mem.State().Table("things")
	v, err := table.Get("a", e.mem.Applied())
	must.OK(t, err)
	versions, came := []*mvcc.Version{v}, make([]watch.Moment, 1)
	if n := testing.AllocsPerRun(100, func() {
		e.w.Read(versions, came)
		encoded := watch.Now()
		e.w.Writing(encoded)
		e.w.Flushed(came, encoded)
	}); n != 0 {
		t.Errorf("%g allocations per batch, want none", n)
	}
}

// BenchmarkBatch is what a watch does for its histograms and for the canary, for one event
// and for 128, and a look of the canary at 10,000 watches.
func BenchmarkBatch(b *testing.B) {
	mem := memstore.New()
	defer mem.Close()
	for i := range 128 {
		if _, err := mem.Propose(b.Context(), &proto.Write{Table: "things", Key: fmt.Sprint("k", i), Op: proto.Op_OP_PUT, Value: []byte(`{}`)}); err != nil {
			b.Fatal(err)
		}
	}
	d := New(Config{Behind: mem.WatchesBehind})
	follow := func() (*Watch, *watch.Watcher) {
		w := d.Add("", "things")
		cursor, err := mem.Watch("things", 2, mvcc.Interest{})
		if err != nil {
			b.Fatal(err)
		}
		w.Follow(cursor, 2)
		return w, cursor
	}
	w, cursor := follow()
	defer cursor.Close()
	var versions [129]*mvcc.Version
	var came [129]watch.Moment
	n, _, err := cursor.Next(versions[:])
	if n != 128 || err != nil {
		b.Fatal(n, err)
	}
	for _, events := range []int{1, 128} {
		b.Run(fmt.Sprint("events-", events), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w.Read(versions[n-events:n], came[:])
				encoded := watch.Now()
				w.Writing(encoded)
				w.Flushed(came[:events], encoded)
			}
		})
	}
	b.Run("check-10000", func(b *testing.B) {
		var all []*Watch
		for range 10_000 {
			w, cursor := follow()
			defer cursor.Close()
			all = append(all, w)
		}
		each := func(yield func(*Watch) bool) {
			for _, w := range all {
				yield(w)
			}
		}
		d.found.checked.Store(int64(watch.Now()))
		b.ReportAllocs()
		for b.Loop() {
			d.check(each)
		}
	})
}
