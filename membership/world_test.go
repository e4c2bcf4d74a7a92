package membership

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	grpcpeer "google.golang.org/grpc/peer"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/membership/pki"
	"github.com/quorate/quorate/proto"
)

const testSecret = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// world is a set of machines with real gRPC over TLS between them and a model of
// Raft: what a leader has, every running member of its configuration that it can
// dial has at once; there is a leader when a node can dial a majority of the voters.
type world struct {
	t *testing.T

	mu                sync.Mutex
	machines          map[string]*machine
	kv                map[proto.ClusterID]map[string]map[string][]byte
	leader            map[proto.ClusterID]proto.NodeID
	feature           map[proto.ClusterID]uint32
	storage           map[proto.ClusterID]int64
	term              uint64
	number, addresses int

	refusing []string // tables whose writes fail
	watching []watchedTable

	passed time.Duration // how far the nodes' clocks are ahead
}

// machine is what outlives a restart, and the node that runs on it.
type machine struct {
	w       *world
	name    string
	dir     string
	address string
	index   uint64 // of its log, over what the configuration says

	id   proto.NodeID
	conf Configuration
	// committed is an older configuration, as long as conf is not committed.
	committed *Configuration
	state     bool
	cluster   proto.ClusterID
	lag       uint64
	// crash is "before" or "after" Bootstrap. The others may still wait for the machine's answer
	// then: they need not form a cluster before it is back.
	crash  string
	noMove bool // transfers to it fail
	tries  int  // transfers to it
	hashes []*proto.StateHash
	// supports is the feature version of the release that runs there; zero is 1.
	supports uint32
	// storage is what it would have the live keys take; zero is an older release, which does not say.
	storage uint64

	up       bool
	node     *Manager
	cert     *pki.Node
	server   *grpc.Server
	cancel   context.CancelFunc
	done     chan error
	conns    map[string]*grpc.ClientConn
	found    map[proto.NodeID][2]string // configured, found
	reason   string                     // it waits for
	expelled []proto.NodeID
	logs     []string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, number: int(worlds.Add(1)), machines: map[string]*machine{}, kv: map[proto.ClusterID]map[string]map[string][]byte{}, leader: map[proto.ClusterID]proto.NodeID{}, feature: map[proto.ClusterID]uint32{}, storage: map[proto.ClusterID]int64{}, term: 1}
	t.TempDir() // directories go after the nodes have stopped: one may still write
	t.Cleanup(func() {
		for _, mc := range w.machines {
			w.stop(mc)
		}
	})
	return w
}

func (w *world) machine(name string) *machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	mc := w.machines[name]
	if mc == nil {
		mc = &machine{w: w, name: name, dir: w.t.TempDir(), address: w.freshAddressLocked()}
		w.machines[name] = mc
	}
	return mc
}

// worlds counts the worlds of this process.
var worlds atomic.Int32

// freshAddressLocked returns an address that nobody else gets, although nobody
// listens there yet: the loopback network has more than one address.
func (w *world) freshAddressLocked() string {
	w.addresses++
	return fmt.Sprintf("127.%d.%d.%d:7443", 1+os.Getpid()%250, 1+w.number%250, w.addresses)
}

