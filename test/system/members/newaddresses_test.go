package members

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestAllMove stops all nodes and starts them with other peer addresses, as containers
// that come back in another order do, and with --join that names these. They find each
// other, elect, and announce the addresses; nothing is lost.
func TestAllMove(t *testing.T) {
	for _, row := range []struct {
		name string
		// to is which peer port each node has then; those from 3 on are new.
		to [3]int
	}{
		{"to new addresses", [3]int{3, 4, 5}},
		{"round", [3]int{1, 2, 0}},
		{"two for each other's", [3]int{1, 0, 2}},
		{"one behind the other", [3]int{1, 3, 2}},
	} {
		t.Run(row.name, func(t *testing.T) { allMove(t, row.to) })
	}
}

func allMove(t *testing.T, to [3]int) {
	c := cluster.Start(t, 3)
	const names = 8
	for i := range names {
		status, body := c.Nodes()[i%3].Send(t, http.MethodPost, cluster.ConfigMaps, fmt.Sprintf(`{"metadata":{"name":"old-%d"}}`, i))
		if status != http.StatusCreated {
			t.Fatalf("%d %s", status, body)
		}
	}
	c.Stop(t, c.Nodes()...)
	var peers []string
	for _, n := range c.Nodes() {
		peers = append(peers, n.Peer)
	}
	c.Forget(c.Nodes()...)
	port, err := cluster.FreePorts(6)
	must.OK(t, err)
	for i := range 3 {
		peers = append(peers, fmt.Sprintf("127.0.0.1:%d", port+3+i))
	}
	var join []string
	for _, at := range to {
		join = append(join, peers[at])
	}
	for i, at := range to {
		n := c.Launch(t, fmt.Sprintf("n%d", i+1), port+i, "--token-file", filepath.Join(c.Dir, "token"),
			"--join", strings.Join(join, ","), "--peer-address", peers[at])
		n.Peer = peers[at]
	}
	began := time.Now()
	for _, n := range c.Nodes() {
		n.AwaitReady(t)
	}
	t.Logf("ready at new addresses after %d ms", time.Since(began).Milliseconds())
	for _, n := range c.Nodes() {
		if status, body := n.Send(t, http.MethodPost, cluster.ConfigMaps, fmt.Sprintf(`{"metadata":{"name":"new-%s"}}`, n.Name)); status != http.StatusCreated {
			t.Errorf("%s: %d %s", n.Name, status, body)
		}
		for i := range names {
			n.MustGet(t, fmt.Sprintf("%s/old-%d", cluster.ConfigMaps, i))
		}
	}
	cluster.Await(t, 30*time.Second, "all addresses are announced", func() string {
		st, err := c.Nodes()[0].Status(t)
		if err != nil {
			return err.Error()
		}
		for _, m := range st.Members {
			if n := c.Node(t, m.Name); m.PeerAddress != n.Peer || !m.Voter {
				return fmt.Sprintf("%s is at %s, not at %s", m.Name, m.PeerAddress, n.Peer)
			}
		}
		return ""
	})
	cluster.SameStates(t, c)
}
