// Package exchange carries calls between nodes, many in flight on one stream to each peer. Calls
// that wait at the same time share a message.
package exchange

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/quorate/quorate/proto"
	storeerrors "github.com/quorate/quorate/raftstore/errors"
	"github.com/quorate/quorate/raftstore/local"
)

// Streams are this node's streams to other nodes, one per peer, each with many
// calls in flight. All methods are safe for concurrent use.
type Streams struct {
	node     *local.Node
	noLeader time.Duration
	messages atomic.Int64

	mu     sync.Mutex
	peers  map[proto.NodeID]*peerStream
	closed bool
	tasks  sync.WaitGroup
}

// streamQueue bounds how many calls wait to be written to a stream; the bytes
// of proposals are bounded by the proposer.
const streamQueue = 256

// peerStream is one stream to one peer. It ends once, for everybody who waits on it.
type peerStream struct {
	id     proto.NodeID
	conn   *grpc.ClientConn
	ctx    context.Context
	cancel context.CancelFunc
	queue  chan *Call

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]*Call
	ended   error
	// proposals wait among the calls, since the first of them was made.
	proposals int
	since     time.Time
	// committed is the newest entry that an answer says is committed.
	committed Committed
}

// Call is one request to a peer, and its answer.
type Call struct {
	Request  proto.PeerRequest
	Until    <-chan struct{} // the answer is not waited for when this is closed; nil: it is
	Response *proto.PeerResponse
	// Then, if set, is told that the answer is there, and closes Done, now or later. It must not wait. last is what is known to be
	// committed if no other proposal waits on the stream, and zero otherwise.
	Then interface{ Answered(last Committed) }

	done chan struct{}
	err  error
}

// Done is closed when the call is answered, or cannot be any more.
func (call *Call) Done() chan struct{} { return call.done }

// Committed is an entry that the leader has answered for: it is applied there.
type Committed struct {
	Leader      proto.NodeID
	Term, Index uint64 // of the entry
}

// ErrNotSent means that the call was certainly not written to the stream.
var ErrNotSent = errors.New("not asked")

// errLeaderChanged ends the wait of a call that only the leader of its time can answer.
var errLeaderChanged = errors.New("the leader has changed")

// New returns streams of a node. Proposals do not wait for a node that Raft had no contact with for noLeader.
func New(node *local.Node, noLeader time.Duration) *Streams {
	return &Streams{node: node, noLeader: noLeader, peers: map[proto.NodeID]*peerStream{}}
}

// Messages is how many messages were sent. For tests.
func (s *Streams) Messages() int64 { return s.messages.Load() }

// Go runs what an answer gives rise to. It is for Call.Then, which is called by one of the tasks that Close waits for.
func (s *Streams) Go(f func()) { s.tasks.Go(f) }

// Ask makes a call to a peer and waits for the answer, which is in call.Response if the error
// is nil. Errors wrap ErrNotSent if the peer cannot have received it.
func (s *Streams) Ask(ctx context.Context, id proto.NodeID, addr string, call *Call) error {
	to, err := s.to(id, addr)
	if err != nil {
		return errors.Join(ErrNotSent, err)
	}
	call.done = make(chan struct{})
	if err := to.register(call); err != nil {
		return errors.Join(ErrNotSent, err)
	}
	select {
	case to.queue <- call:
	case <-to.ctx.Done():
		to.forget(call)
		return errors.Join(ErrNotSent, context.Cause(to.ctx))
	case <-ctx.Done():
		to.forget(call)
		return errors.Join(ErrNotSent, context.Cause(ctx))
	}
	select {
	case <-call.done:
	case <-call.Until:
		to.forget(call)
		return fmt.Errorf("%s: %w", id, errLeaderChanged)
	case <-ctx.Done():
		to.forget(call)
		return context.Cause(ctx)
	}
	if call.err != nil {
		return call.err
	}
	if r, ok := call.Response.Answer.(*proto.PeerResponse_Refused); ok {
		return fmt.Errorf("%s: %s", id, r.Refused)
	}
	return nil
}

// to returns the stream to a peer; it opens one if there is none.
func (s *Streams) to(id proto.NodeID, addr string) (*peerStream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, storeerrors.ErrClosed
	}
	// The peer port says which connection is the peer's now; a stream on another
	// one is of the past.
	conn, err := s.node.Peers.Conn(id, addr)
	if err != nil {
		return nil, fmt.Errorf("reach %s: %w", id, err)
	}
	if p := s.peers[id]; p != nil {
		if p.conn == conn && p.ctx.Err() == nil {
			return p, nil
		}
		p.cancel()
		delete(s.peers, id)
	}
	ctx, cancel := context.WithCancel(s.node.Context())
	p := &peerStream{
		id: id, conn: conn, ctx: ctx, cancel: cancel,
		queue:   make(chan *Call, streamQueue),
		waiting: map[uint64]*Call{},
	}
	s.peers[id] = p
	s.tasks.Go(func() { p.run(s) })
	return p, nil
}

// Close ends all streams, and waits for what was begun on them.
func (s *Streams) Close() {
	s.mu.Lock()
	s.closed = true
	for _, p := range s.peers {
		p.cancel()
	}
	s.mu.Unlock()
	s.tasks.Wait()
}

