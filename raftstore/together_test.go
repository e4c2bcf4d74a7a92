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
	protobuf "google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/internal/cputime"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/peer"
)

func proposeCall(id uint64, size int) *peerCall {
	return &peerCall{req: proto.PeerRequest{Id: id, Term: 7, Request: &proto.PeerRequest_Propose{Propose: make([]byte, size)}}}
}

// What several calls, or answers, become in a message is what they were.
func TestTogetherIsWhatWasApart(t *testing.T) {
	calls := []*peerCall{
		proposeCall(1, 3), proposeCall(2, 0), proposeCall(1<<60, 1<<17),
		{req: proto.PeerRequest{Id: 4, Request: &proto.PeerRequest_ReadIndex{ReadIndex: &proto.ReadIndexRequest{Term: 9}}}},
	}
	req, err := requestOf(calls)
	noError(t, err)
	n := 0
	noError(t, requests(req, func(got *proto.PeerRequest) error {
		if want := &calls[n].req; !protobuf.Equal(got, want) {
			t.Errorf("call %d: %v, want %v", n, got, want)
		}
		n++
		return nil
	}))
	if n != len(calls) {
		t.Errorf("%d calls, want %d", n, len(calls))
	}
	if req, err := requestOf(calls[:1]); err != nil || req != &calls[0].req {
		t.Errorf("one call is %v, %v, want the call", req, err)
	}

	var answers []*proto.PeerResponse
	for i := range 3*fullParts + 1 {
		a := &proto.PeerResponse{Id: uint64(i + 1), Answer: &proto.PeerResponse_Propose{Propose: &proto.ProposeResponse{Index: uint64(i)}}}
		if i == fullParts {
			a.GetPropose().Detail = string(make([]byte, 2*fullBytes)) // nothing behind it in its message
		}
		answers = append(answers, a)
	}
	var sizes []int
	n = 0
	for rest := answers; len(rest) > 0; {
		resp, k, err := responseOf(rest)
		noError(t, err)
		noError(t, responses(resp, func(got *proto.PeerResponse) {
			if !protobuf.Equal(got, answers[n]) {
				t.Errorf("answer %d is another one", n)
			}
			n++
		}))
		sizes, rest = append(sizes, k), rest[k:]
	}
	if n != len(answers) || fmt.Sprint(sizes) != fmt.Sprint([]int{fullParts, 1, fullParts, fullParts}) {
		t.Errorf("%d answers in messages of %d", n, sizes)
	}
}

