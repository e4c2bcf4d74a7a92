package faults

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/test/harness/cluster"
)

// silenceWithin bounds the time without acknowledged writes, and without Most Recent reads on any
// other node, after the leader fell silent.
const silenceWithin = 2 * time.Second

// TestFrozenLeader: a leader that stands still is replaced within two seconds, and no request to
// another node fails. A follower that stood still for longer than that finds, when it goes on, the
// same leader in the same term.
func TestFrozenLeader(t *testing.T) {
	cluster.SkipInShort(t, "it measures how long a fault lasts")
	c := cluster.Start(t, 3)
	const ns = "load"
	first := c.Nodes()[0]
	first.Kubectl(t, "create", "namespace", ns)
	if _, err := first.Typed(t).CoreV1().ConfigMaps(ns).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "marker"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	frozen := c.Leader(t)
	survivors := c.Others(frozen)
	load := startLoad(t, ns, 4, survivors, survivors...)
	readers := []*reader{startReader(t, survivors[0], ns, "marker"), startReader(t, survivors[1], ns, "marker")}
	load.awaitAcks(100)
	began := time.Now()
	cluster.Freeze(t, frozen)
	load.awaitAcks(100)
	next := c.Leader(t, survivors...)
	cluster.Thaw(t, frozen)
	load.awaitAcks(100)
	load.Stop()
	for _, r := range readers {
		r.Stop()
	}
	writes := gap(load.done, began)
	t.Logf("a frozen leader under 4 writers: %d ms without acknowledged writes, %d unknown, the slowest call took %d ms",
		writes.Milliseconds(), load.unknown.Load(), load.slowest.Milliseconds())
	if n := load.unknown.Load(); writes > silenceWithin || n > 0 {
		t.Errorf("no write was acknowledged for %s, allowed are %s; the outcome of %d is unknown", writes, silenceWithin, n)
	}
	for _, r := range readers {
		reads := gap(r.done, began)
		t.Logf("%s: %d ms without Most Recent reads", r.node.Name, reads.Milliseconds())
		if reads > silenceWithin || len(r.failed) > 0 {
			t.Errorf("%s served no Most Recent read for %s, allowed are %s; failures: %v", r.node.Name, reads, silenceWithin, first3(r.failed))
		}
	}
	for _, n := range c.Nodes() {
		load.verify(t, n)
	}

	// Now a follower.
	before := next.Metric(t, "quorate_raft_term")
	follower := c.Others(next)[0]
	cluster.Freeze(t, follower)
	pause := time.NewTimer(2 * silenceWithin)
	<-pause.C
	cluster.Thaw(t, follower)
	pause.Reset(2 * silenceWithin) // in which it would campaign
	<-pause.C
	if after := next.Metric(t, "quorate_raft_term"); before != after || c.Leader(t) != next {
		t.Errorf("term %v has become %v when a follower that had stood still went on", before, after)
	}
}