// run owns the stream: it opens it, writes what is queued and, in a second
// goroutine, reads the answers. Opening happens here, outside any lock, because
// it waits for the connection.
func (p *peerStream) run(s *Streams) {
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		p.watch(s)
	}()
	defer func() { <-watched }()
	defer p.cancel()
	stream, err := proto.NewPeerClient(p.conn).Exchange(p.ctx, local.NoRetry)
	if err != nil {
		// Nothing was written. What was not asked can be asked again.
		p.end(fmt.Errorf("open a stream to %s: %w: %w", p.id, ErrNotSent, err))
		return
	}
	var reader sync.WaitGroup
	var calls []*Call
	for reading := false; p.ctx.Err() == nil; {
		select {
		case call := <-p.queue:
			calls = p.gather(append(calls[:0], call))
			if err := send(stream, calls); err != nil {
				p.cancel()
			}
			s.messages.Add(1)
			clear(calls)
			if !reading {
				// Not before the first call: until then gRPC would retry in Recv, and
				// hold a lock meanwhile that Send waits for without a context.
				reading = true
				reader.Go(func() { p.read(stream) })
			}
		case <-p.ctx.Done():
		}
	}
	reader.Wait()
	p.end(fmt.Errorf("stream to %s: %w", p.id, context.Cause(p.ctx)))
}

// gather adds to a call those that wait behind it, as many as go in a message.
func (p *peerStream) gather(calls []*Call) []*Call {
	if calls[0].proposes() {
		// Who is about to propose comes first: there is nobody where only one does.
		runtime.Gosched()
	}
	for size := 0; ; {
		if size += len(calls[len(calls)-1].Request.GetPropose()); len(calls) == fullParts || size >= fullBytes {
			return calls
		}
		select {
		case call := <-p.queue:
			calls = append(calls, call)
		default:
			return calls
		}
	}
}

// send writes calls as one message.
func send(stream grpc.BidiStreamingClient[proto.PeerRequest, proto.PeerResponse], calls []*Call) error {
	req, err := requestOf(calls)
	if err != nil {
		return err
	}
	return stream.Send(req)
}

// read hands out the answers until gRPC's stream ends, and ends this one with it.
func (p *peerStream) read(stream grpc.BidiStreamingClient[proto.PeerRequest, proto.PeerResponse]) {
	defer p.cancel()
	for {
		resp, err := stream.Recv()
		if err == nil {
			err = Responses(resp, p.answer)
		}
		if err != nil {
			p.end(fmt.Errorf("stream to %s: %w", p.id, err))
			return
		}
	}
}

func (p *peerStream) register(call *Call) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended != nil {
		return p.ended
	}
	p.next++
	call.Request.Id = p.next
	p.waiting[p.next] = call
	if call.proposes() {
		if p.proposals++; p.proposals == 1 {
			p.since = time.Now()
		}
	}
	return nil
}

func (call *Call) proposes() bool {
	_, ok := call.Request.Request.(*proto.PeerRequest_Propose)
	return ok
}

// take removes a call that waits, and returns it, or nil. p.mu is held.
func (p *peerStream) take(id uint64) *Call {
	call := p.waiting[id]
	if call == nil {
		return nil
	}
	delete(p.waiting, id)
	if call.proposes() {
		p.proposals--
	}
	return call
}

func (p *peerStream) forget(call *Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.take(call.Request.Id)
}

func (p *peerStream) answer(resp *proto.PeerResponse) {
	var last Committed
	p.mu.Lock()
	call := p.take(resp.Id)
	if r := resp.GetPropose(); r != nil && r.Error == proto.ProposeError_PROPOSE_OK && r.Index > p.committed.Index {
		p.committed = Committed{p.id, r.Term, r.Index}
	}
	if p.proposals == 0 && (call == nil || call.proposes()) {
		last = p.committed
	}
	p.mu.Unlock()
	if call == nil {
		return // who has asked has gone; the next proposal, or Raft, brings the news
	}
	call.Response = resp
	if call.Then != nil {
		call.Then.Answered(last)
		return
	}
	close(call.done)
}

// end answers everybody who waits. Unless the error says otherwise, what was in
// the queue may have been sent.
func (p *peerStream) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == nil {
		p.ended = err
	}
	for id := range p.waiting {
		call := p.take(id)
		call.err = err
		close(call.done)
	}
}

// watchEvery is how often a stream looks whether its answers can still come.
const watchEvery = 100 * time.Millisecond

// watch ends the stream when proposals wait on it for a node that does not lead
// any more, or that Raft had no contact with for the time that New was given. Their outcome is
// unknown; with their request ids they can be given to the next leader. It is
// Raft's contact that counts, not the answers: a leader whose disk is slow sends
// heartbeats, and is waited for.
func (p *peerStream) watch(s *Streams) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	change := s.node.Changed()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-change:
			change = s.node.Changed()
		case <-tick.C:
		}
		p.mu.Lock()
		waiting, since := p.proposals > 0, p.since
		p.mu.Unlock()
		if !waiting {
			continue
		}
		if contact := s.node.Raft().LastContact(); contact.After(since) {
			since = contact
		}
		_, leader := s.node.Raft().LeaderWithID()
		if leader != "" && proto.NodeID(leader) != p.id || time.Since(since) > s.noLeader {
			p.cancel()
			return
		}
	}
}
