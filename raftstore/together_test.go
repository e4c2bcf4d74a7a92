package raftstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/internal/cputime"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/peer"

	"github.com/quorate/quorate/raftstore/exchange"
	"github.com/quorate/quorate/raftstore/local"
)

// The writes of many at a follower all happen once, and share messages.
func TestForwardedTogether(t *testing.T) {
	const writers, each = 32, 20
	c := newCluster(t, 3, nil)
	leader := c.leader()
	m := c.other(leader)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				key := fmt.Sprint(w, "/", i)
				if r, err := m.Propose(c.ctx(), write(key, key)); err != nil || string(r.Version.Value()) != key {
					t.Errorf("%s: %v, %v", key, r, err)
				}
			}
		})
	}
	wg.Wait()
	sent, answered := m.streams.Messages(), leader.server.Answers()
	t.Logf("%d proposals were forwarded in %d messages and answered in %d", m.proposals.sent.Load(), sent, answered)
	if sent >= writers*each || answered >= writers*each {
		t.Error("no message was shared")
	}
}

// BenchmarkForwarded has 32 write at a follower, on three nodes in this process.
func BenchmarkForwarded(b *testing.B) {
	c := newCluster(b, 3, nil)
	leader := c.leader()
	m := c.other(leader)
	var next atomic.Int64
	value := string(make([]byte, 1400))
	sent, answered := m.streams.Messages(), leader.server.Answers()
	cputime.PerOp(b)
	b.ResetTimer()
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if _, err := m.Propose(c.ctx(), write(fmt.Sprint(i), value)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(m.streams.Messages()-sent)/float64(b.N), "messages/op")
	b.ReportMetric(float64(leader.server.Answers()-answered)/float64(b.N), "answers/op")
}

// strangePeer is another node's Peer service, of a test.
func strangePeer(t *testing.T, c *cluster, m *testNode, id proto.NodeID, server proto.PeerServer) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	host, err := peer.New(peer.Config{
		NodeID: id, Credentials: c.ca.issue(id), Listener: l, Logger: slog.New(slog.DiscardHandler), Cluster: m.Cluster,
	})
	must.OK(t, err)
	t.Cleanup(func() { host.Close() })
	proto.RegisterPeerServer(host.GRPC(), server)
	host.Serve()
	return l.Addr().String()
}

// Answers to calls that come together share messages, and each call gets its own.
func TestAnswersTogether(t *testing.T) {
	const calls = 300
	c := newCluster(t, 3, nil)
	leader := c.leader()
	m := c.other(leader)
	conn, err := m.host.Conn(leader.id, leader.addr)
	must.OK(t, err)
	stream, err := proto.NewPeerClient(conn).Exchange(c.ctx(), local.NoRetry)
	must.OK(t, err)
	term := leader.node.LeadsIn()
	for i := range calls {
		w := write(fmt.Sprint(i), "v")
		w.RequestId = binary.BigEndian.AppendUint64(make([]byte, 8), uint64(i))
		frame, err := proto.Encode(proto.KindWrite, w)
		must.OK(t, err)
		must.OK(t, stream.Send(&proto.PeerRequest{Id: uint64(i + 1), Term: term, Request: &proto.PeerRequest_Propose{Propose: frame}}))
	}
	must.OK(t, stream.CloseSend())
	got, messages := map[uint64]bool{}, 0
	for {
		resp, err := stream.Recv()
		if err == io.EOF {
			break
		}
		must.OK(t, err)
		messages++
		must.OK(t, exchange.Responses(resp, func(a *proto.PeerResponse) {
			// On a slow machine it may not lead any more, and say so.
			if a.GetPropose() == nil || got[a.Id] {
				t.Errorf("%v, twice: %v", a, got[a.Id])
			}
			got[a.Id] = true
		}))
	}
	t.Logf("%d answers in %d messages", len(got), messages)
	if len(got) != calls {
		t.Errorf("%d answers, want %d", len(got), calls)
	}
}

// breakingPeer breaks each stream behind some messages of several, without an answer.
type breakingPeer struct {
	proto.UnimplementedPeerServer
	mu   sync.Mutex
	read map[uint64]int
	most int // calls in a message
}

