package commands

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// TestDamagedNodesFile: the file is only kept for the next start. A proxy that has --server starts without
// it; one that has not says what to do.
func TestDamagedNodesFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "nodes.json")
	for _, text := range []string{`{bad`, ``, `{"version":9,"nodes":["10.0.0.2:6443"]}`, `{"version":1,"nodes":["10.0.0.2"]}`} {
		must.OK(t, os.WriteFile(file, []byte(text), 0o600))
		s := proxySettings{listen: "127.0.0.1:0", servers: []string{"10.0.0.1:6443"}, kubeconfig: "later", nodesFile: file, interval: 1e9, failures: 1, connections: 1, logFormat: "auto", logLevel: "info"}
		nodes, damaged, err := s.check()
		if err != nil || !slices.Equal(nodes, s.servers) || damaged == nil || !strings.Contains(damaged.Error(), file) {
			t.Errorf("%q: goes on with %v, says %v, ends with %v", text, nodes, damaged, err)
		}
		s.servers = nil
		if _, _, err := s.check(); err == nil || !strings.Contains(err.Error(), "remove the file") || !strings.Contains(err.Error(), "nodes-file: "+file) || !strings.Contains(err.Error(), "--server") {
			t.Errorf("%q, without --server: %v", text, err)
		}
	}
	must.OK(t, os.WriteFile(file, []byte(`{"version":1,"nodes":["10.0.0.2:6443"]}`), 0o600))
	s := proxySettings{listen: "127.0.0.1:0", kubeconfig: "later", nodesFile: file, interval: 1e9, failures: 1, connections: 1, logFormat: "auto", logLevel: "info"}
	if nodes, damaged, err := s.check(); err != nil || damaged != nil || !slices.Equal(nodes, []string{"10.0.0.2:6443"}) {
		t.Errorf("a file that is well: %v, %v, %v", nodes, damaged, err)
	}
}

// TestProxyOfItself: a proxy that would connect to itself does not start.
func TestProxyOfItself(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
	must.OK(t, err)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, x := range []struct {
		listen, server string
		refused        bool
	}{
		{"127.0.0.1:" + port, "127.0.0.1:" + port, true},
		{"127.0.0.1:" + port, "localhost:" + port, true},
		{"localhost:" + port, "localhost:" + port, true},
		{":" + port, "127.0.0.1:" + port, true},
		{"127.0.0.1:" + port, "127.0.0.2:" + port, false}, // a node on the same host
	} {
		s := proxySettings{listen: x.listen, servers: []string{"192.0.2.1:6443", x.server}, interval: 1e9, failures: 1, connections: 1, logFormat: "auto", logLevel: "error"}
		if err := s.run(ctx); (err != nil) != x.refused || err != nil && !strings.Contains(err.Error(), "server: "+x.server) {
			t.Errorf("--listen %s --server %s: %v", x.listen, x.server, err)
		}
	}
}
