package raftstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// peerServer serves the Peer service of a Store to other nodes. Who calls is
// checked by the peer port.
type peerServer struct {
	proto.UnimplementedPeerServer
	store *Store
	// caller names the node behind a call, as its certificate does.
	caller func(context.Context) (proto.NodeID, bool)
	// describe is Store.Status with what only the node's other parts know.
	describe func(context.Context) *proto.NodeStatus
}

// Register adds the Peer service of s to a gRPC server. describe may be nil.
func (s *Store) Register(g grpc.ServiceRegistrar, caller func(context.Context) (proto.NodeID, bool), describe func(context.Context) *proto.NodeStatus) {
	if describe == nil {
		describe = func(context.Context) *proto.NodeStatus { return s.Status() }
	}
	proto.RegisterPeerServer(g, &peerServer{store: s, caller: caller, describe: describe})
}

// maxForwardedBytes bounds what one stream may have in flight on the leader.
const maxForwardedBytes = 64 << 20

// Exchange answers another node's calls.
func (p *peerServer) Exchange(stream grpc.BidiStreamingServer[proto.PeerRequest, proto.PeerResponse]) error {
	caller, ok := p.caller(stream.Context())
	if !ok {
		return status.Error(codes.Unauthenticated, "no node id")
	}
	x := &exchange{
		peerServer: p,
		stream:     stream,
		caller:     caller,
		room:       newBudget(maxForwardedBytes),
		answers:    make(chan *proto.PeerResponse, streamQueue),
		gone:       make(chan struct{}),
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		x.send()
	}()
	err := x.recv()
	go func() {
		x.tasks.Wait()
		close(x.answers)
	}()
	select {
	case <-written:
	case <-p.store.ended:
		// Raft may never answer what it was given: see awaitFuture.
		close(x.gone)
		<-written
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// exchange is one stream of another node's calls. recv reads them on the stream's own
// goroutine. What is answered from memory is answered at once, and written by recv unless
// send is writing; proposals, and read indexes for which other voters are asked, have a
// goroutine each, because they wait. send writes their answers.
type exchange struct {
	*peerServer
	stream grpc.BidiStreamingServer[proto.PeerRequest, proto.PeerResponse]
	caller proto.NodeID
	member bool           // the caller is one; of recv
	room   *budget        // for calls that have a goroutine
	tasks  sync.WaitGroup // these goroutines

	sending sync.Mutex               // held for a Send
	answers chan *proto.PeerResponse // closed when all tasks have ended
	gone    chan struct{}            // closed when nobody takes answers any more
}

// send writes answers until there are no more.
func (x *exchange) send() {
	for {
		select {
		case a, ok := <-x.answers:
			if !ok {
				return
			}
			// After a failed Send the stream is dead; the answers are still drained.
			x.sending.Lock()
			_ = x.stream.Send(a)
			x.sending.Unlock()
		case <-x.gone:
			return
		}
	}
}

// recv reads calls until the stream ends, and has each answered.
func (x *exchange) recv() error {
	for {
		req, err := x.stream.Recv()
		if err != nil {
			return err
		}
		if answer := x.answerAtOnce(req); answer != nil {
			if x.sending.TryLock() {
				// From here, which saves waking send.
				_ = x.stream.Send(answer)
				x.sending.Unlock()
			} else {
				x.answers <- answer
			}
			continue
		}
		// A call counts for more than its bytes: it holds a goroutine.
		size := int64(len(req.GetPropose())) + callCost
		if err := x.room.take(x.stream.Context(), size); err != nil {
			return err
		}
		x.tasks.Add(1)
		go func() {
			defer x.tasks.Done()
			defer x.room.give(size)
			x.serve(req)
		}()
	}
}

// answerAtOnce returns the answer to what waits for nobody, and refuses; nil is for
// serve.
func (x *exchange) answerAtOnce(req *proto.PeerRequest) *proto.PeerResponse {
	switch r := req.Request.(type) {
	case *proto.PeerRequest_CurrentTerm:
		return &proto.PeerResponse{Id: req.Id, Answer: &proto.PeerResponse_CurrentTerm{CurrentTerm: &proto.CurrentTermResponse{
			Round: r.CurrentTerm.GetRound(), Term: x.store.raft.CurrentTerm(),
		}}}
	case *proto.PeerRequest_ReadIndex, *proto.PeerRequest_Propose:
	default:
		return &proto.PeerResponse{Id: req.Id, Answer: &proto.PeerResponse_Refused{Refused: "unknown question"}}
	}
	// Whether it is one still, after the removal, is for the peer port to know: it ends
	// the stream.
	if !x.member && x.store.leader.ready() {
		if x.member = x.isMember(x.caller); !x.member {
			return stranger(req, x.caller)
		}
	}
	if r := req.GetReadIndex(); r != nil {
		if index, ok := x.store.confirmAtOnce(x.caller, r.GetTerm()); ok {
			return readIndexAnswer(req.Id, index)
		}
	}
	return nil
}

func readIndexAnswer(id uint64, index proto.Revision) *proto.PeerResponse {
	return &proto.PeerResponse{Id: id, Answer: &proto.PeerResponse_ReadIndex{ReadIndex: &proto.ReadIndexResponse{Index: uint64(index)}}}
}

// serve answers a proposal or a read index.
func (x *exchange) serve(req *proto.PeerRequest) {
	if x.stream.Context().Err() != nil {
		// The proposer asks again on another stream. What it sent before must
		// not be overtaken by that, and then take effect after all.
		return
	}
	var answer *proto.PeerResponse
	if r, ok := req.Request.(*proto.PeerRequest_Propose); ok {
		answer = &proto.PeerResponse{Id: req.Id, Answer: &proto.PeerResponse_Propose{Propose: x.apply(r.Propose, req.Term)}}
	} else {
		answer = x.readIndex(x.stream.Context(), req)
	}
	select {
	case x.answers <- answer:
	case <-x.gone:
	}
}

// isMember says whether a node may propose and read through this one, which leads. A
// leader's configuration is the newest there is, so who is not in it is not a member: it
// was removed, and the record of that is not here yet. Any other node's configuration may
// lag, and it refuses both for not leading.
func (p *peerServer) isMember(id proto.NodeID) bool {
	_, servers, err := p.store.Members()
	return err == nil && slices.ContainsFunc(servers, func(s Server) bool { return s.ID == id })
}

// stranger refuses a call of a node that is not a member.
func stranger(req *proto.PeerRequest, caller proto.NodeID) *proto.PeerResponse {
	why := fmt.Sprintf("node %s is not a member of this cluster", caller)
	if _, ok := req.Request.(*proto.PeerRequest_Propose); ok {
		return &proto.PeerResponse{Id: req.Id, Answer: &proto.PeerResponse_Propose{Propose: &proto.ProposeResponse{
			Error: proto.ProposeError_PROPOSE_INVALID, Detail: why,
		}}}
	}
	return &proto.PeerResponse{Id: req.Id, Answer: &proto.PeerResponse_Refused{Refused: why}}
}

// callCost bounds the goroutines of one stream by the budget of its bytes.
const callCost = 4 << 10

// readIndex serves a follower's or non-voter's linearizable read.
func (x *exchange) readIndex(ctx context.Context, req *proto.PeerRequest) *proto.PeerResponse {
	index, err := x.store.confirm(ctx, x.caller, req.GetReadIndex().GetTerm())
	if err != nil {
		return &proto.PeerResponse{Id: req.Id, Answer: &proto.PeerResponse_Refused{Refused: err.Error()}}
	}
	return readIndexAnswer(req.Id, index)
}

// apply appends an entry, if this node leads in the term that the proposer said.
// In a later term the proposer may have given the entry up, or have had it
// refused by a leader in between.
func (p *peerServer) apply(entry []byte, term uint64) *proto.ProposeResponse {
	answer := &proto.ProposeResponse{}
	if len(entry) > proto.MaxEntryBytes {
		answer.Error, answer.Detail = proto.ProposeError_PROPOSE_INVALID, ErrTooLarge.Error()
		return answer
	}
	if err := p.store.checkEntry(entry); err != nil {
		answer.Error, answer.Detail = proto.ProposeError_PROPOSE_INVALID, err.Error()
		return answer
	}
	var r mvcc.Result
	err := errNotSent
	if p.store.leader.leads(term) && p.store.raft.CurrentTerm() == term {
		r, err = p.store.apply(context.Background(), entry)
	}
	switch {
	case err == nil:
		answer.Index, answer.Outcome, answer.Revision = uint64(r.Index), r.Outcome, uint64(r.Revision)
		answer.Exceeded = r.Exceeded
	case errors.Is(err, errNotSent):
		answer.Error, answer.Detail = proto.ProposeError_PROPOSE_NOT_LEADER, err.Error()
	default:
		answer.Error, answer.Detail = proto.ProposeError_PROPOSE_UNKNOWN, err.Error()
	}
	return answer
}

// LeaderLost answers a voter that has lost its connection to the leader.
func (p *peerServer) LeaderLost(ctx context.Context, req *proto.LeaderLostRequest) (*proto.LeaderLostResponse, error) {
	if from, ok := p.caller(ctx); ok && p.isMember(from) {
		p.store.askers.note(raft.ServerID(from), raft.ServerID(req.LeaderId), req.Term)
	}
	return p.store.leaderLost(ctx, req), nil
}

// Status describes this node.
func (p *peerServer) Status(ctx context.Context, _ *proto.StatusRequest) (*proto.NodeStatus, error) {
	return p.describe(ctx), nil
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
