package raftstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quorate/quorate/proto"
	"google.golang.org/grpc"
)

// links are this node's streams to other nodes, one per peer, each with many
// questions in flight.
type links struct {
	store *Store

	mu     sync.Mutex
	peers  map[proto.NodeID]*link
	closed bool
	tasks  sync.WaitGroup
}

// linkQueue bounds how many questions wait to be written to a stream; the bytes
// of proposals are bounded by the proposer.
const linkQueue = 256

// link is one stream to one peer. It ends once, for everybody who waits on it.
type link struct {
	id     proto.NodeID
	conn   *grpc.ClientConn
	ctx    context.Context
	cancel context.CancelFunc
	queue  chan *question

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]*question
	ended   error
	// proposals wait among the questions, since the first of them was asked.
	proposals int
	since     time.Time
}

type question struct {
	req  proto.PeerRequest
	done chan struct{}
	resp *proto.PeerResponse
	err  error
}

// errNotAsked means that the question was certainly not written to the stream.
var errNotAsked = errors.New("not asked")

func newLinks(s *Store) *links {
	return &links{store: s, peers: map[proto.NodeID]*link{}}
}

// ask sends q to a peer and waits for the answer, which is in q.resp if the error
// is nil. Errors wrap errNotAsked if the peer cannot have received it.
func (l *links) ask(ctx context.Context, id proto.NodeID, addr string, q *question) error {
	to, err := l.to(id, addr)
	if err != nil {
		return errors.Join(errNotAsked, err)
	}
	q.done = make(chan struct{})
	if err := to.register(q); err != nil {
		return errors.Join(errNotAsked, err)
	}
	select {
	case to.queue <- q:
	case <-to.ctx.Done():
		to.forget(q)
		return errors.Join(errNotAsked, context.Cause(to.ctx))
	case <-ctx.Done():
		to.forget(q)
		return errors.Join(errNotAsked, context.Cause(ctx))
	}
	select {
	case <-q.done:
	case <-ctx.Done():
		to.forget(q)
		return context.Cause(ctx)
	}
	if q.err != nil {
		return q.err
	}
	if r, ok := q.resp.Answer.(*proto.PeerResponse_Refused); ok {
		return fmt.Errorf("%s: %s", id, r.Refused)
	}
	return nil
}

// to returns the link to a peer; it opens one if there is none.
func (l *links) to(id proto.NodeID, addr string) (*link, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	// The peer port says which connection is the peer's now; a link on another
	// one is of the past.
	conn, err := l.store.cfg.Peers.Conn(id, addr)
	if err != nil {
		return nil, fmt.Errorf("reach %s: %w", id, err)
	}
	if k := l.peers[id]; k != nil {
		if k.conn == conn && k.ctx.Err() == nil {
			return k, nil
		}
		k.cancel()
		delete(l.peers, id)
	}
	ctx, cancel := context.WithCancel(l.store.ctx)
	k := &link{
		id: id, conn: conn, ctx: ctx, cancel: cancel,
		queue:   make(chan *question, linkQueue),
		waiting: map[uint64]*question{},
	}
	l.peers[id] = k
	l.tasks.Add(1)
	go func() {
		defer l.tasks.Done()
		k.run(l.store)
	}()
	return k, nil
}

func (l *links) close() {
	l.mu.Lock()
	l.closed = true
	for _, k := range l.peers {
		k.cancel()
	}
	l.mu.Unlock()
	l.tasks.Wait()
}

// noRetry keeps gRPC from moving a stream to another connection by itself, with
// everything that was sent on it: what to send again, and to whom, is decided by
// who asked. gRPC gives up retries when what it would have to send again is more
// than this, so from the first message on.
var noRetry = grpc.MaxRetryRPCBufferSize(0)

// run owns the stream: it opens it, writes what is queued and, in a second
// goroutine, reads the answers. Opening happens here, outside any lock, because
// it waits for the connection.
func (k *link) run(s *Store) {
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		k.watch(s)
	}()
	defer func() { <-watched }()
	defer k.cancel()
	stream, err := proto.NewPeerClient(k.conn).Exchange(k.ctx, noRetry)
	if err != nil {
		// Nothing was written. What was not asked can be asked again.
		k.end(fmt.Errorf("open a stream to %s: %w: %w", k.id, errNotAsked, err))
		return
	}
	var reader sync.WaitGroup
	for reading := false; k.ctx.Err() == nil; {
		select {
		case q := <-k.queue:
			if err := stream.Send(&q.req); err != nil {
				k.cancel()
			}
			if !reading {
				// Not before the first question: until then gRPC would retry in Recv, and
				// hold a lock meanwhile that Send waits for without a context.
				reading = true
				reader.Go(func() { k.read(stream) })
			}
		case <-k.ctx.Done():
		}
	}
	reader.Wait()
	k.end(fmt.Errorf("stream to %s: %w", k.id, context.Cause(k.ctx)))
}

// read hands out the answers until the stream ends, and ends the link with it.
func (k *link) read(stream grpc.BidiStreamingClient[proto.PeerRequest, proto.PeerResponse]) {
	defer k.cancel()
	for {
		resp, err := stream.Recv()
		if err != nil {
			k.end(fmt.Errorf("stream to %s: %w", k.id, err))
			return
		}
		k.answer(resp)
	}
}

func (k *link) register(q *question) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended != nil {
		return k.ended
	}
	k.next++
	q.req.Id = k.next
	k.waiting[k.next] = q
	if q.proposes() {
		if k.proposals++; k.proposals == 1 {
			k.since = time.Now()
		}
	}
	return nil
}

func (q *question) proposes() bool {
	_, ok := q.req.Ask.(*proto.PeerRequest_Propose)
	return ok
}

// take removes a question that waits, and returns it, or nil. k.mu is held.
func (k *link) take(id uint64) *question {
	q := k.waiting[id]
	if q == nil {
		return nil
	}
	delete(k.waiting, id)
	if q.proposes() {
		k.proposals--
	}
	return q
}

func (k *link) forget(q *question) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.take(q.req.Id)
}

func (k *link) answer(resp *proto.PeerResponse) {
	k.mu.Lock()
	q := k.take(resp.Id)
	k.mu.Unlock()
	if q != nil {
		q.resp = resp
		close(q.done)
	}
}

// end answers everybody who waits. Unless the error says otherwise, what was in
// the queue may have been sent.
func (k *link) end(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended == nil {
		k.ended = err
	}
	for id := range k.waiting {
		q := k.take(id)
		q.err = err
		close(q.done)
	}
}

// watchEvery is how often a link looks whether its answers can still come.
const watchEvery = 100 * time.Millisecond

// watch ends the link when proposals wait on it for a node that does not lead
// any more, or that Raft has not heard of for Timing.NoLeader. Their outcome is
// unknown; with their request ids they can be given to the next leader. It is
// Raft's contact that counts, not the answers: a leader whose disk is slow sends
// heartbeats, and is waited for.
func (k *link) watch(s *Store) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	change := s.leader.watch()
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-change:
			change = s.leader.watch()
		case <-tick.C:
		}
		k.mu.Lock()
		waiting, since := k.proposals > 0, k.since
		k.mu.Unlock()
		if !waiting {
			continue
		}
		if contact := s.raft.LastContact(); contact.After(since) {
			since = contact
		}
		_, leader := s.raft.LeaderWithID()
		if leader != "" && proto.NodeID(leader) != k.id || time.Since(since) > s.cfg.Timing.NoLeader {
			k.cancel()
			return
		}
	}
}
