package hostile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// overload is what the clients of one run do.
type overload struct {
	objects         int
	abusers, others int // clients of the one user, and of each of the two others
	lasts           time.Duration
	p99             time.Duration
	growth          int64
}

// TestOverload: three users, one of whom has most of the clients, asks for whole
// collections and writes as fast as it can, and does not heed Retry-After. The two
// others must hardly notice. OVERLOAD=full is the run that the promise is about. What fairness
// promises without regard to speed is tested in virtual time, in apiserver/access/fairness.
func TestOverload(t *testing.T) {
	o := overload{objects: 2000, abusers: 400, others: 10, lasts: 8 * time.Second, p99: 12 * time.Second, growth: 512 << 20}
	switch os.Getenv("OVERLOAD") {
	case "":
		// How long requests take on a machine that others use says nothing of the server.
		t.Skip("by hand, on a quiet machine: OVERLOAD=short or OVERLOAD=full")
	case "full":
		o = overload{objects: 10_000, abusers: 400, others: 50, lasts: time.Minute, p99: time.Second, growth: 512 << 20}
	}
	node := cluster.Start(t, 1).Nodes()[0]
	cluster.CreateMany(t, node, o.objects)
	const users = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"overload"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"edit"},
		"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"abuser"},{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"alice"},{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"bob"}]}`
	if out := node.TryKubectl(t, nil, users, "create", "-f", "-"); out.Code != 0 {
		t.Fatalf("%+v", out)
	}
	alice, bob, abuser := newGuest(t, node, "alice"), newGuest(t, node, "bob"), newGuest(t, node, "abuser")
	for _, g := range []*guest{alice, bob, abuser} {
		cluster.Await(t, 10*time.Second, g.name+" may read", func() string {
			if code, err := g.do(t.Context(), http.MethodGet, "?limit=1", ""); code != http.StatusOK {
				return fmt.Sprint(code, err)
			}
			return ""
		})
		g.forget()
	}
	before := node.Resident(t)
	watch := cluster.WatchResident(t, node)
	ctx, stop := context.WithTimeout(t.Context(), o.lasts+time.Minute)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		// On a machine that is busy it takes longer until there is something to judge.
		began := time.Now()
		for ctx.Err() == nil && (time.Since(began) < o.lasts || min(alice.count(), bob.count()) < 20 || abuser.codes[200].Load() == 0 || abuser.codes[429].Load() == 0) {
			time.Sleep(50 * time.Millisecond)
		}
		o.lasts = time.Since(began)
		stop()
	})
	for i := range o.abusers {
		wg.Go(func() { abuser.abuse(ctx, i) })
	}
	for i := range o.others {
		wg.Go(func() { alice.behave(ctx, i) })
		wg.Go(func() { bob.behave(ctx, i) })
	}
	wg.Wait()
	watch.Stop()
	t.Logf("resident: %d MiB before, %d MiB at the most", before>>20, watch.Peak.Load()>>20)
	for _, g := range []*guest{alice, bob, abuser} {
		t.Log(g.summary(o.lasts))
	}
	if grown := watch.Peak.Load() - before; grown > o.growth {
		t.Errorf("the node grew by %d MiB", grown>>20)
	}
	for _, g := range []*guest{alice, bob} {
		if p := g.percentile(99); p > o.p99 {
			t.Errorf("%s: p99 is %s, want at most %s", g.name, p, o.p99)
		}
		if bad := g.count() - g.codes[200].Load() - g.codes[201].Load(); bad != 0 {
			t.Errorf("%s: %d requests were not served", g.name, bad)
		}
	}
	if bad := abuser.count() - abuser.codes[200].Load() - abuser.codes[201].Load() - abuser.codes[429].Load(); bad != 0 {
		t.Errorf("the abuser got other answers than success and 429: %s", abuser.summary(o.lasts))
	}
	if abuser.codes[429].Load() == 0 || abuser.codes[200].Load() == 0 {
		t.Errorf("the abuser must be refused, and get its share: %s", abuser.summary(o.lasts))
	}
}

