package faults

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestStopHandsOver ends leaders in order: leadership goes to a voter that is
// alive, although another one stands still, and not to the first of the
// list; a node that is the only voter has nobody to tell about it.
func TestStopHandsOver(t *testing.T) {
	cluster.SkipInShort(t, "it measures how long a fault lasts")
	t.Run("five", func(t *testing.T) {
		t.Parallel()
		c := cluster.Start(t, 5)
		leader := c.Leader(t)
		st, err := leader.Status(t)
		must.OK(t, err)
		// The member with the smallest id stands first in the configuration.
		var first *cluster.Node
		least := ""
		for _, m := range st.Members {
			if n := c.Node(t, m.Name); n != leader && (first == nil || m.ID < least) {
				first, least = n, m.ID
			}
		}
		cluster.Freeze(t, first)
		began := time.Now()
		c.Stop(t, leader)
		t.Logf("%s stopped in %d ms", leader.Name, time.Since(began).Milliseconds())
		saidOfStop(t, leader, "leadership transferred", true)
		saidOfStop(t, leader, "leadership was not handed over", false)
		rest := c.Others(leader, first)
		if next := c.Leader(t, rest...); next == first {
			t.Errorf("%s leads, which stands still", next.Name)
		}
	})
	t.Run("one", func(t *testing.T) {
		t.Parallel()
		c := cluster.Start(t, 1, cluster.Nonvoters+"1")
		voter := c.Nodes()[0]
		c.Stop(t, voter)
		saidOfStop(t, voter, "msg=stopping", true)
		saidOfStop(t, voter, "level=WARN", false)
	})
}

func saidOfStop(t *testing.T, n *cluster.Node, text string, want bool) {
	t.Helper()
	b, err := os.ReadFile(n.Log)
	must.OK(t, err)
	// The library stops replication, and says so later, if it has not noticed the new leader before.
	if i := bytes.LastIndex(b, []byte("msg=stopping\n")); i < 0 {
		t.Errorf("%s did not stop in order", n.Name)
	} else if line := b[bytes.LastIndexByte(b[:i], '\n')+1:]; bytes.Contains(line, []byte(text)) != want {
		t.Errorf("%s: %q in its last words is not %v:\n%s", n.Name, text, want, line)
	}
}
