package raftstore

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/peer"
)

// cluster is some nodes in this process, on real peer ports over loopback.
type cluster struct {
	t      testing.TB
	ca     *testCA
	nodes  map[proto.NodeID]*testNode
	config func(*Config)
}

type testNode struct {
	*Store
	store atomic.Pointer[Store] // for the port, which is up before the store
	id    proto.NodeID
	addr  string
	dir   string
	host  *peer.Host
	rpc   *peer.Transport
	// fatal is what the store would have ended the process with.
	fatal chan error
	// dead says that it has ended: what else it says until it is closed does not count.
	dead bool
}

// unheard is a timeout that no test lives to see: far above what cluster.ctx allows.
const unheard = time.Minute

// silent has a node notice in a test's time that another one is silent.
func silent(cfg *Config) {
	cfg.Timing.Heartbeat, cfg.Timing.Election, cfg.Timing.Lease = time.Second, time.Second, 500*time.Millisecond
}

// newCluster starts voters named a, b, c, … and waits for a leader. It leads until it is
// closed or asked to transfer the leadership, unless config has other timeouts.
func newCluster(t testing.TB, n int, config func(*Config)) *cluster {
	t.Helper()
	c := &cluster{t: t, ca: newTestCA(t), nodes: map[proto.NodeID]*testNode{}, config: config}
	var servers []Server
	for i := range n {
		m := c.add(proto.NodeID(string(rune('a' + i))))
		servers = append(servers, Server{ID: m.id, Address: m.addr, Voter: true})
	}
	for _, m := range c.nodes {
		must.OK(t, m.Bootstrap(servers, "test"))
	}
	c.leader()
	return c
}

func (c *cluster) add(id proto.NodeID) *testNode {
	c.t.Helper()
	m := &testNode{id: id, dir: filepath.Join(c.t.TempDir(), string(id)), fatal: make(chan error, 16)}
	c.nodes[id] = m
	c.open(m)
	c.t.Cleanup(func() { c.close(m) })
	return m
}

func (c *cluster) open(m *testNode) {
	c.t.Helper()
	addr := m.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	var l net.Listener
	c.eventually("listen on "+addr, func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	})
	if m.addr == "" {
		m.addr = l.Addr().String()
	}
	logger := slog.New(slog.DiscardHandler)
	if testing.Verbose() && os.Getenv("QUORATE_TEST_LOG") != "" {
		logger = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("node", m.id)
	}
	var err error
	m.host, err = peer.New(peer.Config{
		NodeID: m.id, Credentials: c.ca.issue(m.id), Listener: l, Logger: logger,
		Cluster: func() proto.ClusterID {
			if s := m.store.Load(); s != nil {
				return s.Cluster()
			}
			return ""
		},
	})
	must.OK(c.t, err)
	m.rpc = peer.NewTransport(m.host)
	cfg := Config{
		Dir: m.dir, Node: m.id, Name: string(m.id), Transport: m.rpc, Peers: m.host, Logger: logger,
		Fatal: func(err error) {
			select {
			case m.fatal <- err:
			default:
			}
		},
		// What must be quick is quick without timeouts, and on a busy machine every timeout ends
		// for nothing. Tests of what timeouts do call silent.
		Timing: Timing{Heartbeat: unheard, Election: unheard, Lease: unheard, NoLeader: 10 * time.Second},
		// Each start reads the segments that are prepared, and those of the default size have megabytes.
		TestHooks: TestHooks{SegmentBytes: 128 << 10},
		// The log is not kept for a node that was sent a snapshot: for a minute no test could await
		// that it is cut. Tests of joining under load set their own.
		Limits: Limits{SnapshotLogBytes: 1, ReserveBytes: 256 << 10},
	}
	if c.config != nil {
		c.config(&cfg)
	}
	s, err := Open(cfg)
	must.OK(c.t, err)
	s.Register(m.host.GRPC(), peer.CallerOf, nil)
	m.store.Store(s)
	m.host.Serve()
	m.Store = s
}