// guest is a user that is not an administrator, by impersonation, with connections
// of its own.
type guest struct {
	node    *cluster.Node
	name    string
	clients []*http.Client
	next    atomic.Int64

	codes  [600]atomic.Int64 // 0: no answer
	failed atomic.Pointer[error]
	mu     sync.Mutex
	took   []time.Duration
}

func newGuest(t *testing.T, node *cluster.Node, name string) *guest {
	g := &guest{node: node, name: name}
	for range 8 {
		g.clients = append(g.clients, node.NewHTTP(t, "h2"))
	}
	return g
}

func (g *guest) forget() {
	for i := range g.codes {
		g.codes[i].Store(0)
	}
	g.took = nil
}

// do sends one request below the collection and reads the whole answer.
func (g *guest) do(ctx context.Context, method, path, body string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, method, g.node.API+"/api/v1/namespaces/default/configmaps"+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Impersonate-User", g.name)
	r.Header.Set("Content-Type", map[string]string{http.MethodPatch: "application/merge-patch+json"}[method])
	if method != http.MethodPatch {
		r.Header.Set("Content-Type", "application/json")
	}
	began := time.Now()
	code := 0
	w, err := g.clients[int(g.next.Add(1))%len(g.clients)].Do(r)
	if err == nil {
		_, err = io.Copy(io.Discard, w.Body)
		w.Body.Close()
		code = w.StatusCode
	}
	if ctx.Err() != nil {
		return code, err // the run is over
	}
	if err != nil {
		code = 0
		g.failed.Store(&err)
	}
	g.codes[code].Add(1)
	g.mu.Lock()
	g.took = append(g.took, time.Since(began))
	g.mu.Unlock()
	return code, err
}

// abuse asks again as soon as there is an answer, whatever it is.
func (g *guest) abuse(ctx context.Context, client int) {
	for i := 0; ctx.Err() == nil; i++ {
		switch {
		case client%4 == 0:
			_, _ = g.do(ctx, http.MethodPost, "", fmt.Sprintf(`{"metadata":{"name":"abuse-%d-%d"},"data":{"k":%q}}`, client, i, bytes.Repeat([]byte{'x'}, 1<<10)))
		default:
			_, _ = g.do(ctx, http.MethodGet, "", "")
		}
	}
}

// behave does a little of everything, five times a second.
func (g *guest) behave(ctx context.Context, client int) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	name := fmt.Sprintf("%s-%d", g.name, client)
	made := false
	for i := 0; ; i++ {
		switch {
		case !made:
			code, _ := g.do(ctx, http.MethodPost, "", `{"metadata":{"name":"`+name+`"}}`)
			made = code == http.StatusCreated
		case i%4 == 0:
			_, _ = g.do(ctx, http.MethodPatch, "/"+name, fmt.Sprintf(`{"data":{"n":"%d"}}`, i))
		case i%10 == 1:
			_, _ = g.do(ctx, http.MethodGet, "?limit=100", "")
		default:
			_, _ = g.do(ctx, http.MethodGet, fmt.Sprintf("/c-%05d", rand.IntN(2000)), "")
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (g *guest) count() (n int64) {
	for i := range g.codes {
		n += g.codes[i].Load()
	}
	return n
}

func (g *guest) percentile(p int) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.took) == 0 {
		return 0
	}
	slices.Sort(g.took)
	return g.took[min(len(g.took)*p/100, len(g.took)-1)]
}

func (g *guest) summary(lasted time.Duration) string {
	s := fmt.Sprintf("%-7s %6d requests, p50 %s, p99 %s, most %s;", g.name, g.count(), g.percentile(50).Round(time.Millisecond), g.percentile(99).Round(time.Millisecond), g.percentile(100).Round(time.Millisecond))
	for code := range g.codes {
		if n := g.codes[code].Load(); n > 0 {
			s += fmt.Sprintf(" %d: %d (%.0f/s)", code, n, float64(n)/lasted.Seconds())
		}
	}
	if err := g.failed.Load(); err != nil {
		s += " last error: " + (*err).Error()
	}
	return s
}
