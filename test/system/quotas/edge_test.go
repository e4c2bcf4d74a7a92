package quotas

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	writers = 100
	in      = "/api/v1/namespaces/edge"
	plain   = "application/json"
	merge   = "application/merge-patch+json"
	// phase is how long is written before and after each disturbance.
	phase = 5 * time.Second
)

// amounts are Pods that have not ended, what these ask for in thousandths of a CPU, and ConfigMaps.
type amounts struct{ Pods, CPU, ConfigMaps int64 }

// limit is that of the quota. Pods ask for 100m or 200m, so now Pods end first and now CPU.
var limit = amounts{Pods: 23, CPU: 2900, ConfigMaps: 31}

func (a amounts) above(b amounts) bool {
	return a.Pods > b.Pods || a.CPU > b.CPU || a.ConfigMaps > b.ConfigMaps
}

func pod(name string, cpu int) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"%dm"}}}]}}`, name, cpu)
}

func configMap(name string) string { return fmt.Sprintf(`{"metadata":{"name":%q}}`, name) }

// edge is a namespace with a quota on a cluster.
type edge struct {
	t *testing.T
	// wrong is told what must not be. Default: the test fails.
	wrong func(format string, args ...any)
	// nodes are copies: where to reach a node does not change when it is started again.
	nodes   []cluster.Node
	clients []*http.Client
	names   atomic.Int64
	held    [writers]string // the path of what each writer has last created and not deleted

	created, refused, undecided, ended, looks, above atomic.Int64
	mu                                               sync.Mutex
	highest                                          amounts
}

// newEdge makes the namespace and its quota on a cluster.
func newEdge(t *testing.T, c *cluster.Cluster, quota string) *edge {
	t.Helper()
	e := &edge{t: t, wrong: t.Errorf}
	for _, n := range c.Nodes() {
		e.clients, e.nodes = append(e.clients, n.HTTP(t)), append(e.nodes, *n)
	}
	first := c.Nodes()[0]
	// What the server's own controllers write counts and is not refused: it has to be there before
	// the limit is reached.
	cluster.Namespace(t, first, "edge")
	first.Must(t, http.StatusCreated, "POST", in+"/resourcequotas", plain, quota)
	return e
}

// wholeQuota bounds all that is counted here.
var wholeQuota = fmt.Sprintf(`{"metadata":{"name":"edge"},"spec":{"hard":{"pods":"%d","requests.cpu":"%dm","count/configmaps":"%d"}}}`, limit.Pods, limit.CPU, limit.ConfigMaps)

func (e *edge) do(node int, method, path, contentType, body string) (int, string) {
	ctx, cancel := context.WithTimeout(e.t.Context(), 10*time.Second)
	defer cancel()
	code, answer, err := e.nodes[node].Exchange(ctx, e.clients[node], method, path, contentType, body)
	if err != nil {
		return 0, err.Error()
	}
	return code, answer
}

// create creates an object; an answer that is neither a success nor the quota's is an error,
// unless it says that nothing is known or that it may be tried again. refused is the answer of
// the quota. Without a decision the object may be there.
func (e *edge) create(node int, plural, name, body string) (path, refused string) {
	path = in + "/" + plural + "/" + name
	code, answer := e.do(node, http.MethodPost, in+"/"+plural, plain, body)
	switch {
	case code == http.StatusCreated:
		e.created.Add(1)
	case code == http.StatusForbidden && strings.Contains(answer, "exceeded quota: edge, requested: "):
		e.refused.Add(1)
		return "", answer
	case code == 0 || code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout:
		e.undecided.Add(1)
	default:
		e.t.Errorf("%s: create %s: %d %.300s", e.nodes[node].Name, path, code, answer)
	}
	return path, ""
}

// write creates objects, ends some of the Pods, and deletes them again, until stop. What it has
// then is left for the next time.
func (e *edge) write(writer int, stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		node := (writer + n) % len(e.nodes)
		if e.held[writer] != "" {
			code, _ := e.do(node, http.MethodDelete, e.held[writer]+"?gracePeriodSeconds=0", "", "")
			if code != http.StatusOK && code != http.StatusNotFound {
				continue
			}
			e.held[writer] = ""
		}
		name := fmt.Sprintf("w%d-%d", writer, e.names.Add(1))
		if rand.IntN(2) == 0 {
			e.held[writer], _ = e.create(node, "configmaps", name, configMap(name))
			continue
		}
		e.held[writer], _ = e.create(node, "pods", name, pod(name, 100+100*rand.IntN(2)))
		if e.held[writer] != "" && rand.IntN(2) == 0 {
			if code, _ := e.do(node, http.MethodPatch, e.held[writer]+"/status", merge, `{"status":{"phase":"Succeeded"}}`); code == http.StatusOK {
				e.ended.Add(1)
			}
		}
	}
}

// list is what is read of a list.
type list struct {
	Metadata struct{ ResourceVersion string }
	Items    []struct {
		Spec struct {
			Containers []struct {
				Resources struct{ Requests map[string]resource.Quantity }
			}
		}
		Status struct{ Phase string }
	}
}

// look counts what is there at one revision, by two lists; ok is false if they could not be had.
func (e *edge) look(node int) (seen amounts, revision string, ok bool) {
	var pods, configMaps list
	code, answer := e.do(node, http.MethodGet, in+"/pods", "", "")
	if code != http.StatusOK || json.Unmarshal([]byte(answer), &pods) != nil {
		return seen, "", false
	}
	revision = pods.Metadata.ResourceVersion
	code, answer = e.do(node, http.MethodGet, in+"/configmaps?resourceVersionMatch=Exact&resourceVersion="+revision, "", "")
	if code != http.StatusOK || json.Unmarshal([]byte(answer), &configMaps) != nil {
		return seen, "", false
	}
	if configMaps.Metadata.ResourceVersion != revision {
		e.t.Errorf("a list at exactly %s is of %s", revision, configMaps.Metadata.ResourceVersion)
	}
	for _, p := range pods.Items {
		if p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" {
			continue
		}
		seen.Pods++
		for _, c := range p.Spec.Containers {
			cpu := c.Resources.Requests["cpu"]
			seen.CPU += cpu.MilliValue()
		}
	}
	seen.ConfigMaps = int64(len(configMaps.Items))
	return seen, revision, true
}

// observe looks at one revision after another, through all nodes, until stop.
func (e *edge) observe(stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		seen, revision, ok := e.look(n % len(e.nodes))
		if !ok {
			continue
		}
		e.looks.Add(1)
		e.mu.Lock()
		e.highest = amounts{max(e.highest.Pods, seen.Pods), max(e.highest.CPU, seen.CPU), max(e.highest.ConfigMaps, seen.ConfigMaps)}
		e.mu.Unlock()
		if seen.above(limit) && e.above.Add(1) == 1 {
			e.wrong("at revision %s there is %+v, the limit is %+v", revision, seen, limit)
		}
	}
}

// settled awaits that the quota's status says what is there, which it returns.
func (e *edge) settled() (seen amounts) {
	e.t.Helper()
	cluster.Await(e.t, 30*time.Second, "the status of the quota is what is there", func() string { return e.unsettled(&seen) })
	return seen
}

// unsettled says how the quota's status differs from what is there, which it sets.
func (e *edge) unsettled(seen *amounts) string {
	var ok bool
	if *seen, _, ok = e.look(0); !ok {
		return "nothing can be counted"
	}
	code, answer := e.do(0, http.MethodGet, in+"/resourcequotas/edge", "", "")
	var q struct {
		Status struct{ Used map[string]resource.Quantity }
	}
	if err := json.Unmarshal([]byte(answer), &q); code != http.StatusOK || err != nil {
		return fmt.Sprint(code, " ", answer)
	}
	if len(q.Status.Used) != 3 {
		return "the quota counts nothing yet: " + answer
	}
	pods, cpu, configMaps := q.Status.Used["pods"], q.Status.Used["requests.cpu"], q.Status.Used["count/configmaps"]
	if used := (amounts{pods.Value(), cpu.MilliValue(), configMaps.Value()}); used != *seen {
		return fmt.Sprintf("it says %+v, there is %+v", used, *seen)
	}
	return ""
}

// all runs something for every writer, and returns when they have ended.
func (e *edge) all(f func(writer int)) {
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() { f(w) })
	}
	wg.Wait()
}

// fill creates objects by all writers until each was refused.
func (e *edge) fill(plural string, body func(name string) string) {
	end := time.Now().Add(time.Minute)
	e.all(func(writer int) {
		for time.Now().Before(end) {
			name := fmt.Sprintf("f%d-%d", writer, e.names.Add(1))
			if _, refused := e.create(writer%len(e.nodes), plural, name, body(name)); refused != "" {
				return
			}
		}
		e.t.Errorf("writer %d was never refused", writer)
	})
}

// TestQuotaEdge: a hundred clients create, end and delete Pods and ConfigMaps through three nodes
// at the edge of a quota, while leaders are killed and leadership is transferred. No revision has
// more than the quota allows; its status says what is there whenever nothing is written; and
// in the end exactly what it allows can be used. QUOTA_ROUNDS (2) is how often a leader is
// killed, and leadership transferred.
func TestQuotaEdge(t *testing.T) {
	rounds := 2
	if s := os.Getenv("QUOTA_ROUNDS"); s != "" {
		if _, err := fmt.Sscan(s, &rounds); err != nil {
			t.Fatalf("QUOTA_ROUNDS=%s: %v", s, err)
		}
	}
	c := cluster.Start(t, 3)
	e := newEdge(t, c, wholeQuota)
	for round := range 2 * rounds {
		stop := make(chan struct{})
		var looking, writing sync.WaitGroup
		looking.Go(func() { e.observe(stop) })
		writing.Go(func() { e.all(func(w int) { e.write(w, stop) }) })
		end := sync.OnceFunc(func() { close(stop); writing.Wait(); looking.Wait() })
		t.Cleanup(end) // also when a command fails
		wait(t, phase)
		e.disturb(c, round%2 == 0)
		wait(t, phase)
		end()
		t.Logf("round %d: %+v when nobody writes", round, e.settled())
	}
	e.empty()
	e.inTheEnd()
	t.Logf("%d created, %d refused, %d not decided, %d Pods ended; %d revisions looked at, %d above the limit; the most that was there: %+v",
		e.created.Load(), e.refused.Load(), e.undecided.Load(), e.ended.Load(), e.looks.Load(), e.above.Load(), e.highest)
	if e.looks.Load() < 20 || e.refused.Load() < writers || e.ended.Load() == 0 || e.highest.ConfigMaps < limit.ConfigMaps {
		t.Error("nothing was written at the edge")
	}
}

// wait lets writers write.
func wait(t *testing.T, d time.Duration) {
	select {
	case <-t.Context().Done():
	case <-time.After(d):
	}
}

// disturb kills the leader and starts it again, or transfers leadership to another node.
func (e *edge) disturb(c *cluster.Cluster, kill bool) {
	e.t.Helper()
	leader := c.Leader(e.t)
	if kill {
		c.Kill(e.t, leader)
		others := c.Others(leader)
		cluster.Await(e.t, 30*time.Second, "another leader", func() string {
			if now := c.Leader(e.t, others[0]); now == leader {
				return "it is the one that was killed"
			}
			return ""
		})
		c.Restart(e.t, leader)
		return
	}
	to := c.Others(leader)[0]
	cluster.Await(e.t, 30*time.Second, to.Name+" leads", func() string {
		if out, err := c.TryQuorate(e.t, "member", "transfer-leader", to.Name, "--kubeconfig", c.Kubeconfig); err != nil {
			return out
		}
		return ""
	})
}

// empty deletes all there is, but for what the server's own controllers write: when they write it again is
// theirs to choose, and no quota refuses it.
func (e *edge) empty() {
	e.t.Helper()
	cluster.Await(e.t, time.Minute, "what was left is deleted", func() string {
		for _, collection := range []string{"pods?", "configmaps?fieldSelector=metadata.name!=kube-root-ca.crt&"} {
			if code, answer := e.do(0, http.MethodDelete, in+"/"+collection+"gracePeriodSeconds=0", "", ""); code != http.StatusOK {
				return answer
			}
		}
		return ""
	})
}

// inTheEnd fills the empty namespace while nothing is deleted.
func (e *edge) inTheEnd() {
	e.t.Helper()
	// 14 Pods of 200m, one of 100m and 8 of nothing are exactly the limit.
	for _, cpu := range []int{200, 100, 0} {
		e.fill("pods", func(name string) string { return pod(name, cpu) })
	}
	e.fill("configmaps", configMap)
	if is := e.settled(); is != limit {
		e.t.Errorf("%+v is there when no more is allowed, the limit is %+v", is, limit)
	}
	for _, c := range []struct{ plural, body, want string }{
		{"pods", pod("beyond", 0), `pods \"beyond\" is forbidden: exceeded quota: edge, requested: pods=1, used: pods=23, limited: pods=23`},
		{"pods", pod("beyond", 100), `pods \"beyond\" is forbidden: exceeded quota: edge, requested: pods=1,requests.cpu=100m, used: pods=23,requests.cpu=2900m, limited: pods=23,requests.cpu=2900m`},
		{"configmaps", configMap("beyond"), `configmaps \"beyond\" is forbidden: exceeded quota: edge, requested: count/configmaps=1, used: count/configmaps=31, limited: count/configmaps=31`},
	} {
		for node := range e.nodes {
			if _, refused := e.create(node, c.plural, "beyond", c.body); !strings.Contains(refused, c.want) {
				e.t.Errorf("%s: one more of %s: %q, want %q", e.nodes[node].Name, c.plural, refused, c.want)
			}
		}
	}
}
