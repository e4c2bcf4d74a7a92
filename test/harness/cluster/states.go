package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// SameStates awaits that all nodes have applied the same, and compares the
// rolling hashes of their states there.
func SameStates(t *testing.T, c *Cluster) {
	t.Helper()
	var hashes map[string]string
	Await(t, 30*time.Second, "all nodes are at the same revision", func() string {
		revisions := []string{}
		hashes = map[string]string{}
		for _, n := range c.Nodes() {
			revision, hash := n.StateHash(t)
			revisions = append(revisions, revision)
			hashes[n.Name] = hash
		}
		if len(slices.Compact(slices.Clone(revisions))) > 1 {
			return fmt.Sprint(revisions)
		}
		return ""
	})
	for name, hash := range hashes {
		if want := hashes[c.Nodes()[0].Name]; hash != want {
			t.Errorf("the state of %s has the hash %s, that of %s %s", name, hash, c.Nodes()[0].Name, want)
		}
	}
}

// AwaitCompacted waits until the logs of nodes begin behind an index, so that a member that has
// nothing beyond it needs a snapshot. A node compacts its log some time after the writes, so a
// member that is back at once may find in the log what it lacks.
func AwaitCompacted(t testing.TB, newest float64, nodes ...*Node) {
	t.Helper()
	Await(t, 60*time.Second, "the logs are compacted", func() string {
		for _, n := range nodes {
			if first := n.Metric(t, "quorate_log_first_index"); first <= newest+1 {
				return fmt.Sprintf("%s has the log from %.0f on; index %.0f was the newest when a member went away", n.Name, first, newest)
			}
		}
		return ""
	})
}
