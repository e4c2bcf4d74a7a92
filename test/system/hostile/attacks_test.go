package hostile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// hostility is a campaign against one cluster.
type hostility struct {
	c        *cluster.Cluster
	objects  int           // of 1 KiB, in the collection that is asked for, beside 8 MB in large ones
	lasts    time.Duration // each attack
	conns    int           // idle, and half open, at each node
	growth   int64         // of a node's resident memory, in bytes, while one attack lasts
	patience time.Duration // the 99th percentile of others
	busy     bool          // the machine is too slow already to tell what an attack does to others
}

// attack is one thing that hostile clients do to a node until ctx ends. It returns
// how often it has done it, so that an attack that does nothing is noticed.
type attack struct {
	name string
	do   func(t *testing.T, h *hostility, ctx context.Context, n *cluster.Node) int64
}

var attacks = []attack{
	{"streams that are opened and reset", rapidReset},
	{"CONTINUATION without an end", continuationFlood},
	{"a header of 64 MB in 16 KB", headerBomb},
	{"header lines without an end, HTTP/1.1", endlessHeader},
	{"PING and SETTINGS, answers unread", controlFlood},
	{"lists into a window of zero", windowZero},
	{"lists read a byte a second, HTTP/1.1", slowReaders1},
	{"lists read a byte a second, HTTP/2", slowReaders2},
	{"bodies of a byte a second, HTTP/1.1", slowBodies1},
	{"bodies of a byte a second, HTTP/2", slowBodies2},
	{"headers of a byte a second", slowHeaders},
	{"handshakes that stop", halfHandshakes},
	{"connections that say nothing", idleConnections},
	{"watches that vanish", vanishingWatches},
}

// TestHostile: whatever a client does to connections, streams and time, another
// user's gets and creates go on on all nodes, memory stays bounded, nobody panics, and
// nothing is left when the client has gone. HOSTILE=long is the longer form.
func TestHostile(t *testing.T) {
	h := &hostility{objects: 1500, lasts: 2500 * time.Millisecond, conns: 600, growth: 384 << 20, patience: time.Second}
	if os.Getenv("HOSTILE") == "long" {
		h = &hostility{objects: 10_000, lasts: 30 * time.Second, conns: 3300, growth: 512 << 20, patience: time.Second}
	}
	h.c = cluster.Start(t, 3)
	first := h.c.Nodes()[0]
	cluster.CreateMany(t, first, h.objects)
	// More than the buffers of a connection hold: who does not read makes the node wait.
	for i := range 40 {
		large := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large-%d"},"data":{"k":%q}}`, i, strings.Repeat("x", 200<<10))
		if out := first.TryKubectl(t, nil, large, "create", "-f", "-"); out.Code != 0 {
			t.Fatalf("%+v", out)
		}
	}
	h.admit(t, first)
	var alices []*guest
	for _, n := range h.c.Nodes() {
		alices = append(alices, newGuest(t, n, "alice"))
	}
	for _, a := range alices {
		cluster.Await(t, 10*time.Second, a.name+" may read at "+a.node.Name, func() string {
			if code, err := a.do(t.Context(), http.MethodGet, "?limit=1", ""); code != http.StatusOK {
				return fmt.Sprint(code, err)
			}
			return ""
		})
	}
	quiet := h.politely(t, alices, func(ctx context.Context) { <-ctx.Done() })
	t.Logf("%-40s p50 %-6s p99 %s", "nobody", quiet.p50, quiet.p99)
	h.busy = quiet.p99 > 250*time.Millisecond
	// A machine that others keep busy is slow without any attack.
	limit := max(h.patience, 20*quiet.p99)
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) { h.endure(t, a, alices, limit) })
	}
	h.unharmed(t)
}

// admit lets the polite user and the hostile one do the same.
func (h *hostility) admit(t *testing.T, n *cluster.Node) {
	t.Helper()
	const users = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"hostile"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"edit"},
		"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"mallory"},{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"alice"}]}`
	if out := n.TryKubectl(t, nil, users, "create", "-f", "-"); out.Code != 0 {
		t.Fatalf("%+v", out)
	}
}

