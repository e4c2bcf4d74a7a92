package faults

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/bench/burst"
	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

const (
	// burstProcs bounds the processors of each node: with as many as a large machine has, no burst fills them.
	burstProcs = "2"
	// burstDelay bounds what Raft waits for a processor, at the 99th percentile, beside other programs too. It is a quarter of
	// what a heartbeat may take.
	burstDelay = 400 * time.Millisecond
	// burstWithin is how long writes may stop when the leader dies in a burst.
	burstWithin = 2 * time.Second
)

// burstOn are options of a burst, and where it goes.
func burstOn(t *testing.T, c *cluster.Cluster, user string) (client.Cluster, burst.Options) {
	t.Helper()
	var target client.Cluster
	for _, n := range c.Nodes() {
		config, err := n.TLS()
		must.OK(t, err)
		target.TLS = config
		target.Nodes = append(target.Nodes, client.Node{Name: n.Name, API: n.API, PID: n.PID})
	}
	o := burst.DefaultOptions()
	o.User, o.Duration = user, 10*time.Second
	return target, o
}

func logBurst(t *testing.T, r *burst.Report) {
	t.Helper()
	var text strings.Builder
	if err := r.Doc().WriteTable(&text); err != nil {
		t.Error(err)
	}
	t.Log(text.String())
}

// TestBurst: 900 clients that apply the same objects as fast as they can, as an administrator and as a tenant, do not keep
// Raft from running. No patch is lost, nobody else fails, and there is no election.
func TestBurst(t *testing.T) {
	cluster.SkipInShort(t, "it measures what a load does")
	t.Setenv("GOMAXPROCS", burstProcs)
	c := cluster.Start(t, 3)
	for _, user := range burst.Users {
		t.Run(user, func(t *testing.T) {
			target, o := burstOn(t, c, user)
			r, err := burst.Run(t.Context(), target, o)
			must.OK(t, err)
			logBurst(t, r)
			if r.Failed() {
				t.Errorf("%d patches lost, %d acknowledged ones, %d elections, %d watches cut", r.Lost(), len(r.LostWrites), r.Elections, r.WatchesCut)
			}
			if r.Latency.Count < int64(o.Clients) || r.RaftDelay.Count == 0 {
				t.Errorf("only %d patches, Raft's wait was measured %d times", r.Latency.Count, r.RaftDelay.Count)
			}
			if p99 := time.Duration(r.RaftDelay.P99Ms * float64(time.Millisecond)); p99 > burstDelay {
				t.Errorf("Raft waited for a processor for %v, allowed are %v", p99, burstDelay)
			}
		})
	}
	cluster.SameStates(t, c)
}

// TestBurstWithoutSlots: what TestBurst measures is kept low by slots. Without them Raft waits for a processor several times as
// long beside the same load. One is held against the other, because how long both wait follows from the machine.
func TestBurstWithoutSlots(t *testing.T) {
	cluster.SkipInShort(t, "it measures what a load does")
	t.Setenv("GOMAXPROCS", burstProcs)
	wait := map[string]float64{} // ms, on average
	for name, start := range map[string]func(t *testing.T) *cluster.Cluster{
		"with": func(t *testing.T) *cluster.Cluster { return cluster.Start(t, 3) },
		"without": func(t *testing.T) *cluster.Cluster {
			return cluster.StartPlanted(t, 3, cluster.PlantedProgram(t), "requests-without-slots")
		},
	} {
		t.Run(name, func(t *testing.T) {
			target, o := burstOn(t, start(t), burst.Administrator)
			o.Clients *= 3 // more than a fast machine serves in time, too
			r, err := burst.Run(t.Context(), target, o)
			if r == nil {
				t.Fatal(err) // what others see of it is no matter here
			}
			logBurst(t, r)
			wait[name] = r.RaftDelay.MeanMs
		})
	}
	// The second is for a machine on which others make both wait.
	if with, without := wait["with"], wait["without"]; without < 2*with && without < with+10 {
		t.Errorf("Raft waited for a processor for %.1f ms on average without slots, and for %.1f with them", without, with)
	}
}

// TestLeaderLostInABurst: a leader that is killed, or stands still, in a burst is replaced as soon as without one.
func TestLeaderLostInABurst(t *testing.T) {
	cluster.SkipInShort(t, "it measures how long a fault lasts")
	t.Setenv("GOMAXPROCS", burstProcs)
	for _, x := range []struct {
		name string
		lose func(t *testing.T, c *cluster.Cluster, n *cluster.Node)
		back func(t *testing.T, c *cluster.Cluster, n *cluster.Node)
	}{
		{"killed", func(t *testing.T, c *cluster.Cluster, n *cluster.Node) { c.Kill(t, n) }, func(t *testing.T, c *cluster.Cluster, n *cluster.Node) { c.Restart(t, n) }},
		{"frozen", func(t *testing.T, _ *cluster.Cluster, n *cluster.Node) { cluster.Freeze(t, n) }, func(t *testing.T, _ *cluster.Cluster, n *cluster.Node) { cluster.Thaw(t, n) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := cluster.Start(t, 3)
			first := c.Nodes()[0]
			first.Kubectl(t, "create", "namespace", "load")
			target, o := burstOn(t, c, burst.Administrator)
			o.Timeout = 20 * time.Second // of clients of the one that stands still
			b, err := burst.Start(t.Context(), target, o)
			must.OK(t, err)
			leader := c.Leader(t)
			survivors := c.Others(leader)
			load := startLoad(t, "load", 4, survivors, survivors...)
			load.awaitAcks(20)
			began := time.Now()
			x.lose(t, c, leader)
			load.awaitAcks(20)
			writes := gap(load.done, began)
			x.back(t, c, leader)
			load.Stop()
			r, err := b.End(context.WithoutCancel(t.Context()))
			must.OK(t, err)
			logBurst(t, r)
			t.Logf("%d ms without acknowledged writes", writes.Milliseconds())
			if writes > burstWithin {
				t.Errorf("no write was acknowledged for %s, allowed are %s", writes, burstWithin)
			}
			if len(r.LostWrites) > 0 {
				t.Errorf("%d patches are lost that were acknowledged: %v", len(r.LostWrites), r.LostWrites[:1])
			}
			for _, n := range c.Nodes() {
				load.verify(t, n)
			}
		})
	}
}
