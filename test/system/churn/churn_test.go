package churn

import (
	"context"
	"crypto/tls"
	"fmt"
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

// kind is one kind of churn.
type kind struct {
	name   string
	cycle  func(*cycle)
	cycles int             // in a round; with -short fewer
	leaves map[int]float64 // what a cycle may leave for good, by figure, where it is not what figures says
}

var kinds = []kind{
	{name: "leases and statuses of Nodes", cycle: leases, cycles: 20},
	{name: "kubelets that do not answer", cycle: kubelets, cycles: 20},
	{name: "Events", cycle: coreEvents, cycles: 60},
	{name: "Events of events.k8s.io", cycle: newEvents, cycles: 60},
	{name: "Pods", cycle: pods, cycles: 20},
	{name: "server-side apply by many managers", cycle: applies, cycles: 20},
	{name: "Endpoints and EndpointSlices", cycle: endpoints, cycles: 24},
	{name: "Services", cycle: services, cycles: 20},
	{name: "namespaces", cycle: namespaces, cycles: 4},
	{name: "CustomResourceDefinitions", cycle: definitions, cycles: 4},
	{name: "validating policies", cycle: validatingPolicies, cycles: 14},
	{name: "mutating policies", cycle: mutatingPolicies, cycles: 14},
	{name: "webhooks", cycle: webhooks, cycles: 14},
	{name: "FlowSchemas and priority levels", cycle: flows, cycles: 20},
	{name: "APIServices", cycle: apiServices, cycles: 4},
	{name: "CertificateSigningRequests", cycle: signingRequests, cycles: 20},
	{name: "accounts and tokens", cycle: tokens, cycles: 20},
	{name: "roles and bindings", cycle: roles, cycles: 14},
	{name: "quotas", cycle: quotas, cycles: 20},
	{name: "pages", cycle: pages, cycles: 20},
	{name: "watches", cycle: watches, cycles: 4},
	{name: "malformed requests", cycle: malformed, cycles: 20},
	{name: "strangers", cycle: strangers, cycles: 20},
	{name: "discovery", cycle: discovery, cycles: 20},
	{name: "OpenAPI", cycle: openAPI, cycles: 14},
	{name: "clients that vanish", cycle: vanishing, cycles: 20},
}

// in is how many cycles of a kind a round has.
func (k kind) in() int {
	if testing.Short() {
		return max(k.cycles/3, 3)
	}
	return k.cycles
}

// limit is by how much a figure may differ after a round of this kind.
func (k kind) limit(f int) float64 {
	perCycle, ok := k.leaves[f]
	if !ok {
		perCycle = figures[f].perCycle
	}
	return figures[f].slack + perCycle*float64(k.in())
}

// churn is the run of all kinds on one cluster.
type churn struct {
	cluster *cluster.Cluster
	peer    *peer
	tls     *tls.Config             // an administrator's
	clients map[string]*http.Client // an administrator's, by node
	nobody  *http.Client            // without a certificate
	made    atomic.Int64            // cycles
}

// TestChurn: all kinds run beside each other, round after round, and what the nodes have is measured after
// each round, when the history and the Events of the round are gone. A figure has grown if it is more after
// each of two rounds than after the round before. Then the kinds are looked at in halves, down to the kind
// that makes it grow; if none does by itself, all of them again.
//
// CHURN is a word of the kinds that are to run: by default all.
func TestChurn(t *testing.T) {
	began := time.Now()
	c := newChurn(t)
	kinds := slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool { return !strings.Contains(k.name, os.Getenv("CHURN")) })
	t.Logf("began in %s", time.Since(began).Round(time.Second))
	c.round(t, kinds)
	t.Logf("warmed up in %s", time.Since(began).Round(time.Second))
	c.search(t, kinds)
}

// pad makes an object of some 2 KB.
var pad = strings.Repeat("x", 2000)

func newChurn(t *testing.T) *churn {
	t.Helper()
	c := &churn{
		cluster: cluster.Start(t, 3, "history-retention=2s", "event-ttl=1s", "snapshot-entries=200", "trailing-logs=200", "snapshot-interval=1s"),
		peer:    newPeer(t), clients: map[string]*http.Client{},
	}
	first := c.cluster.Nodes()[0]
	var err error
	if c.tls, err = first.TLS(); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.cluster.Nodes() {
		c.clients[n.Name] = &http.Client{Transport: c.transport(true)}
		t.Cleanup(c.clients[n.Name].CloseIdleConnections)
	}
	c.nobody = c.client(true, nil)
	t.Cleanup(c.nobody.CloseIdleConnections)
	cluster.Namespace(t, first, "churn")
	cluster.Namespace(t, first, "churn-quota")
	// What cycles use and leave.
	setUp := &cycle{run: c, ctx: t.Context()}
	setUp.call(201, "POST", coreV1+"nodes", `{"metadata":{"name":"kept"}}`)
	setUp.call(201, "POST", inChurn+"services", `{"metadata":{"name":"loopback"},"spec":{"type":"ExternalName","externalName":"127.0.0.1"}}`)
	for i := range 20 {
		setUp.call(201, "POST", inChurn+"configmaps", sprintf(`{"metadata":{"name":"kept-%d","labels":{"kept":"yes"}},"data":{"k":"v"}}`, i))
	}
	// Each node keeps the newest entries of its log in memory, up to 4 MiB.
	if setUp.err != nil {
		t.Fatal(setUp.err)
	}
	var fill sync.WaitGroup
	for i := range 16 {
		fill.Go(func() {
			one := &cycle{run: c, ctx: t.Context(), turn: i}
			for j := range 100 {
				one.call(done, "PATCH", sprintf("%sconfigmaps/kept-%d", inChurn, i), sprintf(`{"data":{"k":"%d%s"}}`, j, pad), patch(merge)...)
			}
			if one.err != nil {
				t.Error(one.err)
			}
		})
	}
	fill.Wait()
	return c
}

