package faults

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestLeaderIsNotDialled leaves the leader able to dial the others and not to be
// dialled by them, as a firewall on its host does. It goes on leading, and writes
// and Most Recent reads through the followers go over what it has offered them.
func TestLeaderIsNotDialled(t *testing.T) {
	cluster.SkipInShort(t, "it measures how long a fault lasts")
	c := cluster.Start(t, 3)
	c.Leader(t)
	old := c.Nodes()[0]
	c.Stop(t, old)
	link, err := cluster.NewLink(old.Peer)
	must.OK(t, err)
	t.Cleanup(func() { must.Close(t, link) })
	c.Forget(old)
	followers := c.Nodes()
	port, err := strconv.Atoi(old.API[strings.LastIndexByte(old.API, ':')+1:])
	must.OK(t, err)
	leader := c.Launch(t, old.Name, port, "--token-file", filepath.Join(c.Dir, "token"), "--peer-advertise-address", link.Addr)
	leader.AwaitReady(t)
	cluster.Await(t, 20*time.Second, leader.Name+" is known behind the link", func() string {
		st, err := followers[0].Status(t)
		for _, m := range st.Members {
			if m.Name == leader.Name && m.PeerAddress == link.Addr {
				return ""
			}
		}
		return fmt.Sprint(st, err)
	})
	cluster.Await(t, 30*time.Second, leader.Name+" leads", func() string {
		if out, err := c.TryQuorate(t, "member", "transfer-leader", leader.Name, "--kubeconfig", c.Kubeconfig); err != nil {
			return out
		}
		if now := c.Leader(t, followers[0]); now != leader {
			return now.Name + " does"
		}
		return ""
	})
	for _, n := range followers {
		n.MustGet(t, cluster.ConfigMaps)
	}
	link.Silence()
	began := time.Now()
	for _, n := range followers {
		first := true
		cluster.Await(t, 10*time.Second, n.Name+" writes", func() string {
			status, body := n.Send(t, http.MethodPost, cluster.ConfigMaps, fmt.Sprintf(`{"metadata":{"name":"first-%s"}}`, n.Name))
			if status != http.StatusCreated && (first || status != http.StatusConflict) {
				first = false
				return fmt.Sprint(status, " ", string(body))
			}
			return ""
		})
		t.Logf("%s writes again %d ms after the cut", n.Name, time.Since(began).Milliseconds())
	}
	// For longer than a follower would wait for a leader.
	for i := 0; time.Since(began) < 5*time.Second; i++ {
		for _, n := range followers {
			if status, body := n.Send(t, http.MethodPost, cluster.ConfigMaps, fmt.Sprintf(`{"metadata":{"name":"%s-%d"}}`, n.Name, i)); status != http.StatusCreated {
				t.Fatalf("%s: a write: %d %s", n.Name, status, body)
			}
			n.MustGet(t, fmt.Sprintf("%s/%s-%d", cluster.ConfigMaps, n.Name, i))
		}
	}
	if now := c.Leader(t, followers[0]); now != leader {
		t.Errorf("%s leads", now.Name)
	}
}