// start starts a node; edit changes its options.
func (w *world) start(mc *machine, edit func(*Options)) {
	w.t.Helper()
	id, err := LoadIdentity(mc.dir, mc.name)
	must.OK(w.t, err)
	secrets, err := pki.ParseSecrets(testSecret)
	must.OK(w.t, err)
	cert, err := pki.Open(pki.Options{Dir: filepath.Join(mc.dir, "pki"), Secrets: secrets, NodeID: id.ID(), Name: mc.name})
	must.OK(w.t, err)
	opt := Options{
		Dir: mc.dir, Identity: id, Consensus: fakeRaft{mc}, KV: fakeKV{mc}, Peers: mc, Certificates: cert,
		PeerAddress: mc.address, APIAddress: "https://" + mc.name, Version: "test",
		Caller: func(ctx context.Context) (proto.NodeID, bool) {
			p, ok := grpcpeer.FromContext(ctx)
			if !ok {
				return "", false
			}
			uri := p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0].URIs[0]
			return proto.NodeID(strings.TrimPrefix(uri.Path, "/")), true
		},
		Tick: 50 * time.Millisecond, Limits: Limits{Stable: 50 * time.Millisecond},
		CallTimeout: time.Minute, // nodes that are down refuse; nodes of a busy machine are late
		Logger:      slog.New(mc),
		Now: func() time.Time {
			w.mu.Lock()
			defer w.mu.Unlock()
			return time.Now().Add(w.passed)
		},
	}
	if edit != nil {
		edit(&opt)
	}
	m, err := New(opt)
	must.OK(w.t, err)
	l, err := net.Listen("tcp", mc.address)
	must.OK(w.t, err)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: cert.Roots(), Certificates: []tls.Certificate{*cert.Certificate()},
	})))
	proto.RegisterMembershipServer(server, m)
	proto.RegisterPeerServer(server, fakePeer{mc: mc})
	go server.Serve(l)
	ctx, cancel := context.WithCancel(context.Background())
	w.mu.Lock()
	mc.id, mc.node, mc.cert, mc.server, mc.cancel, mc.up = id.ID(), m, cert, server, cancel, true
	mc.done, mc.conns, mc.reason = make(chan error, 1), map[string]*grpc.ClientConn{}, ""
	mc.found = map[proto.NodeID][2]string{}
	done := mc.done
	w.mu.Unlock()
	go func() { done <- m.Run(ctx) }()
}

func (w *world) stop(mc *machine) {
	w.mu.Lock()
	if !mc.up {
		w.mu.Unlock()
		return
	}
	mc.up = false
	conns := maps.Clone(mc.conns)
	w.mu.Unlock()
	mc.cancel()
	mc.server.Stop()
	for _, c := range conns {
		c.Close()
	}
	select {
	case err := <-mc.done:
		mc.done <- err
	case <-time.After(20 * time.Second):
		w.t.Errorf("%s does not stop", mc.name)
	}
}

// wipe empties the disk.
func (w *world) wipe(mc *machine, all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	mc.conf, mc.state, mc.cluster, mc.index = Configuration{}, false, "", 0
	if all {
		mc.id = ""
		must.OK(w.t, os.RemoveAll(mc.dir))
		must.OK(w.t, os.Mkdir(mc.dir, 0o700))
	}
}

// now is the machine's configuration.
func (mc *machine) now() Configuration {
	mc.w.mu.Lock()
	defer mc.w.mu.Unlock()
	return mc.conf
}