// round makes a round of kinds beside each other.
func (c *churn) round(t *testing.T, kinds []kind) {
	t.Helper()
	var all sync.WaitGroup
	for _, k := range kinds {
		all.Go(func() {
			began := time.Now()
			for range k.in() {
				if err := c.once(t.Context(), k); err != nil {
					t.Errorf("%s: %v", k.name, err)
					return
				}
			}
			if testing.Verbose() {
				t.Logf("%d cycles of %s in %s", k.in(), k.name, time.Since(began).Round(10*time.Millisecond))
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// once makes one cycle of a kind.
func (c *churn) once(ctx context.Context, k kind) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	i := c.made.Add(1)
	one := &cycle{run: c, ctx: ctx, name: fmt.Sprintf("c%d", i), turn: int(i)}
	k.cycle(one)
	return one.err
}

// growth is what a node has after each of the rounds.
type growth struct {
	figure int
	node   string
	after  [steps + 1]float64
	of     string // which series, if they grow
}

// steps are the rounds that are compared with the one before.
const steps = 2

// search runs rounds of kinds and reports the kinds that make a figure grow.
func (c *churn) search(t *testing.T, kinds []kind) (found bool) {
	t.Helper()
	grown := c.grows(t, kinds)
	if len(grown) == 0 {
		return false
	}
	if len(kinds) > 1 {
		for _, g := range grown {
			t.Logf("%d kinds from %q to %q: %s", len(kinds), kinds[0].name, kinds[len(kinds)-1].name, g)
		}
		half := len(kinds) / 2
		first := c.search(t, kinds[:half])
		if second := c.search(t, kinds[half:]); first || second {
			return true
		}
		// What is kept grows by as much again. The heap of a busy node may be found with more two times in a row.
		if grown = again(grown, c.grows(t, kinds)); len(grown) == 0 {
			return false
		}
	}
	for _, g := range grown {
		names := kinds[0].name
		if len(kinds) > 1 {
			names = fmt.Sprintf("%d kinds from %s to %s, together", len(kinds), kinds[0].name, kinds[len(kinds)-1].name)
		}
		t.Errorf("%s, %d cycles a round: %s", names, kinds[0].in(), g)
	}
	return true
}

// again returns what grows a second time.
func again(first, second []growth) (both []growth) {
	for _, g := range second {
		if slices.ContainsFunc(first, func(f growth) bool { return f.figure == g.figure && f.node == g.node }) {
			both = append(both, g)
		}
	}
	return both
}

func (g growth) String() string {
	f := figures[g.figure]
	return fmt.Sprintf("%s on %s grow: %.0f, then %.0f, then %.0f %s", f.name, g.node, g.after[0], g.after[1], g.after[2], f.unit+g.of)
}

// grows runs a round of kinds to begin with, and two that are compared. It returns the figures that grow
// in both by more than the strictest of the kinds may leave.
func (c *churn) grows(t *testing.T, kinds []kind) (grown []growth) {
	t.Helper()
	var limit [nFigures]float64
	for f := range limit {
		limit[f] = kinds[0].limit(f)
		for _, k := range kinds {
			limit[f] = min(limit[f], k.limit(f))
		}
	}
	c.round(t, kinds)
	rounds := [steps + 1]map[string]measure{c.rest(t, nil, limit)}
	for i := range steps {
		c.round(t, kinds)
		rounds[i+1] = c.rest(t, rounds[i], limit)
	}
	for _, n := range c.cluster.Nodes() {
		for f := range limit {
			g := growth{figure: f, node: n.Name}
			all := true
			for i := range rounds {
				g.after[i] = rounds[i][n.Name].figures[f]
				all = all && (i == 0 || g.after[i]-g.after[i-1] > limit[f])
			}
			if f == series {
				g.of = rounds[steps][n.Name].more(rounds[0][n.Name])
			}
			if all {
				grown = append(grown, g)
			}
		}
	}
	return grown
}

// resting is how long a figure has for going back to what it was.
const resting = 12 * time.Second

// rest waits until what only time takes away is gone, and measures the nodes. It measures again, and keeps
// the least of each figure, while one is more than it was before by more than a limit.
func (c *churn) rest(t *testing.T, before map[string]measure, limit [nFigures]float64) map[string]measure {
	t.Helper()
	least := map[string]measure{}
	var cpu time.Duration
	began := time.Now()
	cluster.AwaitEvery(t, 300*time.Millisecond, time.Minute, "history and events are gone, and the nodes rest", func() string {
		for _, n := range c.cluster.Nodes() {
			m, left := measureOf(t, n)
			if left != "" {
				return left
			}
			if was, ok := least[n.Name]; ok {
				for f := range m.figures {
					m.figures[f] = min(m.figures[f], was.figures[f])
				}
			}
			least[n.Name] = m
		}
		//wall: what is more after that time is reported only if the next rounds add to it again
		if time.Since(began) > resting {
			return ""
		}
		for name, m := range least {
			for f := range m.figures {
				if was, ok := before[name]; ok && m.figures[f]-was.figures[f] > limit[f] {
					return "a figure is more than it was"
				}
			}
		}
		return ""
	})
	for _, n := range c.cluster.Nodes() {
		cpu += n.CPU(t)
	}
	t.Logf("after %s of rest the nodes have used %s of CPU", time.Since(began).Round(time.Second), cpu)
	for _, n := range c.cluster.Nodes() {
		t.Logf("%s after %d cycles: %s", n.Name, c.made.Load(), least[n.Name])
	}
	return least
}
