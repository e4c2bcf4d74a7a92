package faults

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// failoverWithin bounds the time without acknowledged writes, and without Most
// Recent reads on any surviving node, after kill -9 of the leader.
const failoverWithin = time.Second

// TestFailover is the story of a cluster that loses its leader under load, gets
// it back, and then loses all nodes at once. Nothing acknowledged is lost, no
// event is seen twice, late or not at all.
func TestFailover(t *testing.T) {
	c := cluster.Start(t, 3)
	const ns = "load"
	first := c.Nodes()[0]
	cluster.Namespace(t, first, ns)
	marker, err := first.Typed(t).CoreV1().ConfigMaps(ns).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "marker"}}, metav1.CreateOptions{})
	must.OK(t, err)
	leader := c.Leader(t)
	survivors := c.Others(leader)

	// A kubectl and a client-go watch hang on the two surviving nodes. Of what there was before, the first shows
	// the marker alone.
	kubectl := survivors[0].KubectlBackground(t, "-n", ns, "get", "configmaps", "-w", "--output-watch-events", "-o", "json",
		"--field-selector", "metadata.name!="+cluster.RootsName)
	cluster.Await(t, 10*time.Second, "kubectl get -w shows the marker", func() string {
		if events := cluster.ParseKubectlWatch(t, kubectl.Output()); len(events) == 0 {
			return "it shows nothing"
		}
		return ""
	})
	live := cluster.StartWatch(t, survivors[1], ns, marker.ResourceVersion)

	load := startLoad(t, ns, 8, c.Nodes(), survivors...)
	readers := []*reader{startReader(t, survivors[0], ns, "marker"), startReader(t, survivors[1], ns, "marker")}
	load.awaitAcks(300)
	killed := time.Now()
	c.Kill(t, leader)
	load.awaitAcks(300)
	load.Stop()
	for _, r := range readers {
		r.Stop()
	}

	writes := gap(load.done, killed)
	t.Logf("kill -9 of the leader under 8 writers: %d ms without acknowledged writes; %d acknowledged in all, %d unknown, the slowest call took %d ms",
		writes.Milliseconds(), load.acks.Load(), load.unknown.Load(), load.slowest.Milliseconds())
	if writes >= failoverWithin {
		t.Errorf("no write was acknowledged for %s, allowed are %s", writes, failoverWithin)
	}
	for _, r := range readers {
		reads := gap(r.done, killed)
		t.Logf("%s: %d ms without Most Recent reads; %d reads, %d failed, the slowest took %d ms",
			r.node.Name, reads.Milliseconds(), len(r.done), len(r.failed), r.slowest.Milliseconds())
		if reads >= failoverWithin {
			t.Errorf("%s served no Most Recent read for %s, allowed are %s; failures: %v", r.node.Name, reads, failoverWithin, first3(r.failed))
		}
	}
	for _, n := range survivors {
		load.verify(t, n)
	}

	// The end of the story so far is an event that every watch must reach.
	last, err := survivors[0].Typed(t).CoreV1().ConfigMaps(ns).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "last"}}, metav1.CreateOptions{})
	must.OK(t, err)
	history := live.Until(t, last.ResourceVersion)
	cluster.InOrder(t, "client-go's watch", history)
	seesAll(t, load, history)
	var printed []cluster.Event
	cluster.Await(t, 20*time.Second, "kubectl get -w shows the last event", func() string {
		printed = cluster.ParseKubectlWatch(t, kubectl.Output())
		if len(printed) == 0 || printed[len(printed)-1].Name != "last" {
			return fmt.Sprintf("it shows %d events", len(printed))
		}
		return ""
	})
	cluster.SameEvents(t, "kubectl get -w", printed[1:], "client-go's watch", history)

	// The killed node comes back and has what it missed.
	c.Restart(t, leader)
	load.verify(t, leader)
	cluster.SameStates(t, c)
	cluster.SameEvents(t, "a watch on "+leader.Name+" from before its death", leader.Watch(t, ns, marker.ResourceVersion, last.ResourceVersion), "the live watch", history)

	// All three at once. The half of the history is where a client comes back to.
	middle := history[len(history)/2]
	before := map[string]string{}
	for _, n := range c.Nodes() {
		before[n.Name] = string(n.MustGet(t, "/api/v1/configmaps?resourceVersion="+last.ResourceVersion+"&resourceVersionMatch=Exact"))
	}
	c.Kill(t, c.Nodes()...)
	c.RestartAll(t)
	cluster.SameStates(t, c)
	for _, n := range c.Nodes() {
		load.verify(t, n)
		if after := string(n.MustGet(t, "/api/v1/configmaps?resourceVersion="+last.ResourceVersion+"&resourceVersionMatch=Exact")); after != before[first.Name] {
			t.Errorf("%s lists other bytes at %s than %s did before the restart", n.Name, last.ResourceVersion, first.Name)
		}
		cluster.SameEvents(t, "a watch resumed on "+n.Name, n.Watch(t, ns, middle.ResourceVersion, last.ResourceVersion), "the live watch", history[len(history)/2+1:])
	}
}

func first3(errs []error) []error { return errs[:min(3, len(errs))] }

// seesAll checks that every acknowledged write is among the events, as the one
// with its resourceVersion.
func seesAll(t *testing.T, l *load, events []cluster.Event) {
	t.Helper()
	at := map[string]string{}
	for _, e := range events {
		at[e.ResourceVersion] = e.Name
	}
	for name, o := range l.objects {
		if o.acked != "" && at[o.acked] != name {
			t.Errorf("the acknowledged write of %s at %s was not seen: there was %q", name, o.acked, at[o.acked])
		}
	}
}