// await waits for a condition.
func (w *world) await(what string, cond func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			for _, mc := range w.machines {
				w.mu.Lock()
				w.t.Logf("%s: up %v state %v conf %v reason %q\n%s", mc.name, mc.up, mc.state, mc.conf, mc.reason, strings.Join(mc.logs, "\n"))
				w.mu.Unlock()
			}
			w.t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func (w *world) byID(id proto.NodeID) *machine {
	for _, mc := range w.machines {
		if mc.id == id {
			return mc
		}
	}
	return nil
}

// reignLocked finds the leader of a cluster and lets it replicate.
func (w *world) reignLocked(c proto.ClusterID) *machine {
	if c == "" {
		return nil
	}
	var newest *machine
	for _, mc := range w.machines {
		if mc.up && mc.state && mc.cluster == c && (newest == nil || mc.conf.Index > newest.conf.Index) {
			newest = mc
		}
	}
	if newest == nil {
		return nil
	}
	voters, live := 0, []*machine{}
	for _, s := range newest.conf.Servers {
		if s.Voter {
			voters++
			if mc := w.byID(s.ID); mc != nil && mc.up {
				live = append(live, mc)
			}
		}
	}
	if 2*len(live) <= voters {
		return nil
	}
	can := slices.DeleteFunc(slices.Clone(live), func(mc *machine) bool {
		reached := 0
		for _, s := range newest.conf.Servers {
			if s.Voter && slices.ContainsFunc(live, func(v *machine) bool { return v.id == s.ID }) && mc.reachesLocked(s) {
				reached++
			}
		}
		return !mc.state || mc.conf.Index < newest.conf.Index || 2*reached <= voters
	})
	if len(can) == 0 {
		return nil
	}
	slices.SortFunc(can, func(a, b *machine) int { return cmp.Compare(a.id, b.id) })
	lead := can[0]
	for _, mc := range can {
		if mc.id == w.leader[c] {
			lead = mc
		}
	}
	if w.leader[c] != lead.id {
		w.leader[c] = lead.id
		w.term++
	}
	for _, s := range lead.conf.Servers {
		if mc := w.byID(s.ID); mc != nil && mc.up && mc.crash == "" && lead.reachesLocked(s) && (mc.conf.Index < lead.conf.Index || !mc.state) {
			mc.conf, mc.state, mc.cluster = lead.conf, true, lead.cluster
		}
	}
	return lead
}

// reachesLocked says whether the machine dials a member where that is.
func (mc *machine) reachesLocked(s Server) bool {
	to := mc.w.byID(s.ID)
	return to == mc || to != nil && mc.dialsLocked(s.ID, s.Address) == to.address
}

func (mc *machine) dialsLocked(id proto.NodeID, address string) string {
	if f, ok := mc.found[id]; ok && f[0] == address {
		return f[1]
	}
	return address
}

// Found and ForgetAddress implement Peers.
func (mc *machine) Found(id proto.NodeID, configured, address string) {
	mc.w.mu.Lock()
	defer mc.w.mu.Unlock()
	mc.found[id] = [2]string{configured, address}
}

func (mc *machine) ForgetAddress(address string) {
	mc.w.mu.Lock()
	defer mc.w.mu.Unlock()
	if c := mc.conns["@"+address]; c != nil {
		c.Close()
		delete(mc.conns, "@"+address)
	}
}

// Expel implements Peers.
func (mc *machine) Expel(id proto.NodeID) {
	mc.w.mu.Lock()
	defer mc.w.mu.Unlock()
	mc.expelled = append(mc.expelled, id)
}

func (mc *machine) leaderLocked() *machine {
	c := mc.cluster
	if c == "" {
		for _, other := range mc.w.machines { // does one have us in its configuration?
			if _, ok := other.conf.Find(mc.id); ok && other.up {
				c = other.cluster
			}
		}
	}
	return mc.w.reignLocked(c)
}

// Conn implements Peers with TLS that checks the node's id.
func (mc *machine) Conn(id proto.NodeID, address string) (*grpc.ClientConn, error) {
	mc.w.mu.Lock()
	defer mc.w.mu.Unlock()
	if !mc.up {
		return nil, errors.New("closed")
	}
	address = mc.dialsLocked(id, address)
	key := string(id) + "@" + address
	if c := mc.conns[key]; c != nil {
		return c, nil
	}
	cert := mc.cert
	c, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		InsecureSkipVerify: true, Certificates: []tls.Certificate{*cert.Certificate()},
		VerifyConnection: func(s tls.ConnectionState) error {
			leaf := s.PeerCertificates[0]
			if _, err := leaf.Verify(x509.VerifyOptions{Roots: cert.Roots()}); err != nil {
				return err
			}
			if got := strings.TrimPrefix(leaf.URIs[0].Path, "/"); id != "" && got != string(id) {
				return fmt.Errorf("want %s, got %s", id, got)
			}
			return nil
		},
	})), grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1, MaxDelay: 5 * time.Millisecond}, MinConnectTimeout: time.Second}))
	if err == nil {
		mc.conns[key] = c
	}
	return c, err
}

// machine is also the node's slog.Handler: it keeps what the node waits for.
func (mc *machine) Enabled(context.Context, slog.Level) bool { return true }
func (mc *machine) WithAttrs([]slog.Attr) slog.Handler       { return mc }
func (mc *machine) WithGroup(string) slog.Handler            { return mc }
func (mc *machine) Handle(_ context.Context, r slog.Record) error {
	mc.w.mu.Lock()
	defer mc.w.mu.Unlock()
	line := "  " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		if r.Message == "waiting for a cluster" && a.Key == "reason" {
			mc.reason = a.Value.String()
		}
		return true
	})
	if len(mc.logs) < 200 {
		mc.logs = append(mc.logs, line)
	}
	return nil
}

type fakePeer struct {
	proto.UnimplementedPeerServer
	mc *machine
}