// close stops a node; the test fails if it would have ended its process.
func (c *cluster) close(m *testNode) {
	c.t.Helper()
	if m.Store == nil {
		return
	}
	s := m.Store
	if err := s.Close(); err != nil {
		c.t.Errorf("close %s: %v", m.id, err)
	}
	m.rpc.CloseStreams()
	_ = m.rpc.Close()
	if err := m.host.Close(); err != nil {
		c.t.Errorf("close the port of %s: %v", m.id, err)
	}
	m.Store = nil
	for m.dead {
		select {
		case <-m.fatal:
		default:
			m.dead = false
		}
	}
	select {
	case err := <-m.fatal:
		c.t.Errorf("%s: fatal: %v", m.id, err)
	default:
	}
}

// leader waits for a node that is ready to lead.
func (c *cluster) leader() *testNode {
	c.t.Helper()
	var leader *testNode
	since := map[*testNode]time.Time{} // of candidates
	c.eventually("a leader", func() error {
		for _, m := range c.nodes {
			if m.Store == nil {
				continue
			}
			if m.IsLeader() {
				leader = m
				return nil
			}
			c.endLostElection(m, since)
		}
		return fmt.Errorf("none")
	})
	return leader
}

// endLostElection starts a candidate again that has got no majority: two that campaigned at once while the third could not
// vote yet would wait for their election timeouts, which no test lives to see.
func (c *cluster) endLostElection(m *testNode, since map[*testNode]time.Time) {
	switch first, seen := since[m]; {
	case m.node.Raft().State() != raft.Candidate:
		delete(since, m)
	case !seen:
		since[m] = time.Now()
	//wall: an election takes milliseconds, and one more is no harm
	case time.Since(first) > 3*time.Second:
		delete(since, m)
		c.close(m)
		c.open(m)
	}
}

// makeLeader makes a node the leader. On a busy machine the leader may change meanwhile.
func (c *cluster) makeLeader(id proto.NodeID) {
	c.t.Helper()
	// One that campaigned beside the leader, and lost, is a candidate for an election timeout, and cannot be asked to
	// campaign again.
	if m := c.nodes[id]; m.node.Raft().State() == raft.Candidate {
		c.close(m)
		c.open(m)
	}
	c.eventually(string(id)+" leads", func() error {
		if c.nodes[id].IsLeader() {
			return nil
		}
		return errors.Join(c.leader().TransferLeadership(c.ctx(), id), errors.New("not yet"))
	})
}

// other returns a running node that is not m.
func (c *cluster) other(m *testNode) *testNode {
	for _, x := range c.nodes {
		if x != m && x.Store != nil {
			return x
		}
	}
	c.t.Fatal("there is no other node")
	return nil
}

// eventually waits for a condition; it is not a way to wait for time to pass.
func (c *cluster) eventually(what string, f func() error) {
	c.t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	c.t.Fatalf("%s: %v", what, err)
}

func (c *cluster) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	c.t.Cleanup(cancel)
	return ctx
}

func write(key, value string) *proto.Write {
	return &proto.Write{Table: "t", Key: key, Op: proto.Op_OP_PUT, Value: []byte(value)}
}

// testCA issues peer certificates.
type testCA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

type testCredentials struct {
	leaf  tls.Certificate
	roots *x509.CertPool
}

func (c *testCredentials) Certificate() *tls.Certificate { return &c.leaf }
func (c *testCredentials) Roots() *x509.CertPool         { return c.roots }

func newTestCA(t testing.TB) *testCA {
	t.Helper()
	ca := &testCA{t: t}
	ca.key, ca.cert = ca.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "peers"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return ca
}

func (ca *testCA) sign(template *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	ca.t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(ca.t, err)
	parent, signer := ca.cert, ca.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	must.OK(ca.t, err)
	cert, err := x509.ParseCertificate(der)
	must.OK(ca.t, err)
	return key, cert
}

func (ca *testCA) issue(id proto.NodeID) *testCredentials {
	ca.t.Helper()
	key, cert := ca.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: string(id)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		URIs:        []*url.URL{peer.PeerURI(id)},
	})
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	return &testCredentials{tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}, roots}
}
