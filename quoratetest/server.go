package quoratetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/node"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Server is a running server: a cluster of one node, or of several, in this process. Its methods
// may be called concurrently.
type Server struct {
	dir   string
	made  bool // dir is ours to remove
	nodes []*node.Node

	configs    []*rest.Config // of the nodes
	kubeconfig []byte         // of the first node

	end     context.CancelFunc
	running sync.WaitGroup
	mu      sync.Mutex
	errs    []error // of Run; guarded by mu
	stopped sync.Once
	stopErr error
}

// Option is an option of Start and Open.
type Option func(*options)

type options struct {
	nodes     int
	dir       string
	within    time.Duration
	configure []func(*node.Config)
}

// Nodes is how many nodes the cluster has, all of them voters. Default: 1.
func Nodes(n int) Option { return func(o *options) { o.nodes = n } }

// Dir is where the data is kept: another Open with the same directory goes on with it. Default: a
// temporary directory, which Stop removes.
func Dir(dir string) Option { return func(o *options) { o.dir = dir } }

// Within bounds how long the server may take to become ready. Default: 30 s, for machines with much
// else to do.
func Within(d time.Duration) Option { return func(o *options) { o.within = d } }

// Configure changes the settings of each node, for feature gates, audit, or a log. What the nodes
// need to find each other is not to be changed: names, addresses, listeners, directories, the
// secret.
func Configure(change func(*node.Config)) Option {
	return func(o *options) { o.configure = append(o.configure, change) }
}

// Start starts a server for a test, which fails if it does not become ready. The server stops when
// the test and all its subtests have ended.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s, err := Open(t.Context(), opts...)
	if err != nil {
		t.Fatalf("quoratetest: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("quoratetest: %v", err)
		}
	})
	return s
}

// Open starts a server for others than a single test, for TestMain for example, and returns when it
// is ready. ctx bounds that; the server goes on until Stop. An error says which node is not ready
// for what, and leaves nothing behind.
func Open(ctx context.Context, opts ...Option) (*Server, error) {
	o := options{nodes: 1, within: 30 * time.Second}
	for _, opt := range opts {
		opt(&o)
	}
	if o.nodes < 1 || o.nodes > maxNodes {
		return nil, fmt.Errorf("%d nodes: must be 1 to %d", o.nodes, maxNodes)
	}
	ctx, cancel := context.WithTimeout(ctx, o.within)
	defer cancel()
	s := &Server{dir: o.dir}
	if err := s.start(ctx, o); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// maxNodes is the most that can form a cluster.
const maxNodes = 9

func (s *Server) start(ctx context.Context, o options) (err error) {
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "quoratetest-"); err != nil {
			return err
		}
		s.made = true
	}
	configs, err := s.configure(o)
	if err != nil {
		return err
	}
	// A node is not to be cut off by the context that bounds the start.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	s.end = end
	if err := s.open(ctx, life, configs); err != nil {
		return err
	}
	for _, n := range s.nodes {
		if err := n.Ready(ctx); err != nil {
			return err
		}
		kubeconfig, err := n.Kubeconfig()
		if err != nil {
			return err
		}
		c, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
		if err != nil {
			return err
		}
		c.QPS = -1 // a test does not wait for itself
		if s.configs = append(s.configs, c); s.kubeconfig == nil {
			s.kubeconfig = kubeconfig
		}
	}
	return nil
}

// open opens all nodes at once, and runs them until life ends.
func (s *Server) open(ctx, life context.Context, configs []node.Config) error {
	nodes, errs := make([]*node.Node, len(configs)), make([]error, len(configs))
	var wg sync.WaitGroup
	for i, c := range configs {
		wg.Go(func() {
			if nodes[i], errs[i] = node.Open(ctx, c); errs[i] != nil {
				errs[i] = fmt.Errorf("node %s: %w", c.Name, errs[i])
			}
		})
	}
	wg.Wait()
	for _, n := range nodes {
		if n == nil {
			continue
		}
		s.nodes = append(s.nodes, n)
		s.running.Go(func() {
			if err := n.Run(life); err != nil {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.errs = append(s.errs, fmt.Errorf("node %s: %w", n.Name(), err))
			}
		})
	}
	return errors.Join(errs...)
}

// configure are the settings of the nodes. Their listeners are open: the kernel has chosen the ports.
func (s *Server) configure(o options) (out []node.Config, err error) {
	secret := filepath.Join(s.dir, "token")
	if _, err := os.Stat(secret); errors.Is(err, os.ErrNotExist) {
		b := make([]byte, 32)
		rand.Read(b)
		if err := os.WriteFile(secret, []byte(hex.EncodeToString(b)+"\n"), 0o600); err != nil {
			return nil, err
		}
	}
	var peers []string
	for i := range o.nodes {
		c := node.Defaults()
		c.Name, c.TokenFile, c.BootstrapExpect = fmt.Sprintf("n%d", i+1), secret, o.nodes
		c.DataDir = filepath.Join(s.dir, c.Name)
		for _, l := range []*net.Listener{&c.APIListener, &c.PeerListener} {
			if *l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
				return out, err
			}
		}
		peers = append(peers, c.PeerListener.Addr().String())
		c.ShutdownGrace = 0 // nobody waits for what a test has left
		out = append(out, c)
	}
	for i := range out {
		if o.nodes > 1 {
			out[i].Join = peers
		}
		for _, change := range o.configure {
			change(&out[i])
		}
	}
	return out, nil
}

// Config is how clients reach the server: its first node, as an administrator, without a limit of
// their rate. It is the caller's: with Impersonate it is another user's, whose roles count.
func (s *Server) Config() *rest.Config { return rest.CopyConfig(s.configs[0]) }

// Configs are how clients reach each node, as an administrator. They are the caller's.
func (s *Server) Configs() []*rest.Config {
	out := make([]*rest.Config, len(s.configs))
	for i, c := range s.configs {
		out[i] = rest.CopyConfig(c)
	}
	return out
}

// Kubeconfig is the content of a file with which kubectl and other programs reach the server: its
// first node, as an administrator.
func (s *Server) Kubeconfig() []byte { return bytes.Clone(s.kubeconfig) }

// Stop ends the server at once, and what clients have open with it: goroutines, connections and
// ports are back when it returns, and the data is removed unless it has a directory of the
// caller's. It may be called more than once.
func (s *Server) Stop() error {
	s.stopped.Do(func() {
		if s.end != nil {
			s.end()
		}
		s.running.Wait()
		errs := s.errs
		for _, n := range s.nodes {
			errs = append(errs, n.Close())
		}
		if s.made {
			errs = append(errs, os.RemoveAll(s.dir))
		}
		s.stopErr = errors.Join(errs...)
	})
	return s.stopErr
}