func (p fakePeer) Status(ctx context.Context, _ *proto.StatusRequest) (*proto.NodeStatus, error) {
	return p.mc.node.LocalStatus(ctx), nil
}

// fakeRaft implements Consensus.
type fakeRaft struct{ mc *machine }

func (r fakeRaft) lock() func() { r.mc.w.mu.Lock(); return r.mc.w.mu.Unlock }

func (r fakeRaft) Members() Configuration {
	defer r.lock()()
	r.mc.leaderLocked()
	return r.mc.conf
}

func (r fakeRaft) Committed() Configuration {
	defer r.lock()()
	r.mc.leaderLocked()
	if c := r.mc.committed; c != nil {
		return Configuration{Servers: c.Servers}
	}
	return Configuration{Servers: r.mc.conf.Servers}
}

func (r fakeRaft) Leader() (proto.NodeID, string) {
	defer r.lock()()
	if l := r.mc.leaderLocked(); l != nil {
		if own, in := l.conf.Find(r.mc.id); in && l.reachesLocked(own) {
			return l.id, l.address
		}
	}
	return "", ""
}

func (r fakeRaft) IsLeader() bool {
	defer r.lock()()
	return r.mc.up && r.mc.leaderLocked() == r.mc
}

func (r fakeRaft) HasState() (bool, error) {
	defer r.lock()()
	r.mc.leaderLocked()
	return r.mc.state, nil
}

func (r fakeRaft) Bootstrap(servers []Server, cluster proto.ClusterID) error {
	defer r.lock()()
	mc := r.mc
	if !mc.up {
		return errors.New("stopped")
	}
	crash := mc.crash
	mc.crash = ""
	if crash == "before" {
		mc.cancel()
		return errors.New("crash")
	}
	if crash == "" {
		mc.leaderLocked()
	}
	if mc.state {
		return errors.New("has state")
	}
	mc.conf, mc.state, mc.cluster = Configuration{Index: 1, Servers: slices.Clone(servers)}, true, cluster
	if crash == "after" {
		mc.cancel()
		return errors.New("crash")
	}
	return nil
}

func (r fakeRaft) mutate(prev uint64, f func(map[proto.NodeID]Server)) error {
	defer r.lock()()
	if r.mc.leaderLocked() != r.mc || !r.mc.up {
		return fmt.Errorf("mutate: %w", ErrNotLeader)
	}
	if prev != r.mc.conf.Index {
		return fmt.Errorf("mutate: %w", ErrConflict)
	}
	next := map[proto.NodeID]Server{}
	for _, s := range r.mc.conf.Servers {
		next[s.ID] = s
	}
	f(next)
	r.mc.conf = Configuration{Index: r.mc.conf.Index + 1, Servers: sortedServers(slices.Collect(maps.Values(next)))}
	r.mc.leaderLocked()
	return nil
}

func (r fakeRaft) AddNonvoter(_ context.Context, id proto.NodeID, addr string, prev uint64) error {
	return r.mutate(prev, func(m map[proto.NodeID]Server) { m[id] = Server{id, addr, m[id].Voter} })
}

func (r fakeRaft) AddVoter(_ context.Context, id proto.NodeID, addr string, prev uint64) error {
	return r.mutate(prev, func(m map[proto.NodeID]Server) { m[id] = Server{id, addr, true} })
}

func (r fakeRaft) DemoteVoter(_ context.Context, id proto.NodeID, prev uint64) error {
	return r.mutate(prev, func(m map[proto.NodeID]Server) { m[id] = Server{id, m[id].Address, false} })
}

func (r fakeRaft) RemoveServer(_ context.Context, id proto.NodeID, prev uint64) error {
	return r.mutate(prev, func(m map[proto.NodeID]Server) { delete(m, id) })
}

func (r fakeRaft) TransferLeadership(_ context.Context, to proto.NodeID) error {
	defer r.lock()()
	if r.mc.leaderLocked() != r.mc {
		return ErrNotLeader
	}
	target := r.mc.w.byID(to)
	target.tries++
	if target.noMove {
		return errors.New("transfer timed out")
	}
	r.mc.w.leader[r.mc.cluster] = to
	r.mc.w.term++
	return nil
}

