package raftstore

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/peer"
	"google.golang.org/grpc"

	"github.com/quorate/quorate/raftstore/exchange"
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
		if err := exchange.Requests(req, func(call *proto.PeerRequest) error {
			if call.GetPropose() == nil {
				return nil
			}
			b.proposals.Add(1)
			return io.ErrUnexpectedEOF
		}); err != nil {
			return err
		}
	}
}

// A proposal whose stream breaks is not sent to the same leader again in the same
// term: its first copy may arrive later than the second, and take effect after that
// was refused.
func TestProposalIsNotRepeatedInItsTerm(t *testing.T) {
	t.Parallel()
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
	must.OK(t, err)
	host, err := peer.New(peer.Config{
		NodeID: leader.id, Credentials: c.ca.issue(leader.id), Listener: l, Logger: slog.New(slog.DiscardHandler), Cluster: leader.Cluster,
	})
	must.OK(t, err)
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

// A copy of a write that comes when the history no longer reaches back to its sending
// is refused: whether an earlier copy took effect cannot be told.
func TestLateCopyIsRefused(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	w := write("k", "v")
	w.RequestId = []byte("0123456789abcdef")
	first, err := l.Propose(c.ctx(), w)
	must.OK(t, err)
	w.Since = uint64(first.Revision) - 1 // as it was proposed
	late, err := proto.Encode(proto.KindWrite, w)
	must.OK(t, err)
	if r, err := l.proposals.retry(c.ctx(), late); err != nil || r.Outcome != proto.Outcome_OUTCOME_DUPLICATE || r.Revision != first.Revision {
		t.Fatalf("a copy while its id is known: %+v, %v, want a duplicate of %d", r, err, first.Revision)
	}
	last, err := l.Propose(c.ctx(), write("k", "newer"))
	must.OK(t, err)
	must.OK(t, l.Compact(c.ctx(), last.Revision))
	if r, err := l.proposals.retry(c.ctx(), late); !errors.Is(err, errRequestIDExpired) {
		t.Errorf("a copy when its id is forgotten: %+v, %v, want %v", r, err, errRequestIDExpired)
	}
	if v, err := l.State().Table("t").Get("k", l.State().Applied()); err != nil || v.Revision != last.Revision {
		t.Errorf("the key has %+v (%v), want revision %d", v, err, last.Revision)
	}
}

// A node that has applied little can write all the same: the first refusal brings it
// above the floor.
func TestProposalOfAnOldState(t *testing.T) {
	f := newFaults()
	c := newCluster(t, 3, func(cfg *Config) { f.install(cfg) })
	l := c.leader()
	old := c.other(l)
	var others []proto.NodeID
	for id := range c.nodes {
		if id != old.id {
			others = append(others, id)
		}
	}
	f.part(f.raft, true, old.id, others...)
	var last proto.Revision
	for range 5 {
		r, err := l.Propose(c.ctx(), write("k", "v"))
		must.OK(t, err)
		last = r.Revision
	}
	must.OK(t, l.Compact(c.ctx(), last))
	if old.Applied() >= last {
		t.Fatal("setup: the node is not behind")
	}
	refused := make(chan error, 1)
	go func() {
		r, err := old.Propose(c.ctx(), write("k", "late"))
		if err == nil && (r.Outcome != proto.Outcome_OUTCOME_APPLIED || r.Version == nil) {
			err = fmt.Errorf("%+v", r)
		}
		refused <- err
	}()
	c.eventually("the entry is in the log", func() error {
		if l.Applied() <= last+1 {
			return fmt.Errorf("applied %d", l.Applied())
		}
		return nil
	})
	f.part(f.raft, false, old.id, others...)
	if err := <-refused; err != nil {
		t.Error(err)
	}
}

// A copy of a write that enters the log in another term than it was made for takes no
// effect: its proposer may have been told long ago that there is none.
func TestCopyOfAnotherTerm(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	w := write("k", "v")
	w.RequestId = []byte("0123456789abcdef")
	frame, err := proto.Encode(proto.KindWrite, w)
	must.OK(t, err)
	if r, err := l.proposals.apply(t.Context(), proto.InTerm(frame, proto.Term(l.node.Raft().CurrentTerm()-1))); err != nil || r.Outcome != proto.Outcome_OUTCOME_TERM_MISMATCH {
		t.Errorf("a copy for the term before: %+v, %v", r, err)
	}
	first, err := l.proposals.retry(c.ctx(), frame)
	if err != nil || first.Outcome != proto.Outcome_OUTCOME_APPLIED {
		t.Fatalf("a copy for this term: %+v, %v", first, err)
	}
	if r, err := l.proposals.apply(t.Context(), proto.InTerm(frame, proto.Term(l.node.Raft().CurrentTerm()-1))); err != nil || r.Outcome != proto.Outcome_OUTCOME_DUPLICATE || r.Revision != first.Revision {
		t.Errorf("a copy of what has taken effect: %+v, %v", r, err)
	}
	c.sameHash()
}
