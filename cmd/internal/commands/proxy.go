package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/apiserver/backends/egress/tunnel"
	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/internal/hostport"
	"github.com/quorate/quorate/internal/localproxy"
	"github.com/spf13/cobra"
)

// proxySettings are what `quorate proxy` is told.
type proxySettings struct {
	listen                string
	servers               []string
	kubeconfig, nodesFile string
	interval              time.Duration
	failures, connections int
	logFormat, logLevel   string
	tunnel                bool
	nodeName              string
	kubeletPort           uint16
	networks              []string
}

func proxyCommand() *cobra.Command {
	s := &proxySettings{}
	c := &cobra.Command{
		Use: "proxy", Short: "Pass a host's connections to nodes that are well", Args: cli.NoArguments,
		Long: `Runs on a worker, for its kubelet, kube-proxy and Pods: whatever connects to
--listen is connected to one of the nodes. TLS is between the client and the
node; nothing is decrypted here. Nodes are asked for /readyz; one that does not
answer, because it is dead, paused or cut off, loses its connections, so that
clients dial again in seconds. Their own timeouts take up to 45.

With --kubeconfig the nodes are those of the Service kubernetes, and --server is
where to begin, and where to go while none of them answers. The kubeconfig's
user has to read EndpointSlices in the namespace default. The file may come
later: a kubelet writes it when it has joined. With --nodes-file the list
outlives the host's restart.`,
		Example: `  quorate proxy --server 192.0.2.1:6443,192.0.2.2:6443,192.0.2.3:6443 \
    --kubeconfig /etc/kubernetes/kubelet.conf --nodes-file /var/lib/quorate-proxy/nodes.json`,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context()) },
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&s.listen, "listen", "127.0.0.1:6443", "host:port for the clients of this host")
	f.StringSliceVar(&s.servers, "server", nil, "host:port of nodes to begin with")
	f.StringVar(&s.kubeconfig, "kubeconfig", "", "kubeconfig of the user who reads the list of the nodes; its server's address does not matter, its name in TLS does")
	f.StringVar(&s.nodesFile, "nodes-file", "", "file that the list of the nodes is kept in, for the next start; needs --kubeconfig")
	f.DurationVar(&s.interval, "probe-interval", time.Second, "how often each node is asked for /readyz, and how long it may take to answer")
	f.IntVar(&s.failures, "probe-failures", 3, "how many times in a row a node does not answer before its connections end")
	f.IntVar(&s.connections, "max-connections", 4096, "connections at once")
	f.BoolVar(&s.tunnel, "tunnel", false, "open tunnels to all nodes, through which they call the kubelet of this host, and what is in --tunnel-networks; needs --kubeconfig")
	f.StringVar(&s.nodeName, "node-name", "", "name of this host's Node, whose kubelet tunnels lead to; - offers no kubelet")
	cli.DefaultIs(f, "node-name", "the name of the host in lower case")
	f.Uint16Var(&s.kubeletPort, "kubelet-port", 10250, "port of this host's kubelet")
	f.StringSliceVar(&s.networks, "tunnel-networks", nil, "CIDRs of Pods and Services that this host can reach and offers to nodes; the kubeconfig's user needs get on /quorate/tunnels/networks")
	f.StringVar(&s.logFormat, "log-format", "auto", "text, json, or auto (text on a terminal)")
	f.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	cli.Files(c, cli.Note{"NODES-FILE", "the nodes that there were last, as JSON"})
	return c
}

// check returns all that is wrong, and the nodes to begin with. damaged is why those of the nodes file
// are not among them.
func (s *proxySettings) check() (nodes []string, damaged, _ error) {
	errs := []error{hostport.Check(s.listen, false)}
	for _, server := range s.servers {
		if err := hostport.Check(server, true); err != nil {
			errs = append(errs, fmt.Errorf("server: %w", err))
		}
	}
	if s.nodesFile != "" && s.kubeconfig == "" {
		errs = append(errs, errors.New("nodes-file: needs --kubeconfig"))
	}
	if s.interval < 10*time.Millisecond || s.failures < 1 || s.connections < 1 {
		errs = append(errs, errors.New("probe-interval must be at least 10ms, probe-failures and max-connections at least 1"))
	}
	if _, err := s.agent(nil); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, (&settings{LogFormat: s.logFormat, LogLevel: s.logLevel}).checkLog())
	nodes = slices.Clone(s.servers)
	if s.nodesFile != "" {
		var kept []string
		kept, damaged = localproxy.ReadMembers(s.nodesFile)
		nodes = append(nodes, kept...)
	}
	switch {
	case len(nodes) == 0 && damaged != nil:
		errs = append(errs, fmt.Errorf("nodes-file: %w: remove the file, and name at least one node to begin with by --server", damaged))
	case len(nodes) == 0:
		errs = append(errs, errors.New("server: at least one node is needed to begin with"))
	}
	return nodes, damaged, errors.Join(errs...)
}

func (s *proxySettings) run(ctx context.Context) error {
	nodes, damaged, err := s.check()
	if err != nil {
		return err
	}
	log, _ := newLogger(&settings{LogFormat: s.logFormat, LogLevel: s.logLevel}, os.Stderr)
	libraryLogs(log)
	if damaged != nil {
		log.Warn("cannot read the nodes file, going on with --server; it is written again when the list of the nodes has been read", "file", s.nodesFile, "err", damaged)
	}
	l, err := net.Listen("tcp", s.listen)
	if err != nil {
		return err
	}
	for _, server := range s.servers {
		if localproxy.IsItself(l.Addr(), server) {
			return errors.Join(fmt.Errorf("server: %s is where this proxy listens: a node's own address is needed", server), l.Close())
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := localproxy.New(localproxy.Config{Nodes: nodes, Seeds: s.servers, Itself: l.Addr(), Every: s.interval, Failures: s.failures, MaxConnections: s.connections, Log: log})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if s.kubeconfig != "" {
		m := &localproxy.Members{Kubeconfig: s.kubeconfig, File: s.nodesFile, Balancer: b, Log: log}
		wg.Go(func() { m.Run(ctx) })
	}
	if s.tunnel {
		a, err := s.agent(log)
		if err != nil {
			return err
		}
		a.Servers = b.Nodes
		wg.Go(func() { a.Run(ctx) })
	}
	log.Info("this proxy listens", "address", l.Addr().String(), "nodes", nodes)
	return b.Run(ctx, l)
}

// agent is what opens tunnels.
func (s *proxySettings) agent(log *slog.Logger) (*tunnel.Agent, error) {
	var errs []error
	if s.tunnel && s.kubeconfig == "" {
		errs = append(errs, errors.New("tunnel: needs --kubeconfig"))
	}
	if !s.tunnel && len(s.networks) > 0 {
		errs = append(errs, errors.New("tunnel-networks: needs --tunnel"))
	}
	host, _ := os.Hostname()
	host = strings.ToLower(host)
	a := &tunnel.Agent{Node: cmp.Or(s.nodeName, host), Name: host, KubeletPort: s.kubeletPort, Kubeconfig: s.kubeconfig, Log: log}
	if s.nodeName == "-" {
		a.Node = ""
	}
	for _, n := range s.networks {
		p, err := netip.ParsePrefix(n)
		if err != nil {
			errs = append(errs, fmt.Errorf("tunnel-networks: %w", err))
			continue
		}
		a.Networks = append(a.Networks, p.Masked())
	}
	return a, errors.Join(errs...)
}
