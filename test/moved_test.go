package test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAllMove stops all nodes and starts them with other peer ports, as containers
// that come back with other addresses do, and with --join that names these. They
// find each other, elect, and announce the addresses; nothing is lost.
func TestAllMove(t *testing.T) {
	c := Start(t, 3)
	const names = 8
	for i := range names {
		status, body := c.Nodes()[i%3].send(t, http.MethodPost, configMaps, fmt.Sprintf(`{"metadata":{"name":"old-%d"}}`, i))
		if status != http.StatusCreated {
			t.Fatalf("%d %s", status, body)
		}
	}
	c.Stop(t, c.Nodes()...)
	old := map[string]string{} // peer address by name
	for _, n := range c.Nodes() {
		old[n.Name] = n.Peer
	}
	c.nodes = nil
	port, err := freePorts(len(old))
	if err != nil {
		t.Fatal(err)
	}
	var join []string
	for i := range len(old) {
		join = append(join, fmt.Sprintf("127.0.0.1:%d", port+i+1000))
	}
	for i := range len(old) {
		c.Launch(t, fmt.Sprintf("n%d", i+1), port+i, "--token-file", filepath.Join(c.dir, "token"), "--join", strings.Join(join, ","))
	}
	began := time.Now()
	for _, n := range c.Nodes() {
		n.AwaitReady(t)
	}
	t.Logf("ready at new addresses after %d ms", time.Since(began).Milliseconds())
	for _, n := range c.Nodes() {
		if status, body := n.send(t, http.MethodPost, configMaps, fmt.Sprintf(`{"metadata":{"name":"new-%s"}}`, n.Name)); status != http.StatusCreated {
			t.Errorf("%s: %d %s", n.Name, status, body)
		}
		for i := range names {
			n.MustGet(t, fmt.Sprintf("%s/old-%d", configMaps, i))
		}
	}
	Await(t, 20*time.Second, "all addresses are announced", func() string {
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
	sameStates(t, c)
}