// What another node sends is refused as a whole if it is not whole, and bounded.
func TestBrokenTogether(t *testing.T) {
	req, err := requestOf([]*peerCall{proposeCall(1, 10), proposeCall(2, 10)})
	noError(t, err)
	whole := req.GetTogether()
	many := func(n int) []byte { return make([]byte, n) } // a part without bytes is one byte
	nested, err := appendPart(nil, req)
	noError(t, err)
	for name, row := range map[string]struct {
		b     []byte
		calls int
		ok    bool
	}{
		"whole":                {whole, 2, true},
		"nothing":              {nil, 0, true},
		"cut":                  {whole[:len(whole)-1], 0, false},
		"a byte more":          {append(whole[:len(whole):len(whole)], 1), 0, false},
		"longer than all":      {binary.AppendUvarint(nil, 1<<63), 0, false},
		"a length without end": {[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 0, false},
		"as many as may be":    {many(mostParts), mostParts, true},
		"one more":             {many(mostParts + 1), 0, false},
		"no message":           {append(whole[:len(whole):len(whole)], 1, 0xff), 2, false},
	} {
		n := 0
		err := requests(&proto.PeerRequest{Request: &proto.PeerRequest_Together{Together: row.b}}, func(*proto.PeerRequest) error { n++; return nil })
		if (err == nil) != row.ok || err != nil && !errors.Is(err, errTogether) || n != row.calls {
			t.Errorf("%s: %d calls, %v", name, n, err)
		}
	}
	// One within another is a question that nobody knows.
	noError(t, requests(&proto.PeerRequest{Request: &proto.PeerRequest_Together{Together: nested}}, func(in *proto.PeerRequest) error {
		if a := new(exchange).answerAtOnce(in); a.GetRefused() == "" {
			t.Errorf("nested: %v", a)
		}
		return nil
	}))
}

func FuzzTogether(f *testing.F) {
	req, err := requestOf([]*peerCall{proposeCall(1, 10), proposeCall(2, 0)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(req.GetTogether())
	f.Add([]byte{0, 0, 1})
	f.Add(binary.AppendUvarint(nil, 1<<63))
	f.Fuzz(func(t *testing.T, b []byte) {
		var calls []*peerCall
		err := requests(&proto.PeerRequest{Request: &proto.PeerRequest_Together{Together: b}}, func(r *proto.PeerRequest) error {
			calls = append(calls, &peerCall{req: proto.PeerRequest{Id: r.Id, Request: r.Request, Term: r.Term}})
			return nil
		})
		if len(calls) > mostParts {
			t.Fatalf("%d calls", len(calls))
		}
		if err != nil || len(calls) < 2 {
			return
		}
		again, err := requestOf(calls)
		noError(t, err)
		n := 0
		noError(t, requests(again, func(r *proto.PeerRequest) error {
			if want := &calls[n].req; r.Id != want.Id || r.Term != want.Term || string(r.GetPropose()) != string(want.GetPropose()) {
				t.Errorf("call %d: %v, want %v", n, r, want)
			}
			n++
			return nil
		}))
	})
}

// Calls that wait go together, up to a number and a size.
func TestGather(t *testing.T) {
	for name, row := range map[string]struct {
		sizes, want []int // of the calls that wait; how many are in each message
	}{
		"one":        {[]int{1}, []int{1}},
		"some":       {[]int{1, 1, 1}, []int{3}},
		"many":       {make([]int, 2*fullParts+1), []int{fullParts, fullParts, 1}},
		"large ones": {[]int{fullBytes - 1, fullBytes, 1, fullBytes, 1, 1}, []int{2, 2, 2}},
	} {
		p := &peerStream{queue: make(chan *peerCall, streamQueue)}
		for _, size := range row.sizes {
			p.queue <- proposeCall(1, size)
		}
		var got []int
		for len(p.queue) > 0 {
			got = append(got, len(p.gather([]*peerCall{<-p.queue})))
		}
		if fmt.Sprint(got) != fmt.Sprint(row.want) {
			t.Errorf("%s: messages of %d calls, want %d", name, got, row.want)
		}
	}
}

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
	sent, answered := m.stats.messages.Load(), leader.stats.answers.Load()
	t.Logf("%d proposals were forwarded in %d messages and answered in %d", m.stats.forwarded.Load(), sent, answered)
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
	sent, answered := m.stats.messages.Load(), leader.stats.answers.Load()
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
	b.ReportMetric(float64(m.stats.messages.Load()-sent)/float64(b.N), "messages/op")
	b.ReportMetric(float64(leader.stats.answers.Load()-answered)/float64(b.N), "answers/op")
}

// strangePeer is another node's Peer service, of a test.
func strangePeer(t *testing.T, c *cluster, m *testNode, id proto.NodeID, server proto.PeerServer) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	host, err := peer.New(peer.Config{
		NodeID: id, Credentials: c.ca.issue(id), Listener: l, Logger: slog.New(slog.DiscardHandler), Cluster: m.Cluster,
	})
	noError(t, err)
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
	noError(t, err)
	stream, err := proto.NewPeerClient(conn).Exchange(c.ctx(), noRetry)
	noError(t, err)
	term := leader.leader.term.Load()
	for i := range calls {
		w := write(fmt.Sprint(i), "v")
		w.RequestId = binary.BigEndian.AppendUint64(make([]byte, 8), uint64(i))
		frame, err := proto.Encode(proto.KindWrite, w)
		noError(t, err)
		noError(t, stream.Send(&proto.PeerRequest{Id: uint64(i + 1), Term: term, Request: &proto.PeerRequest_Propose{Propose: frame}}))
	}
	noError(t, stream.CloseSend())
	got, messages := map[uint64]bool{}, 0
	for {
		resp, err := stream.Recv()
		if err == io.EOF {
			break
		}
		noError(t, err)
		messages++
		noError(t, responses(resp, func(a *proto.PeerResponse) {
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
		err = requests(req, func(r *proto.PeerRequest) error {
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
				call := peerCall{req: proto.PeerRequest{Term: 1, Request: &proto.PeerRequest_Propose{Propose: binary.BigEndian.AppendUint64(nil, at)}}}
				err := m.streams.send(ctx, "z", addr, &call)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					t.Errorf("call %d was answered", at)
				case errors.Is(err, errCallNotSent):
					notAsked = append(notAsked, at)
				}
			})
		}
		wg.Wait()
		server.mu.Lock()
		shared = server.most > 1
		server.mu.Unlock()
	}
	m.streams.close()
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
	noError(t, err)
	for name, b := range map[string][]byte{"cut": {9, 1}, "too many": make([]byte, mostParts+1), "no message": {1, 0xff}} {
		stream, err := proto.NewPeerClient(conn).Exchange(c.ctx(), noRetry)
		noError(t, err)
		noError(t, stream.Send(&proto.PeerRequest{Request: &proto.PeerRequest_Together{Together: b}}))
		if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = m.Propose(c.ctx(), write("k", "v"))
	noError(t, err)
}

// stuckStream is a stream whose caller takes no answers.
type stuckStream struct {
	grpc.BidiStreamingServer[proto.PeerRequest, proto.PeerResponse]
	ctx   context.Context
	calls chan *proto.PeerRequest
}

func (s *stuckStream) Context() context.Context { return s.ctx }

func (s *stuckStream) Send(*proto.PeerResponse) error {
	<-s.ctx.Done()
	return s.ctx.Err()
}

func (s *stuckStream) Recv() (*proto.PeerRequest, error) {
	select {
	case r := <-s.calls:
		return r, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// A caller that takes no answers is not read from for ever.
func TestAnswersAreBounded(t *testing.T) {
	c := newCluster(t, 1, nil)
	m := c.leader()
	frame, err := proto.Encode(proto.KindWrite, write("k", "v"))
	noError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream := &stuckStream{ctx: ctx, calls: make(chan *proto.PeerRequest)}
	x := &exchange{
		peerServer: &peerServer{store: m.Store}, stream: stream, caller: m.id, room: newBudget(maxForwardedBytes),
		more: make(chan struct{}, 1), all: make(chan struct{}), gone: make(chan struct{}),
	}
	var ended sync.WaitGroup
	ended.Go(x.send)
	ended.Go(func() {
		_ = x.recv()
		close(x.all)
	})
	n := 0
	for taken := true; taken && n <= 4*streamQueue; {
		select {
		// Of another term: refused, as many as there are, without the log.
		case stream.calls <- &proto.PeerRequest{Id: uint64(n), Request: &proto.PeerRequest_Propose{Propose: frame}}:
			n++
		case <-time.After(time.Second):
			taken = false
		}
	}
	t.Logf("%d calls were taken", n)
	if n > 2*streamQueue {
		t.Errorf("%d calls were taken of a caller that takes no answers", n)
	}
	cancel()
	ended.Wait()
}

// TestForwardedAtTheEnd: who forwards a proposal at the end of the store is answered, whenever that is. The proposals are held
// back at first. The clock stands still, or the hold would end on a busy machine, and there is no Raft to give them to.
func TestForwardedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Store
		s.batches.underWay = 1
		s.batches.load = 1000 * fewUnderWay
		ended := 0
		propose := func() {
			s.begin(&proposal{then: func(p *proposal) {
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
		s.batches.close()
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
		_, err := m.forward(ctx, "z", addr, 1, []byte("x"))
		ended <- err
	}()
	c.eventually("the answer waits for the entry", func() error {
		select {
		case err := <-ended:
			// The stream of a node that does not lead ends with its proposals.
			go func() {
				_, err := m.forward(ctx, "z", addr, 1, []byte("x"))
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