// endure makes one attack on all nodes at once.
func (h *hostility) endure(t *testing.T, a attack, alices []*guest, limit time.Duration) {
	var calm []resources
	var memory []*cluster.ResidentWatch
	var before []int64
	var cpu time.Duration
	for _, n := range h.c.Nodes() {
		calm = append(calm, resourcesNow(t, n))
		before = append(before, n.Resident(t))
		cpu -= n.CPU(t)
		memory = append(memory, cluster.WatchResident(t, n))
	}
	var did atomic.Int64
	seen := h.politely(t, alices, func(ctx context.Context) {
		var wg sync.WaitGroup
		for _, n := range h.c.Nodes() {
			wg.Go(func() { did.Add(a.do(t, h, ctx, n)) })
		}
		wg.Wait()
	})
	grown := int64(0)
	for i, m := range memory {
		m.Stop()
		cpu += h.c.Nodes()[i].CPU(t)
		grown = max(grown, m.Peak.Load()-before[i])
	}
	t.Logf("%-40s p50 %-6s p99 %-6s %7d times, %s of CPU, resident %+d MiB", a.name, seen.p50, seen.p99, did.Load(), cpu, grown>>20)
	if did.Load() == 0 {
		t.Error("the attack did nothing")
	}
	complain := t.Errorf
	if h.busy {
		complain = t.Logf
	}
	if seen.failed != "" {
		complain("others were not served: %s", seen.failed)
	}
	if seen.p99 > limit {
		complain("others waited: p99 %s, want at most %s", seen.p99, limit)
	}
	if grown > h.growth {
		t.Errorf("a node grew by %d MiB, want at most %d", grown>>20, h.growth>>20)
	}
	for i, n := range h.c.Nodes() {
		cluster.Await(t, 30*time.Second, n.Name+" has let go of everything", func() string {
			if now := resourcesNow(t, n); now.goroutines > calm[i].goroutines+20 || now.descriptors > calm[i].descriptors+10 {
				return fmt.Sprintf("%+v, before it was %+v", now, calm[i])
			}
			return ""
		})
	}
}

// courtesy is what polite clients have seen.
type courtesy struct {
	p50, p99 time.Duration
	failed   string
}

// politely creates and reads through all nodes while f runs, for as long as an attack lasts.
func (h *hostility) politely(t *testing.T, alices []*guest, f func(context.Context)) courtesy {
	ctx, stop := context.WithTimeout(t.Context(), h.lasts)
	defer stop()
	var wg sync.WaitGroup
	for i, a := range alices {
		a.forget()
		for worker := range 2 {
			wg.Go(func() { a.createAndRead(ctx, fmt.Sprintf("polite-%d-%d-%d", i, worker, time.Now().UnixNano())) })
		}
	}
	f(ctx)
	wg.Wait()
	var all courtesy
	var took []time.Duration
	for _, a := range alices {
		took = append(took, a.took...)
		if a.count() != a.codes[200].Load()+a.codes[201].Load() {
			all.failed += a.node.Name + ": " + a.summary(h.lasts) + "; "
		}
	}
	if slices.Sort(took); len(took) > 0 {
		all.p50, all.p99 = took[len(took)/2].Round(time.Millisecond), took[len(took)*99/100].Round(time.Millisecond)
	}
	return all
}

// createAndRead makes objects and reads each. What has begun is finished, so that a
// request that hangs counts.
func (g *guest) createAndRead(ctx context.Context, prefix string) {
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("%s-%d", prefix, i)
		_, _ = g.do(context.WithoutCancel(ctx), http.MethodPost, "", `{"metadata":{"name":"`+name+`"}}`)
		_, _ = g.do(context.WithoutCancel(ctx), http.MethodGet, "/"+name, "")
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// unharmed: nobody has died or panicked, and all have the same state.
func (h *hostility) unharmed(t *testing.T) {
	for _, n := range h.c.Nodes() {
		if !n.Running() {
			t.Fatalf("%s has died", n.Name)
		}
		if panics, _ := n.LookupMetric(t, "quorate_panics_total"); panics != 0 {
			t.Errorf("%s has contained %v panics", n.Name, panics)
		}
		log, err := os.ReadFile(n.Log)
		must.OK(t, err)
		if at := bytes.Index(log, []byte("panic")); at >= 0 {
			t.Errorf("%s: %.2000s", n.Name, log[at:])
		}
		body, resp, err := n.Get(t, "/api/v1/namespaces/default/configmaps?limit=1")
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %v %s", n.Name, err, body)
		}
	}
}

// discard reads to the end in the background; wait for the returned channel.
func discard(r io.Reader) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, r)
	}()
	return done
}
