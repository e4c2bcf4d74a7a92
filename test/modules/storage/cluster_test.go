package storage

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/membership/pki"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore"
	"github.com/quorate/quorate/raftstore/peer"
)

// patience bounds every wait of a test.
const patience = 30 * time.Second

// cluster is three nodes in this process: real peer ports over loopback, and an
// API server on each.
type cluster struct {
	nodes []*node
	// kinds are handed out one by one, so that every test has an empty table.
	mu    sync.Mutex
	kinds []*kinds.Resource

	registry *kinds.Registry
	secret   []pki.Secret
}

type node struct {
	id     proto.NodeID
	addr   string
	host   *peer.Host
	rpc    *peer.Transport
	store  *raftstore.Store
	opened atomic.Pointer[raftstore.Store] // for the port, which is up before the store
	reader *consistency.Reader
	api    *apiserver.Server
	http   *httptest.Server
	fatal  chan error
}

// bookmarkEvery makes the suite's waits for bookmarks short.
const bookmarkEvery = time.Second

// start returns a cluster that has a leader. The test's cleanup stops it.
func start(t *testing.T, resources []*kinds.Resource) *cluster {
	t.Helper()
	c := &cluster{kinds: slices.Clone(resources), registry: kinds.NewRegistry(resources), secret: []pki.Secret{pki.NewSecret()}}
	var servers []raftstore.Server
	for range 3 {
		n := c.open(t)
		servers = append(servers, raftstore.Server{ID: n.id, Address: n.addr, Voter: true})
	}
	for _, n := range c.nodes {
		if err := n.store.Bootstrap(servers, "suite"); err != nil {
			t.Fatal(err)
		}
	}
	c.leader(t)
	return c
}

// open starts a node that is in no cluster yet. The test's cleanup stops it.
func (c *cluster) open(t *testing.T) *node {
	t.Helper()
	n := &node{id: proto.NodeID(string(rune('a' + len(c.nodes)))), fatal: make(chan error, 1)}
	c.nodes = append(c.nodes, n)
	t.Cleanup(func() { n.stop(t) })
	credentials, err := pki.Open(pki.Options{Dir: filepath.Join(t.TempDir(), "pki"), Secrets: c.secret, NodeID: n.id, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	n.openStore(t, filepath.Join(t.TempDir(), "data"), credentials)
	n.openAPI(t, c.registry)
	return n
}

func (n *node) openStore(t *testing.T, dir string, credentials peer.Credentials) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.addr = l.Addr().String()
	log := slog.New(slog.DiscardHandler)
	n.host, err = peer.New(peer.Config{
		NodeID: n.id, Credentials: credentials, Listener: l, Logger: log,
		Cluster: func() proto.ClusterID {
			if s := n.opened.Load(); s != nil {
				return s.Cluster()
			}
			return ""
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.rpc = peer.NewTransport(n.host)
	n.store, err = raftstore.Open(raftstore.Config{
		Dir: dir, Node: n.id, Name: string(n.id), Transport: n.rpc, Peers: n.host, Logger: log,
		Fatal: func(err error) {
			select {
			case n.fatal <- err:
			default:
			}
		},
		// The suite counts revisions: nothing but its own calls may write entries.
		Timing: raftstore.Timing{History: time.Hour, NoLeader: 10 * time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.store.Register(n.host.GRPC(), peer.CallerOf, nil)
	n.opened.Store(n.store)
	n.host.Serve()
}

func (n *node) openAPI(t *testing.T, registry *kinds.Registry) {
	t.Helper()
	n.reader = consistency.NewReader(n.store, consistency.Options{MostRecentTimeout: 10 * time.Second})
	var err error
	n.api, err = apiserver.New(apiserver.Config{
		Store: n.store, Reads: n.reader,
		Kinds:         func() *kinds.Registry { return registry },
		Authenticator: administrator{},
		Log:           slog.New(slog.DiscardHandler),
		Limits:        apiserver.Limits{Bookmark: bookmarkEvery},

		ResponseCompression: true, UnauthenticatedHTTP2DOSMitigation: true, WatchList: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	n.http = httptest.NewUnstartedServer(n.api)
	n.http.EnableHTTP2 = true
	n.http.StartTLS()
}

// administrator lets everybody in.
type administrator struct{}

func (administrator) Authenticate(*http.Request) (*auth.User, error) {
	return &auth.User{Name: "admin", Groups: []string{auth.Masters, auth.Authenticated}}, nil
}

// stop ends a node; the test fails if it would have ended its process.
func (n *node) stop(t *testing.T) {
	if n.api != nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := n.api.Shutdown(ctx); err != nil {
			t.Errorf("%s: shutdown: %v", n.id, err)
		}
		n.http.Close()
		n.reader.Close()
	}
	if n.store != nil {
		if err := n.store.Close(); err != nil {
			t.Errorf("%s: close the store: %v", n.id, err)
		}
	}
	if n.host != nil {
		n.rpc.CloseStreams()
		_ = n.rpc.Close()
		if err := n.host.Close(); err != nil {
			t.Errorf("%s: close the port: %v", n.id, err)
		}
	}
	select {
	case err := <-n.fatal:
		t.Errorf("%s: fatal: %v", n.id, err)
	default:
	}
}

// leader waits for a node that leads.
func (c *cluster) leader(t *testing.T) *node {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		for _, n := range c.nodes {
			if n.store.IsLeader() {
				return n
			}
		}
	}
	t.Fatal("no node leads")
	return nil
}

// followers are the nodes that do not lead.
func (c *cluster) followers(t *testing.T) []*node {
	t.Helper()
	var out []*node
	for leader, i := c.leader(t), 0; i < len(c.nodes); i++ {
		if c.nodes[i] != leader {
			out = append(out, c.nodes[i])
		}
	}
	return out
}

// settle waits until every node has applied a revision.
func (c *cluster) settle(ctx context.Context, at proto.Revision) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, n := range c.nodes {
		if err := n.store.WaitApplied(ctx, at); err != nil {
			return fmt.Errorf("node %s does not get to revision %d: %w", n.id, at, err)
		}
	}
	return nil
}