func (p *breakingPeer) Exchange(stream grpc.BidiStreamingServer[proto.PeerRequest, proto.PeerResponse]) error {
	for several := 0; several < 3; {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		n := 0
		p.mu.Lock()
		err = exchange.Requests(req, func(r *proto.PeerRequest) error {
			p.read[binary.BigEndian.Uint64(r.GetPropose())]++
			n++
			return nil
		})
		p.most = max(p.most, n)
		p.mu.Unlock()
		if err != nil {
			return err
		}
		if n > 1 {
			several++
		}
	}
	return io.ErrUnexpectedEOF
}

// A stream that breaks ends the wait of all whose calls shared a message: none is told that it was not
// sent if it has arrived, and none arrives twice.
func TestTogetherBreaks(t *testing.T) {
	const calls = 2000
	c := newCluster(t, 1, nil)
	m := c.leader()
	server := &breakingPeer{read: map[uint64]int{}}
	addr := strangePeer(t, c, m, "z", server)
	var (
		wg       sync.WaitGroup
		mu       sync.Mutex
		notAsked []uint64
		shared   bool
	)
	for round := 0; round < 20 && !shared; round++ {
		for i := range calls {
			wg.Go(func() {
				at := uint64(round*calls + i)
				ctx, cancel := context.WithTimeout(c.ctx(), 2*time.Second)
				defer cancel()
				call := exchange.Call{Request: proto.PeerRequest{Term: 1, Request: &proto.PeerRequest_Propose{Propose: binary.BigEndian.AppendUint64(nil, at)}}}
				err := m.streams.Ask(ctx, "z", addr, &call)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					t.Errorf("call %d was answered", at)
				case errors.Is(err, exchange.ErrNotSent):
					notAsked = append(notAsked, at)
				}
			})
		}
		wg.Wait()
		server.mu.Lock()
		shared = server.most > 1
		server.mu.Unlock()
	}
	m.streams.Close()
	server.mu.Lock()
	defer server.mu.Unlock()
	for _, i := range notAsked {
		if server.read[i] > 0 {
			t.Errorf("call %d has arrived, its caller was told that it was not asked", i)
		}
	}
	for i, n := range server.read {
		if n > 1 {
			t.Errorf("call %d has arrived %d times", i, n)
		}
	}
	t.Logf("%d have arrived, at most %d in a message, %d not asked", len(server.read), server.most, len(notAsked))
	if !shared {
		t.Error("no message was shared: the test shows nothing")
	}
}

// A broken message of several ends its stream, and nothing else.
func TestBrokenTogetherEndsTheStream(t *testing.T) {
	c := newCluster(t, 3, nil)
	leader := c.leader()
	m := c.other(leader)
	conn, err := m.host.Conn(leader.id, leader.addr)
	must.OK(t, err)
	for name, b := range map[string][]byte{"cut": {9, 1}, "too many": make([]byte, 1025), "no message": {1, 0xff}} {
		stream, err := proto.NewPeerClient(conn).Exchange(c.ctx(), local.NoRetry)
		must.OK(t, err)
		must.OK(t, stream.Send(&proto.PeerRequest{Request: &proto.PeerRequest_Together{Together: b}}))
		if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = m.Propose(c.ctx(), write("k", "v"))
	must.OK(t, err)
}

// TestForwardedAtTheEnd: who forwards a proposal at the end of the store is answered, whenever that is. The proposals are held
// back at first. The clock stands still, or the hold would end on a busy machine, and there is no Raft to give them to.
func TestForwardedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Store
		s.proposals.batches.underWay = 1
		s.proposals.batches.load = 1000 * fewUnderWay
		ended := 0
		propose := func() {
			s.proposals.begin(&proposal{then: func(p *proposal) {
				if !errors.Is(p.err, ErrUnknownOutcome) {
					t.Error(p.err)
				}
				ended++
			}})
		}
		propose()
		propose()
		if ended != 0 {
			t.Errorf("%d have ended", ended)
		}
		s.proposals.batches.close()
		propose()
		if ended != 3 {
			t.Errorf("%d have ended, want 3", ended)
		}
	})
}

