package faults

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestSnapshotInstall lets a follower be away until the others have cut their
// logs: it must get a snapshot, and with it the same history.
func TestSnapshotInstall(t *testing.T) {
	cluster.SkipInShort(t, "it measures how long a fault lasts")
	c := cluster.Start(t, 3, "snapshot-entries=200", "trailing-logs=200", "snapshot-interval=200ms")
	const ns = "load"
	leader := c.Leader(t)
	away, stays := c.Others(leader)[0], c.Others(leader)[1]
	cluster.Namespace(t, leader, ns)
	begin, err := stays.Typed(t).CoreV1().ConfigMaps(ns).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "begin"}}, metav1.CreateOptions{})
	must.OK(t, err)
	load := startLoad(t, ns, 8, []*cluster.Node{leader, stays})
	load.awaitAcks(50)
	c.Kill(t, away)
	newest := leader.Metric(t, "quorate_history_newest")
	load.awaitAcks(1500)
	load.Stop()
	cluster.AwaitCompacted(t, newest, leader, stays)
	end, err := stays.Typed(t).CoreV1().ConfigMaps(ns).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "end"}}, metav1.CreateOptions{})
	must.OK(t, err)

	c.Restart(t, away)
	if n := away.Metric(t, "quorate_snapshots_installed_total"); n < 1 {
		t.Errorf("%s has caught up from the log; it was to need a snapshot", away.Name)
	}
	if n := stays.Metric(t, "quorate_snapshots_installed_total"); n != 0 {
		t.Errorf("%s was never away and installed %v snapshots", stays.Name, n)
	}
	load.verify(t, away)
	cluster.SameStates(t, c)
	want := leader.Watch(t, ns, begin.ResourceVersion, end.ResourceVersion)
	cluster.InOrder(t, leader.Name, want)
	seesAll(t, load, want)
	for _, n := range []*cluster.Node{stays, away} {
		cluster.SameEvents(t, n.Name, n.Watch(t, ns, begin.ResourceVersion, end.ResourceVersion), leader.Name, want)
	}
	// As it was half-way: an exact read far below the snapshot.
	path := "/api/v1/namespaces/" + ns + "/configmaps?resourceVersionMatch=Exact&resourceVersion=" + want[len(want)/2].ResourceVersion
	if string(away.MustGet(t, path)) != string(leader.MustGet(t, path)) {
		t.Errorf("%s and %s differ about the past", away.Name, leader.Name)
	}
}
