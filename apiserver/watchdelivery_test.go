package apiserver_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/transport/delivery"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
)

// stall is when a watch is not served, in these tests.
const stall = 500 * time.Millisecond

// delays is what a server's /metrics say about the delivery of watches, and what its log does.
type delays struct {
	t        *testing.T
	registry *prometheus.Registry
	mu       sync.Mutex
	log      bytes.Buffer
}

func (d *delays) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.Write(b)
}

func (d *delays) said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

func newDelays(t *testing.T, stall time.Duration) (*env, *delays) {
	d := &delays{t: t, registry: prometheus.NewPedanticRegistry()}
	e := newEnv(t, func(c *apiserver.Config) {
		c.Delivery = delivery.New(delivery.Config{
			Behind: c.Store.(*memstore.Store).WatchesBehind,
			Period: stall / 20, Stall: stall, Log: slog.New(slog.NewTextHandler(d, nil)),
		})
		must.OK(t, d.registry.Register(c.Delivery))
	})
	return e, d
}

// value is that of a series, and of a histogram how many it has counted; -1: it is not there.
func (d *delays) value(name string, labels ...string) float64 {
	d.t.Helper()
	families, err := d.registry.Gather()
	must.OK(d.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var has []string
			for _, l := range m.GetLabel() {
				has = append(has, l.GetValue())
			}
			if f.GetName() == name && strings.Join(has, " ") == strings.Join(labels, " ") {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return -1
}

func (d *delays) oldest(waitsFor string) time.Duration {
	d.t.Helper()
	return time.Duration(d.value("quorate_watch_oldest_undelivered_seconds", waitsFor) * float64(time.Second))
}

func (d *delays) stalls(waitsFor string) float64 {
	d.t.Helper()
	return d.value("quorate_watch_delivery_stalls_total", waitsFor)
}

// put writes an object in the store, as another node's write comes.
func (e *env) put(name, content string) {
	e.t.Helper()
	_, err := e.mem.Propose(e.t.Context(), &proto.Write{Table: "configmaps", Key: "default/" + name, Op: proto.Op_OP_PUT,
		Value: fmt.Appendf(nil, `{"metadata":{"name":%q,"namespace":"default"},"data":{"k":%q}}`, name, content)})
	must.OK(e.t, err)
}

// TestHubThatHangs: watches that are told nothing, though there are events for them, are a stall,
// until they get them.
func TestHubThatHangs(t *testing.T) {
	t.Parallel()
	e, d := newDelays(t, stall)
	s := e.watch(maps + "?watch=1&resourceVersion=" + e.mem.Applied().String())
	e.put("before", "")
	e.next(s)
	must.Await(t, patience, "an event that is delivered", func() string {
		for _, stage := range []string{"encoded", "flushed"} {
			if got := d.value("quorate_watch_delivery_seconds", "", "configmaps", stage); got != 1 {
				return fmt.Sprintf("%g events %s, want 1", got, stage)
			}
		}
		return ""
	})
	release := e.mem.HoldWatches()
	//sleep: nothing may be noticed meanwhile
	time.Sleep(2 * stall)
	if got := d.stalls("hub"); got != 0 {
		t.Errorf("%g stalls of a hub that has nothing to tell", got)
	}
	began := time.Now()
	e.put("a", "")
	must.Await(t, patience, "the hub hangs", func() string {
		if got := d.stalls("hub"); got != 1 {
			return fmt.Sprintf("%g stalls, want 1", got)
		}
		// The log has it behind the counter.
		if said := d.said(); !strings.Contains(said, `msg="watch events are not delivered: they wait for this node, not for clients" waits_for=hub`) {
			return "the log does not say so:\n" + said
		}
		return ""
	})
	oldest := d.oldest("hub")
	// Asked behind it: the event waits on meanwhile.
	if took := time.Since(began); oldest < stall || oldest > took {
		t.Errorf("noticed after %s: the oldest event waits for %s, want more than %s", took, oldest, stall)
	}
	release()
	if event := e.next(s); !strings.Contains(event, `"name":"a"`) {
		t.Errorf("the event behind the stall is %s", clip(event))
	}
	must.Await(t, patience, "the stall ends", func() string {
		if oldest := d.oldest("hub") + d.oldest("server"); oldest != 0 || !strings.Contains(d.said(), "watch events are delivered again") {
			return fmt.Sprintf("the oldest event waits for %s: %s", oldest, d.said())
		}
		return ""
	})
	if got := d.value("quorate_watch_delivery_seconds", "", "configmaps", "flushed"); got != 2 {
		t.Errorf("%g events flushed, want 2", got)
	}
}

// TestSlowClientIsNoStall: a client that takes nothing, and then a little at a time, is seen, and
// is no stall of this node; another one of the same objects gets them meanwhile.
func TestSlowClientIsNoStall(t *testing.T) {
	t.Parallel()
	const objects, size = 20, 1 << 20 // more than the sockets hold
	const stall = 3 * time.Second     // of what a busy machine delays, nothing is that late
	e, d := newDelays(t, stall)
	conn, err := tls.Dial("tcp", e.http.Listener.Addr().String(), http1)
	must.OK(t, err)
	defer conn.Close()
	must.OK(t, conn.SetDeadline(time.Now().Add(3*patience)))
	path := maps + "?watch=1&resourceVersion=" + e.mem.Applied().String()
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
		t.Fatal(err)
	}
	prompt := e.watch(path)
	must.Await(t, patience, "both watches begin", func() string {
		if n := apiserver.OpenWatches(e.api); n != 2 {
			return fmt.Sprintf("%d watches", n)
		}
		return ""
	})
	big := strings.Repeat("x", size)
	for i := range objects {
		e.put(fmt.Sprint("big-", i), big)
	}
	for range objects {
		e.next(prompt)
	}
	check := func(what string) {
		t.Helper()
		for _, waitsFor := range []string{"hub", "server", "conversion", "check"} {
			if n, oldest := d.stalls(waitsFor), d.oldest(waitsFor); n != 0 || oldest > stall {
				t.Errorf("%s: %g stalls of %s, the oldest event waits for %s", what, n, waitsFor, oldest)
			}
		}
	}
	must.Await(t, patience, "the client is seen", func() string {
		if oldest := d.oldest("client"); oldest < stall*5/4 {
			return fmt.Sprintf("its oldest event waits for %s", oldest)
		}
		return ""
	})
	check("it takes nothing")
	buf := make([]byte, 64<<10)
	for read, pauses := 0, 0; read < objects*size; {
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatalf("after %d of %d bytes: %v", read, objects*size, err)
		}
		if read += n; read > (pauses+1)*size {
			pauses++
			time.Sleep(stall / 60)
			check("it takes a little")
		}
	}
	must.Await(t, patience, "it has taken everything", func() string {
		if n := d.value("quorate_watch_delivery_seconds", "", "configmaps", "flushed"); n != 2*objects {
			return fmt.Sprintf("%g events flushed, want %d", n, 2*objects)
		}
		return ""
	})
	check("it has taken everything")
	if strings.Contains(d.said(), "not delivered") {
		t.Errorf("the log says that this node stalls:\n%s", d.said())
	}
}

