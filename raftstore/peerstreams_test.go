package raftstore

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/peer"
	"google.golang.org/grpc"

	"github.com/quorate/quorate/raftstore/exchange"
)

// A leader takes only what was meant for it as the leader of its present term: in
// another one, the proposer may have given the entry up.
func TestProposalsOfAnotherTermAreRefused(t *testing.T) {
	c := newCluster(t, 3, nil)
	m := c.leader()
	proposer := c.other(m)
	frame, err := proto.Encode(proto.KindWrite, &proto.Write{Table: "t", Key: "k", Op: proto.Op_OP_PUT, Value: []byte("v"), RequestId: []byte("0123456789abcdef")})
	must.OK(t, err)
	term := m.node.LeadsIn()
	for _, other := range []uint64{0, term - 1, term + 1} {
		if _, err := proposer.proposals.forward(c.ctx(), m.id, m.addr, other, frame); !errors.Is(err, errNotSent) {
			t.Errorf("a proposal for term %d to the leader of term %d: %v, want %v", other, term, err, errNotSent)
		}
	}
	if table := m.State().Table("t"); table != nil {
		t.Error("a refused proposal has taken effect")
	}
	if r, err := proposer.proposals.forward(c.ctx(), m.id, m.addr, term, frame); err != nil || r.Outcome != proto.Outcome_OUTCOME_APPLIED {
		t.Errorf("a proposal for the present term: %v, %v", r.Outcome, err)
	}
}

// deafPeer reads some messages of each stream and answers none.
type deafPeer struct {
	proto.UnimplementedPeerServer
	reads int

	mu   sync.Mutex
	read map[uint64]bool
}

func (p *deafPeer) Exchange(stream grpc.BidiStreamingServer[proto.PeerRequest, proto.PeerResponse]) error {
	for range p.reads {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		p.mu.Lock()
		err = exchange.Requests(req, func(call *proto.PeerRequest) error {
			p.read[binary.BigEndian.Uint64(call.GetPropose())] = true
			return nil
		})
		p.mu.Unlock()
		if err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return context.Cause(stream.Context())
}

func (p *deafPeer) arrived() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.read)
}

// Links to a node that does not lead end with proposals in every stage: not
// registered, queued, half written, read, and given up by their callers. Each
// caller hears of it once, and what was not asked did not arrive.
func TestLinksEndWithQuestionsQueued(t *testing.T) {
	const calls, size = 3000, 32 << 10
	c := newCluster(t, 1, nil)
	m := c.leader()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	host, err := peer.New(peer.Config{
		NodeID: "z", Credentials: c.ca.issue("z"), Listener: l, Logger: slog.New(slog.DiscardHandler), Cluster: m.Cluster,
	})
	must.OK(t, err)
	defer host.Close()
	deaf := &deafPeer{reads: 40, read: map[uint64]bool{}}
	proto.RegisterPeerServer(host.GRPC(), deaf)
	host.Serve()

	var (
		wg       sync.WaitGroup
		mu       sync.Mutex
		notAsked []uint64
		asked    int
	)
	payload := func(i int) []byte { return binary.BigEndian.AppendUint64(make([]byte, 0, size), uint64(i))[:size] }
	ask := func(i int) {
		ctx := c.ctx()
		if i%7 == 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Duration(i%100)*time.Millisecond)
			defer cancel()
		}
		call := exchange.Call{Request: proto.PeerRequest{Term: 1, Request: &proto.PeerRequest_Propose{Propose: payload(i)}}}
		err := m.streams.Ask(ctx, "z", l.Addr().String(), &call)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			t.Errorf("call %d was answered", i)
		case errors.Is(err, exchange.ErrNotSent):
			notAsked = append(notAsked, uint64(i))
		default:
			asked++
		}
	}
	// On a slow machine all may be given up before the first link is there.
	for round := 0; round < 20 && (asked == 0 || deaf.arrived() == 0); round++ {
		for i := range calls {
			wg.Go(func() { ask(round*calls + i) })
		}
		wg.Wait()
	}
	m.streams.Close()
	deaf.mu.Lock()
	defer deaf.mu.Unlock()
	for _, i := range notAsked {
		if deaf.read[i] {
			t.Errorf("call %d has arrived, its caller was told that it was not asked", i)
		}
	}
	t.Logf("%d not asked, %d may have been, %d have arrived", len(notAsked), asked, len(deaf.read))
	if len(deaf.read) == 0 || asked == 0 {
		t.Error("nothing has arrived: the test shows nothing")
	}
}

// A proposal for a node that cannot be reached is in no log: that is not an
// unknown outcome.
func TestUnreachableIsNotAsked(t *testing.T) {
	c := newCluster(t, 1, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	l.Close()
	var call exchange.Call
	if err := c.leader().streams.Ask(c.ctx(), "z", l.Addr().String(), &call); !errors.Is(err, exchange.ErrNotSent) {
		t.Errorf("a call to nobody: %v, want %v", err, exchange.ErrNotSent)
	}
}
