package raftstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"google.golang.org/grpc"
)

// forwarder sends proposals to the leader, many in flight on one stream.
type forwarder struct {
	store *Store

	mu     sync.Mutex
	stream *forwardStream // to the leader that was known last
	closed bool
	tasks  sync.WaitGroup
}

// forwardQueue bounds how many proposals wait to be written to the stream; the
// bytes are bounded by the proposer.
const forwardQueue = 256

// forwardStream is one stream to one leader. It ends once, for everybody.
type forwardStream struct {
	leader proto.NodeID
	addr   string
	cancel context.CancelFunc
	ctx    context.Context
	queue  chan *forwarded

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]*forwarded
	ended   error
}

type forwarded struct {
	id    uint64
	frame []byte
	done  chan struct{}
	resp  *proto.ProposeResponse
	err   error
}

func newForwarder(s *Store) *forwarder { return &forwarder{store: s} }

// send gives one frame to the leader and waits for the answer. Errors:
// errNotSent, ErrUnknownOutcome, or one that ends the proposal.
func (f *forwarder) send(ctx context.Context, leader proto.NodeID, addr string, frame []byte) (mvcc.Result, error) {
	stream, err := f.to(leader, addr)
	if err != nil {
		return mvcc.Result{}, errors.Join(errNotSent, err)
	}
	p := &forwarded{frame: frame, done: make(chan struct{})}
	if err := stream.register(p); err != nil {
		return mvcc.Result{}, errors.Join(errNotSent, err)
	}
	defer stream.forget(p)
	select {
	case stream.queue <- p:
	case <-stream.ctx.Done():
		return mvcc.Result{}, errors.Join(errNotSent, context.Cause(stream.ctx))
	case <-ctx.Done():
		return mvcc.Result{}, errors.Join(errNotSent, context.Cause(ctx))
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return mvcc.Result{}, errors.Join(ErrUnknownOutcome, context.Cause(ctx))
	}
	if p.err != nil {
		return mvcc.Result{}, errors.Join(ErrUnknownOutcome, p.err)
	}
	return result(p.resp)
}

func result(r *proto.ProposeResponse) (mvcc.Result, error) {
	detail := errors.New(r.Detail)
	switch r.Error {
	case proto.ProposeError_PROPOSE_OK:
		return mvcc.Result{Index: proto.RaftIndex(r.Index), Outcome: r.Outcome, Revision: proto.Revision(r.Revision)}, nil
	case proto.ProposeError_PROPOSE_NOT_LEADER:
		return mvcc.Result{}, errors.Join(errNotSent, detail)
	case proto.ProposeError_PROPOSE_OVERLOADED:
		return mvcc.Result{}, errors.Join(ErrOverloaded, detail)
	case proto.ProposeError_PROPOSE_INVALID:
		return mvcc.Result{}, fmt.Errorf("the leader refuses the entry: %w", detail)
	default:
		return mvcc.Result{}, errors.Join(ErrUnknownOutcome, detail)
	}
}

// to returns the stream to a leader; it opens one if there is none.
func (f *forwarder) to(leader proto.NodeID, addr string) (*forwardStream, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, ErrClosed
	}
	if s := f.stream; s != nil {
		if s.leader == leader && s.addr == addr && s.ctx.Err() == nil {
			return s, nil
		}
		s.cancel()
		f.stream = nil
	}
	conn, err := f.store.cfg.Peers.Conn(leader, addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(f.store.ctx)
	s := &forwardStream{
		leader: leader, addr: addr, ctx: ctx, cancel: cancel,
		queue:   make(chan *forwarded, forwardQueue),
		waiting: map[uint64]*forwarded{},
	}
	f.stream = s
	f.tasks.Add(1)
	go func() {
		defer f.tasks.Done()
		s.run(conn)
	}()
	return s, nil
}

func (f *forwarder) close() {
	f.mu.Lock()
	f.closed = true
	if f.stream != nil {
		f.stream.cancel()
	}
	f.mu.Unlock()
	f.tasks.Wait()
}

// run owns the stream: it opens it, writes what is queued and, in a second
// goroutine, reads the answers. Opening happens here, outside any lock, because
// it waits for the connection.
func (s *forwardStream) run(conn *grpc.ClientConn) {
	defer s.cancel()
	stream, err := proto.NewPeerClient(conn).Propose(s.ctx)
	if err != nil {
		s.end(fmt.Errorf("open a stream to %s: %w", s.leader, err))
		return
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer s.cancel()
		for {
			resp, err := stream.Recv()
			if err != nil {
				s.end(fmt.Errorf("stream to %s: %w", s.leader, err))
				return
			}
			s.answer(resp)
		}
	}()
	for s.ctx.Err() == nil {
		select {
		case p := <-s.queue:
			if err := stream.Send(&proto.ProposeRequest{Id: p.id, Entry: p.frame}); err != nil {
				s.cancel()
			}
		case <-s.ctx.Done():
		}
	}
	<-read
}

func (s *forwardStream) register(p *forwarded) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return s.ended
	}
	s.next++
	p.id = s.next
	s.waiting[p.id] = p
	return nil
}

func (s *forwardStream) forget(p *forwarded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, p.id)
}

func (s *forwardStream) answer(resp *proto.ProposeResponse) {
	s.mu.Lock()
	p := s.waiting[resp.Id]
	delete(s.waiting, resp.Id)
	s.mu.Unlock()
	if p != nil {
		p.resp = resp
		close(p.done)
	}
}

// end answers everybody who waits. What was in the queue may have been sent.
func (s *forwardStream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = err
	for id, p := range s.waiting {
		delete(s.waiting, id)
		p.err = err
		close(p.done)
	}
}