// Who is to be woken when an index is applied is woken once, whatever else happens.
func TestWakeAtAnIndex(t *testing.T) {
	var w waiters
	var applied atomic.Uint64
	at := func() proto.Revision { return proto.Revision(applied.Load()) }
	advance := func(n uint64) {
		applied.Store(n)
		w.advance(proto.Revision(n))
	}
	wake := func(index proto.Revision) chan struct{} {
		me := &waiter{index: index, done: make(chan struct{}), pos: -1}
		w.wake(me, at)
		return me.done
	}
	isDone := func(done chan struct{}) bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
	advance(5)
	if !isDone(wake(0)) || !isDone(wake(5)) {
		t.Error("what is applied is waited for")
	}
	six, seven := wake(6), wake(7)
	advance(6)
	if !isDone(six) || isDone(seven) {
		t.Errorf("at 6: %v, %v", isDone(six), isDone(seven))
	}
	// Each closes its channel once, or the program ends.
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() { <-wake(proto.Revision(i)) })
	}
	for n := uint64(7); n < 1000; n++ {
		advance(n)
	}
	wg.Wait()
	// Who leaves is not kept, whether the answer has come or comes later.
	left, never := &waiter{index: 5000, done: make(chan struct{}), pos: -1}, &waiter{index: 5000, pos: -1}
	w.wake(left, at)
	w.leave(left)
	w.leave(never)
	never.done = make(chan struct{})
	w.wake(never, at)
	if len(w.heap) > 0 || w.next.Load() != 0 {
		t.Errorf("%d are kept who have left", len(w.heap))
	}
	for range 1000 {
		me := &waiter{index: 1000, done: make(chan struct{}), pos: -1}
		wg.Go(func() { w.wake(me, at) })
		wg.Go(func() { w.leave(me) })
	}
	wg.Wait()
	if len(w.heap) > 0 {
		t.Errorf("%d are kept who have left meanwhile", len(w.heap))
	}
	late := wake(5000)
	w.close(ErrClosed)
	if !isDone(late) || !isDone(wake(6000)) {
		t.Error("nobody is woken at the end")
	}
}

// While a node lags, a caller that forwards a write and gives up leaves nothing behind, though the leader has answered.
func TestForwardedByWhoGivesUp(t *testing.T) {
	c := newCluster(t, 3, nil)
	leader := c.leader()
	m := c.other(leader)
	addr := strangePeer(t, c, m, "z", &answerer{index: 1 << 40})
	kept := func() int {
		m.waiters.mu.Lock()
		defer m.waiters.mu.Unlock()
		n := 0
		for _, w := range m.waiters.heap {
			if w.index == 1<<40 {
				n++
			}
		}
		return n
	}
	ctx, cancel := context.WithCancel(c.ctx())
	defer cancel()
	ended := make(chan error)
	go func() {
		_, err := m.proposals.forward(ctx, "z", addr, 1, []byte("x"))
		ended <- err
	}()
	c.eventually("the answer waits for the entry", func() error {
		select {
		case err := <-ended:
			// The stream of a node that does not lead ends with its proposals.
			go func() {
				_, err := m.proposals.forward(ctx, "z", addr, 1, []byte("x"))
				ended <- err
			}()
			return fmt.Errorf("it has ended: %w", err)
		default:
		}
		if n := kept(); n != 1 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	cancel()
	if err := <-ended; !errors.Is(err, ErrUnknownOutcome) {
		t.Error(err)
	}
	if n := kept(); n != 0 {
		t.Errorf("%d wait for nobody", n)
	}
}

// answerer says of each proposal that it is applied at an index.
type answerer struct {
	proto.UnimplementedPeerServer
	index uint64
}

func (p *answerer) Exchange(stream grpc.BidiStreamingServer[proto.PeerRequest, proto.PeerResponse]) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := stream.Send(&proto.PeerResponse{Id: req.Id, Answer: &proto.PeerResponse_Propose{Propose: &proto.ProposeResponse{Index: p.index}}}); err != nil {
			return err
		}
	}
}