func (r fakeRaft) Features() (cluster, supported uint32) {
	defer r.lock()()
	return max(r.mc.w.feature[r.mc.cluster], 1), max(r.mc.supports, 1)
}

func (r fakeRaft) RaiseFeature(_ context.Context, version uint32, prev uint64) error {
	return r.mutate(prev, func(map[proto.NodeID]Server) { r.mc.w.feature[r.mc.cluster] = version })
}

func (r fakeRaft) StorageLimit() int64 {
	defer r.lock()()
	return r.mc.w.storage[r.mc.cluster]
}

func (r fakeRaft) LimitStorage(_ context.Context, bytes int64, prev uint64) error {
	return r.mutate(prev, func(map[proto.NodeID]Server) { r.mc.w.storage[r.mc.cluster] = bytes })
}

func (r fakeRaft) Cluster() proto.ClusterID {
	defer r.lock()()
	return r.mc.cluster
}

func (r fakeRaft) Status(context.Context) *proto.NodeStatus {
	defer r.lock()()
	st := &proto.NodeStatus{NodeId: string(r.mc.id), Term: r.mc.w.term, Commit: 1000, Applied: 1000 - r.mc.lag, LastLogIndex: 1000 - r.mc.lag, Role: "follower", Hashes: slices.Clone(r.mc.hashes),
		StorageBytes: r.mc.storage, FeatureVersion: max(r.mc.supports, 1), ClusterFeatureVersion: max(r.mc.w.feature[r.mc.cluster], 1)}
	if l := r.mc.leaderLocked(); l != nil {
		st.LeaderId = string(l.id)
		if l == r.mc {
			st.Role = "leader"
		}
	}
	return st
}

// fakeKV implements KV: one map per cluster, seen by all its nodes.
type fakeKV struct{ mc *machine }

func (k fakeKV) table(name string) map[string][]byte {
	c := k.mc.w.kv[k.mc.cluster]
	if c == nil {
		c = map[string]map[string][]byte{}
		k.mc.w.kv[k.mc.cluster] = c
	}
	if c[name] == nil {
		c[name] = map[string][]byte{}
	}
	return c[name]
}

func (k fakeKV) Put(_ context.Context, table, key string, value []byte, ifAbsent bool) error {
	k.mc.w.mu.Lock()
	defer k.mc.w.mu.Unlock()
	if k.mc.leaderLocked() == nil {
		return errors.New("no leader")
	}
	t := k.table(table)
	if _, ok := t[key]; ok && ifAbsent {
		return fmt.Errorf("put: %w", ErrExists)
	}
	if slices.Contains(k.mc.w.refusing, table) {
		return errors.New("the write was lost")
	}
	t[key] = value
	k.mc.w.changedLocked(table)
	return nil
}

func (k fakeKV) Get(table, key string) ([]byte, bool) {
	k.mc.w.mu.Lock()
	defer k.mc.w.mu.Unlock()
	v, ok := k.table(table)[key]
	return v, ok
}

func (k fakeKV) Delete(_ context.Context, table, key string) error {
	k.mc.w.mu.Lock()
	defer k.mc.w.mu.Unlock()
	if k.mc.leaderLocked() == nil {
		return errors.New("no leader")
	}
	delete(k.table(table), key)
	k.mc.w.changedLocked(table)
	return nil
}

func (k fakeKV) List(table string) (map[string][]byte, error) {
	k.mc.w.mu.Lock()
	defer k.mc.w.mu.Unlock()
	return maps.Clone(k.table(table)), nil
}

// watchedTable is one call of Changes.
type watchedTable struct {
	table string
	wake  chan struct{}
}

func (w *world) changedLocked(table string) {
	for _, t := range w.watching {
		if t.table == table {
			select {
			case t.wake <- struct{}{}:
			default:
			}
		}
	}
}

func (k fakeKV) Changes(table string) (<-chan struct{}, func(), error) {
	k.mc.w.mu.Lock()
	defer k.mc.w.mu.Unlock()
	wake := make(chan struct{}, 1)
	wake <- struct{}{}
	k.mc.w.watching = append(k.mc.w.watching, watchedTable{table, wake})
	return wake, func() {}, nil
}
