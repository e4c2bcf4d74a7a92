package burst

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/host"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/probe"
	"github.com/quorate/quorate/bench/report"
)

// perConnection is how many clients share a connection: servers allow 250 requests or fewer on one at a time.
const perConnection = 100

// Burst is one that is under way. Its methods are for one goroutine.
type Burst struct {
	opt       Options
	target    client.Cluster
	namespace string
	clock     *measure.Stopwatch
	admin     *client.Admin  // for what is not part of the burst
	senders   []*client.Link // for the burst
	patchers  []*patcher
	others    []*series
	watches   []*watch
	before    cost

	stopPatches, stopOthers context.CancelFunc
	patching, watching      sync.WaitGroup

	mu      sync.Mutex // guards what follows
	latency measure.Histogram
	newest  map[string]written  // of each Deployment, the patch that was acknowledged at the highest revision
	written map[uint64]struct{} // the revisions of all that were acknowledged
	answers map[string]int64    // by their code, or "none"
	firsts  map[string]string   // the first of each that is an error
}

// Run sends a burst for as long as the options say.
func Run(ctx context.Context, target client.Cluster, o Options) (*Report, error) {
	b, err := Start(ctx, target, o)
	if err != nil {
		return nil, err
	}
	measure.Pause(ctx, o.Duration)
	r, err := b.End(context.WithoutCancel(ctx))
	return r, errors.Join(err, ctx.Err())
}

// Start makes what is patched and starts the clients. End must be called, whatever happens.
func Start(ctx context.Context, target client.Cluster, o Options) (*Burst, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	b := newBurst(target, o)
	err := b.prepare(ctx)
	if err == nil {
		b.before, err = b.cost(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, b.clean(context.WithoutCancel(ctx)))
	}
	patches, stop := context.WithCancel(ctx)
	b.stopPatches = stop
	others, stop := context.WithCancel(ctx)
	b.stopOthers = stop
	b.startOthers(others)
	if err := b.awaitBegun(ctx); err != nil {
		_, ended := b.End(context.WithoutCancel(ctx))
		return nil, errors.Join(err, ended)
	}
	for _, p := range b.patchers {
		b.patching.Go(func() { p.run(patches) })
	}
	return b, nil
}

func newBurst(target client.Cluster, o Options) *Burst {
	b := &Burst{
		opt: o, target: target, namespace: fmt.Sprintf("burst-%d", time.Now().UnixNano()), clock: measure.NewStopwatch(), admin: target.Admin(o.Timeout),
		latency: measure.NewHistogram(), newest: map[string]written{}, written: map[uint64]struct{}{}, answers: map[string]int64{}, firsts: map[string]string{},
	}
	return b
}

// End stops the clients, waits for the answers to what they have sent, checks what was acknowledged, and removes what
// Start has made.
func (b *Burst) End(ctx context.Context) (*Report, error) {
	b.stopPatches()
	took := b.clock.Now()
	b.patching.Wait()
	b.awaitWatches(ctx)
	b.stopOthers()
	b.watching.Wait()
	after, err := b.cost(ctx)
	var lost []string
	if err == nil {
		lost, err = b.lost(ctx)
	}
	r := b.report(took, after, lost)
	return r, errors.Join(err, b.clean(ctx))
}

func (b *Burst) deployments() string {
	return "/apis/apps/v1/namespaces/" + b.namespace + "/deployments"
}

// prepare makes the namespace, the Deployments and the user, and the clients, which send nothing yet.
func (b *Burst) prepare(ctx context.Context) error {
	if _, err := b.admin.Do(ctx, 0, http.MethodPost, "/api/v1/namespaces", fmt.Appendf(nil, `{"metadata":{"name":%q}}`, b.namespace)); err != nil {
		return fmt.Errorf("make the namespace of the burst: %w", err)
	}
	token, err := b.token(ctx)
	if err != nil {
		return fmt.Errorf("make the user of the burst: %w", err)
	}
	config := b.target.TLS
	if token != "" {
		config = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: config.RootCAs}
	}
	for i := range b.opt.Objects {
		if _, err := b.admin.Do(ctx, i%len(b.admin.Links), http.MethodPost, b.deployments(), deployment(objectName(i), "none", 0)); err != nil {
			return fmt.Errorf("make Deployment %s: %w", objectName(i), err)
		}
	}
	for n, node := range b.target.Nodes {
		var link *client.Link
		for i := range b.opt.Clients {
			if i%perConnection == 0 {
				link = client.NewLink(node, config, b.opt.Timeout)
				link.Authorize(token)
				b.senders = append(b.senders, link)
			}
			b.patchers = append(b.patchers, newPatcher(b, n+i*len(b.target.Nodes), link))
		}
	}
	return b.prepareOthers(ctx)
}

func objectName(i int) string { return fmt.Sprintf("d-%d", i) }

