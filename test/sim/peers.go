package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	grpcpeer "google.golang.org/grpc/peer"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/peer"
)

// peers is raftstore.Peers over the network: what peer.Host is over TCP and TLS,
// with the same gRPC options.
type peers struct {
	host *host

	mu     sync.Mutex
	closed bool
	conns  map[string]*grpc.ClientConn
}

func newPeers(h *host) *peers { return &peers{host: h, conns: map[string]*grpc.ClientConn{}} }

// Conn implements raftstore.Peers.
func (p *peers) Conn(id proto.NodeID, addr string) (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, peer.ErrClosed
	}
	want := string(id) + "@" + addr
	if c := p.conns[want]; c != nil {
		return c, nil
	}
	c, err := grpc.NewClient("passthrough:///"+want,
		grpc.WithTransportCredentials(byName{}),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			return p.host.dial(ctx, to, "grpc")
		}),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 160 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}),
	)
	if err == nil {
		p.conns[want] = c
	}
	return c, err
}

// Refused implements raftstore.Peers.
func (p *peers) Refused(ctx context.Context, addr string) bool { return p.host.refused(ctx, addr) }

// WatchConn implements raftstore.Peers.
func (p *peers) WatchConn(ctx context.Context, id proto.NodeID, addr string, lost func()) {
	if c, err := p.Conn(id, addr); err == nil {
		peer.WatchClient(ctx, c, lost)
	}
}

// Offer implements raftstore.Peers: who can dial can be dialled, here.
func (p *peers) Offer(ctx context.Context, _ proto.NodeID, _ string) { <-ctx.Done() }

func (p *peers) close() {
	p.mu.Lock()
	p.closed = true
	conns := p.conns
	p.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

func newGRPC() *grpc.Server {
	return grpc.NewServer(
		grpc.Creds(byName{}),
		grpc.ConnectionTimeout(5*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
}

// byName stands for TLS: the network says who is at the other end.
type byName struct{}

type named struct {
	credentials.CommonAuthInfo
	node string
}

func (named) AuthType() string { return "sim" }

func (byName) handshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, named{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, c.RemoteAddr().String()}, nil
}

func (b byName) ClientHandshake(_ context.Context, _ string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return b.handshake(c)
}

func (b byName) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return b.handshake(c)
}

func (byName) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "sim"}
}
func (b byName) Clone() credentials.TransportCredentials { return b }
func (byName) OverrideServerName(string) error           { return nil }

// callerOf is what peer.CallerOf is on the peer port.
func callerOf(ctx context.Context) (proto.NodeID, bool) {
	p, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return "", false
	}
	n, ok := p.AuthInfo.(named)
	return proto.NodeID(n.node), ok
}

// doubling is a Transport that sends some of Raft's messages twice, the second
// time later and on a stream of its own: Raft's messages may arrive twice, and the
// transport does so after a stream has died.
type doubling struct {
	*peer.Transport
	trace  *trace
	chance float64
	after  time.Duration // at most

	mu   sync.Mutex
	rng  *rand.Rand
	sent int
}

// again runs send a second time, by chance.
func (d *doubling) again(send func()) {
	d.mu.Lock()
	hit := d.rng.Float64() < d.chance
	var wait time.Duration
	if hit {
		d.sent++
		wait = time.Duration(d.rng.Int64N(int64(d.after)))
	}
	d.mu.Unlock()
	if hit {
		time.AfterFunc(wait, send)
	}
}

func (d *doubling) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	copied := *req
	d.again(func() {
		var ignored raft.AppendEntriesResponse
		_ = d.Transport.AppendEntries(id, to, &copied, &ignored)
	})
	return d.Transport.AppendEntries(id, to, req, resp)
}

func (d *doubling) RequestVote(id raft.ServerID, to raft.ServerAddress, req *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	copied := *req
	d.again(func() {
		var ignored raft.RequestVoteResponse
		_ = d.ask(id, to, &copied, &ignored)
	})
	return d.ask(id, to, req, resp)
}

// ask asks for a vote, and has the trace look at who gets it.
func (d *doubling) ask(id raft.ServerID, to raft.ServerAddress, req *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	applied := d.trace.appliedOn(string(id))
	err := d.Transport.RequestVote(id, to, req, resp)
	if err == nil && resp.Granted {
		d.trace.voted(string(id), req, applied)
	}
	return err
}

// AppendEntriesPipeline doubles what goes through a pipeline too.
func (d *doubling) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := d.Transport.AppendEntriesPipeline(id, to)
	if err != nil {
		return nil, err
	}
	return &doublingPipeline{p, d, id, to}, nil
}

type doublingPipeline struct {
	raft.AppendPipeline
	d  *doubling
	id raft.ServerID
	to raft.ServerAddress
}

func (p *doublingPipeline) AppendEntries(req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	copied := *req
	p.d.again(func() {
		var ignored raft.AppendEntriesResponse
		_ = p.d.Transport.AppendEntries(p.id, p.to, &copied, &ignored)
	})
	return p.AppendPipeline.AppendEntries(req, resp)
}

var errKilled = errors.New("the process was killed")