// TestDeliveryOfWhatIsServedNoMore: the series of a custom resource end with its definition.
func TestDeliveryOfWhatIsServedNoMore(t *testing.T) {
	t.Parallel()
	e, d := newDelays(t, stall)
	e.lead()
	e.define(routes(newConvertHook(t).client()), routesV1)
	s := e.watch(routesV1 + "?watch=1")
	e.route("a")
	e.next(s)
	kept := e.watch(maps + "?watch=1")
	kept.cancel()
	counted := func(group, resource string) float64 {
		return d.value("quorate_watch_delivery_seconds", group, resource, "flushed")
	}
	const group, resource = "stable.example.com", "routes"
	if counted(group, resource) < 0 {
		t.Error("there are no series of a resource that is watched")
	}
	s.cancel()
	must.Await(t, patience, "the watches end", func() string {
		if n := apiserver.OpenWatches(e.api); n != 0 {
			return fmt.Sprintf("%d watches", n)
		}
		return ""
	})
	//sleep: nothing may be dropped meanwhile
	time.Sleep(stall / 5) // the canary has looked
	if counted(group, resource) < 0 {
		t.Error("the series end with the watch, not with the resource")
	}
	if w, body := e.do(http.MethodDelete, definitionsPath+routesDefinition, nil, ""); w.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", w.StatusCode, body)
	}
	e.await(definitionsPath+routesDefinition, http.StatusNotFound)
	must.Await(t, patience, "its series end", func() string {
		if counted(group, resource) >= 0 {
			return "they are there"
		}
		return ""
	})
	if counted("", "configmaps") < 0 {
		t.Error("the series of what is served ended, too")
	}
}
