package exchange

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/proto"
)

// maxForwardedBytes bounds what one stream may have in flight on the leader.
const maxForwardedBytes = 64 << 20

// callCost bounds what waits for one stream by the budget of its bytes.
const callCost = 4 << 10

// Handler answers the calls of one stream.
type Handler interface {
	// AnswerAtOnce returns the answer to what waits for nobody, and refuses; nil is for Serve. It is called by one
	// goroutine.
	AnswerAtOnce(*proto.PeerRequest) *proto.PeerResponse
	// Serve has another call answered, by calling done once, at once or later. It does not wait. ctx ends with the stream.
	Serve(ctx context.Context, req *proto.PeerRequest, done func(*proto.PeerResponse))
}

// Server answers the streams of other nodes.
type Server struct {
	ended   <-chan struct{}
	answers atomic.Int64
}

// NewServer returns one that has no more answers to wait for once ended is closed, which is when Raft has ended.
func NewServer(ended <-chan struct{}) *Server { return &Server{ended: ended} }

// Answers is how many messages were sent. For tests.
func (s *Server) Answers() int64 { return s.answers.Load() }

// Serve answers another node's calls until the stream ends.
func (s *Server) Serve(stream grpc.BidiStreamingServer[proto.PeerRequest, proto.PeerResponse], handler Handler) error {
	x := newServed(s, stream, handler)
	written := make(chan struct{})
	go func() {
		defer close(written)
		x.send()
	}()
	err := x.recv()
	go func() {
		x.tasks.Wait()
		close(x.all)
	}()
	select {
	case <-written:
	case <-s.ended:
		// Raft may never answer what it was given: see local.Node.Await.
		close(x.gone)
		<-written
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// served is one stream of another node's calls. recv reads them on the stream's own
// goroutine. What is answered from memory is answered at once, and written by recv unless
// send is writing. Proposals go to Raft with others, and who has their answers leaves them for
// send, which writes them; read indexes for which other voters are asked have a goroutine each,
// because they wait.
type served struct {
	server  *Server
	handler Handler
	stream  grpc.BidiStreamingServer[proto.PeerRequest, proto.PeerResponse]
	room    *budget        // for calls that are not answered at once
	tasks   sync.WaitGroup // these calls

	sending sync.Mutex // held for a Send

	mu      sync.Mutex
	answers []*proto.PeerResponse // not written yet
	more    chan struct{}         // there are answers for send; capacity one
	all     chan struct{}         // closed when all tasks have ended
	gone    chan struct{}         // closed when nobody takes answers any more
}

func newServed(s *Server, stream grpc.BidiStreamingServer[proto.PeerRequest, proto.PeerResponse], handler Handler) *served {
	return &served{
		server: s, handler: handler, stream: stream, room: newBudget(maxForwardedBytes),
		more: make(chan struct{}, 1), all: make(chan struct{}), gone: make(chan struct{}),
	}
}

// post leaves an answer for who writes next.
func (x *served) post(answer *proto.PeerResponse) {
	x.mu.Lock()
	x.answers = append(x.answers, answer)
	x.mu.Unlock()
}

// posted is how many answers are not being written yet.
func (x *served) posted() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.answers)
}

// poke wakes send.
func (x *served) poke() {
	select {
	case x.more <- struct{}{}:
	default:
	}
}

// flush writes the answers that there are. x.sending is held.
func (x *served) flush() {
	x.mu.Lock()
	answers := x.answers
	x.answers = nil
	x.mu.Unlock()
	for len(answers) > 0 {
		m, n := answers[0], 1
		if len(answers) > 1 {
			var err error
			if m, n, err = responseOf(answers); err != nil {
				m, n = answers[0], 1 // which fails, if it is the one
			}
		}
		// After a failed Send the stream is dead; the answers are still drained.
		_ = x.stream.Send(m)
		x.server.answers.Add(1)
		answers = answers[n:]
	}
}

// send writes the answers of tasks until there are no more.
func (x *served) send() {
	for {
		last := false
		select {
		case <-x.more:
			// Who has an answer of the same batch, or of another one, leaves it first.
			runtime.Gosched()
		case <-x.all:
			last = true
		case <-x.gone:
			return
		}
		x.sending.Lock()
		x.flush()
		x.sending.Unlock()
		if last {
			return
		}
	}
}

// recv reads calls until the stream ends, and has each answered.
func (x *served) recv() error {
	for {
		req, err := x.stream.Recv()
		if err != nil {
			return err
		}
		atOnce := false
		if err := Requests(req, func(call *proto.PeerRequest) error {
			if answer := x.handler.AnswerAtOnce(call); answer != nil {
				x.post(answer)
				atOnce = true
				return nil
			}
			// A call counts for more than its bytes: something waits for it.
			size := int64(len(call.GetPropose())) + callCost
			if err := x.room.take(x.stream.Context(), size); err != nil {
				return err
			}
			x.tasks.Add(1)
			x.handler.Serve(x.stream.Context(), call, func(answer *proto.PeerResponse) {
				x.room.give(size)
				x.post(answer)
				x.poke()
				x.tasks.Done()
			})
			return nil
		}); err != nil {
			if errors.Is(err, errTogether) {
				return status.Error(codes.InvalidArgument, err.Error())
			}
			return err
		}
		switch {
		case x.posted() > streamQueue:
			// The caller takes none. Nothing more is read from it until it does.
			x.sending.Lock()
			x.flush()
			x.sending.Unlock()
		case !atOnce: // the task that has the answer pokes
		case x.sending.TryLock():
			// From here, which saves waking send.
			x.flush()
			x.sending.Unlock()
		default:
			x.poke()
		}
	}
}

// budget is a bound in bytes that is waited for.
type budget struct {
	mu    sync.Mutex
	left  int64
	freed chan struct{}
}

func newBudget(n int64) *budget { return &budget{left: n, freed: make(chan struct{}, 1)} }

// take waits until n bytes are free. One caller at a time.
func (b *budget) take(ctx context.Context, n int64) error {
	for {
		b.mu.Lock()
		if b.left >= n || n > maxForwardedBytes {
			b.left -= n
			b.mu.Unlock()
			return nil
		}
		b.mu.Unlock()
		select {
		case <-b.freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	b.left += n
	b.mu.Unlock()
	select {
	case b.freed <- struct{}{}:
	default:
	}
}
