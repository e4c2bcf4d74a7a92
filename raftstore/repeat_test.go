package raftstore

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/peer"
	"google.golang.org/grpc"
)

// detour sends the calls for a node somewhere else while to is set.
type detour struct {
	Peers
	id proto.NodeID
	to atomic.Pointer[string]
}

func (d *detour) Conn(id proto.NodeID, addr string) (*grpc.ClientConn, error) {
	if to := d.to.Load(); to != nil && id == d.id {
		addr = *to
	}
	return d.Peers.Conn(id, addr)
}

// breaking reads one proposal of each stream and breaks it without an answer.
type breaking struct {
	proto.UnimplementedPeerServer
	proposals atomic.Int64
}

func (b *breaking) Exchange(stream grpc.BidiStreamingServer[proto.PeerRequest, proto.PeerResponse]) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		if req.GetPropose() != nil {
			b.proposals.Add(1)
			return io.ErrUnexpectedEOF
		}
	}
}

// A proposal whose stream breaks is not sent to the same leader again in the same
// term: its first copy may arrive later than the second, and take effect after that
// was refused.
func TestProposalIsNotRepeatedInItsTerm(t *testing.T) {
	detours := map[proto.NodeID]*detour{}
	c := newCluster(t, 3, func(cfg *Config) {
		d := &detour{Peers: cfg.Peers}
		detours[cfg.Node] = d
		cfg.Peers = d
		cfg.Timing.NoLeader /= 5
	})
	leader := c.leader()
	proposer := c.other(leader)
	if _, err := proposer.Propose(c.ctx(), write("before", "v")); err != nil {
		t.Fatal(err)
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host, err := peer.New(peer.Config{
		NodeID: leader.id, Credentials: c.ca.issue(leader.id), Listener: l, Logger: slog.New(slog.DiscardHandler), Cluster: leader.Cluster,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	var server breaking
	proto.RegisterPeerServer(host.GRPC(), &server)
	host.Serve()
	d, elsewhere := detours[proposer.id], l.Addr().String()
	d.id = leader.id
	d.to.Store(&elsewhere)

	if _, err := proposer.Propose(c.ctx(), write("k", "v")); !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("a proposal that nobody answered: %v, want %v", err, ErrUnknownOutcome)
	}
	if n := server.proposals.Load(); n != 1 {
		t.Errorf("the proposal was sent %d times in one term", n)
	}
	d.to.Store(nil)
	if _, err := proposer.Propose(c.ctx(), write("after", "v")); err != nil {
		t.Error(err)
	}
}