// token makes the tenant, if one sends the burst.
func (b *Burst) token(ctx context.Context) (string, error) {
	if b.opt.User != Tenant {
		return "", nil
	}
	accounts := "/api/v1/namespaces/" + b.namespace + "/serviceaccounts"
	if _, err := b.admin.Do(ctx, 0, http.MethodPost, accounts, []byte(`{"metadata":{"name":"tenant"}}`)); err != nil {
		return "", err
	}
	binding := fmt.Appendf(nil, `{"metadata":{"name":"tenant"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"edit"},`+
		`"subjects":[{"kind":"ServiceAccount","name":"tenant","namespace":%q}]}`, b.namespace)
	if _, err := b.admin.Do(ctx, 0, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/namespaces/"+b.namespace+"/rolebindings", binding); err != nil {
		return "", err
	}
	raw, err := b.admin.Do(ctx, 0, http.MethodPost, accounts+"/tenant/token", []byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":7200}}`))
	if err != nil {
		return "", err
	}
	var answer struct {
		Status struct{ Token string }
	}
	err = json.Unmarshal(raw, &answer)
	return answer.Status.Token, err
}

// written is a patch that was acknowledged.
type written struct {
	revision uint64
	value    string
}

// acknowledged notes a patch with its answer.
func (b *Burst) acknowledged(object, value string, answer []byte, took time.Duration) error {
	revision, err := probe.RevisionOf(answer)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.latency.RecordTime(took)
	b.written[revision] = struct{}{}
	if revision > b.newest[object].revision {
		b.newest[object] = written{revision, value}
	}
	return nil
}

// lost says which patches were acknowledged and are not there: in a Deployment, or in the events of a watch.
func (b *Burst) lost(ctx context.Context) (lost []string, err error) {
	raw, err := b.admin.Do(ctx, 0, http.MethodGet, b.deployments(), nil)
	if err != nil {
		return nil, fmt.Errorf("read what was patched: %w", err)
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name, ResourceVersion string
				Annotations           map[string]string
			}
		}
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("read what was patched: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, item := range list.Items {
		want := b.newest[item.Metadata.Name]
		revision, value := item.Metadata.ResourceVersion, item.Metadata.Annotations[annotation]
		got, _ := strconv.ParseUint(revision, 10, 64)
		if got < want.revision || got == want.revision && value != want.value {
			lost = append(lost, fmt.Sprintf("Deployment %s is %q at revision %s, and %q was acknowledged at %d", item.Metadata.Name, value, revision, want.value, want.revision))
		}
		delete(b.newest, item.Metadata.Name)
	}
	for name, want := range b.newest {
		lost = append(lost, fmt.Sprintf("Deployment %s is gone, and %q was acknowledged at %d", name, want.value, want.revision))
	}
	for i, w := range b.watches {
		missing := 0
		for revision := range b.written {
			if _, ok := w.seen[revision]; !ok && w.cut.Load() == 0 {
				missing++
			}
		}
		if missing > 0 {
			lost = append(lost, fmt.Sprintf("the watch at %s lacks %s", b.target.Nodes[i].Name, report.Count(missing, "event")))
		}
	}
	return lost, nil
}

// clean removes what Start has made.
func (b *Burst) clean(ctx context.Context) error {
	paths := []string{b.deployments(), "/apis/coordination.k8s.io/v1/namespaces/" + b.namespace + "/leases", "/api/v1/namespaces/" + b.namespace + "/configmaps"}
	for i := range b.admin.Links {
		paths = append(paths, "/api/v1/nodes/"+b.nodeName(i))
	}
	err := b.admin.Remove(ctx, append(paths, "/api/v1/namespaces/"+b.namespace)...)
	_ = client.CloseLinks(b.senders) // nothing is sent any more
	b.admin.Close()
	return err
}

// cost is what the nodes have spent, and what their metrics say.
type cost struct {
	cpu     []time.Duration
	memory  int64
	term    float64
	mallocs float64
	delays  map[float64]float64 // of Raft: the count of those up to a bound in seconds
	delayed float64             // their sum
}

// cost asks all nodes. One that does not answer counts nothing.
func (b *Burst) cost(ctx context.Context) (c cost, err error) {
	var pids []int
	for _, n := range b.target.Nodes {
		if n.PID > 0 {
			pids = append(pids, n.PID)
		}
	}
	if c.cpu, err = host.CPUTimes(pids); err != nil {
		c.cpu = nil // a node was killed meanwhile
	}
	if c.memory, err = host.ResidentMemory(pids); err != nil {
		c.memory = 0
	}
	c.delays = map[float64]float64{}
	answered := false
	for i := range b.admin.Links {
		var raw []byte
		if raw, err = b.admin.Do(ctx, i, http.MethodGet, "/metrics", nil); err == nil {
			answered = true
			c.add(client.ParseMetrics(raw))
		}
	}
	if answered {
		err = nil
	}
	return c, err
}
