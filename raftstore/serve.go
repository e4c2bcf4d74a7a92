package raftstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

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
		more:       make(chan struct{}, 1),
		all:        make(chan struct{}),
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
		close(x.all)
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
// send is writing. Proposals go to Raft with others, and who has their answers leaves them for
// send, which writes them; read indexes for which other voters are asked have a goroutine each,
// because they wait.
type exchange struct {
	*peerServer
	stream grpc.BidiStreamingServer[proto.PeerRequest, proto.PeerResponse]
	caller proto.NodeID
	member bool           // the caller is one; of recv
	room   *budget        // for calls that are not answered at once
	tasks  sync.WaitGroup // these calls

	sending sync.Mutex // held for a Send

	mu      sync.Mutex
	answers []*proto.PeerResponse // not written yet
	more    chan struct{}         // there are answers for send; capacity one
	all     chan struct{}         // closed when all tasks have ended
	gone    chan struct{}         // closed when nobody takes answers any more
}

// post leaves an answer for who writes next.
func (x *exchange) post(answer *proto.PeerResponse) {
	x.mu.Lock()
	x.answers = append(x.answers, answer)
	x.mu.Unlock()
}

// posted is how many answers are not being written yet.
func (x *exchange) posted() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.answers)
}

// poke wakes send.
func (x *exchange) poke() {
	select {
	case x.more <- struct{}{}:
	default:
	}
}

// flush writes the answers that there are. x.sending is held.
func (x *exchange) flush() {
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
		x.store.stats.answers.Add(1)
		answers = answers[n:]
	}
}

// send writes the answers of tasks until there are no more.
func (x *exchange) send() {
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
func (x *exchange) recv() error {
	for {
		req, err := x.stream.Recv()
		if err != nil {
			return err
		}
		atOnce := false
		if err := requests(req, func(call *proto.PeerRequest) error {
			if answer := x.answerAtOnce(call); answer != nil {
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
			x.serve(call, func(answer *proto.PeerResponse) {
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

// answerAtOnce returns the answer to what waits for nobody, and refuses; nil is for
// serve.
func (x *exchange) answerAtOnce(req *proto.PeerRequest) *proto.PeerResponse {
	switch r := req.Request.(type) {
	case *proto.PeerRequest_CurrentTerm:
		if !x.store.comparison.compared(raft.ServerID(x.caller)) {
			return &proto.PeerResponse{Id: req.Id, Answer: &proto.PeerResponse_Refused{Refused: errNotCompared.Error()}}
		}
		answer := &proto.CurrentTermResponse{Round: r.CurrentTerm.GetRound(), Term: x.store.raft.CurrentTerm(), Follows: x.store.raft.State() != raft.Leader}
		if disk := r.CurrentTerm.GetDisk(); disk != nil && x.store.leader.ready() {
			x.store.disks.note(x.caller, disk)
			_, answer.Disks = x.store.Disk()
		}
		return &proto.PeerResponse{Id: req.Id, Answer: &proto.PeerResponse_CurrentTerm{CurrentTerm: answer}}
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

// serve has a proposal or a read index answered, by calling done once, at once or later.
func (x *exchange) serve(req *proto.PeerRequest, done func(*proto.PeerResponse)) {
	r, ok := req.Request.(*proto.PeerRequest_Propose)
	if !ok {
		go func() { done(x.readIndex(x.stream.Context(), req)) }()
		return
	}
	id := req.Id
	answer := func(a *proto.ProposeResponse) {
		if a.Error == proto.ProposeError_PROPOSE_OK {
			x.store.transport.tellsCommit(raft.ServerID(x.caller), a.Index)
		}
		done(&proto.PeerResponse{Id: id, Answer: &proto.PeerResponse_Propose{Propose: a}})
	}
	if x.stream.Context().Err() != nil {
		// The proposer asks again on another stream. What it sent before must
		// not be overtaken by that, and then take effect after all.
		answer(proposeAnswer(mvcc.Result{}, errNotSent))
		return
	}
	x.apply(r.Propose, req.Term, answer)
}

// isMember says whether a node may propose and read through this one, which leads. A
// leader's configuration is the newest there is, so who is not in it is not a member: it
// was removed, and the record of that is not here yet. Any other node's configuration may
// lag, and it refuses both for not leading.
func (p *peerServer) isMember(id proto.NodeID) bool { return p.store.isMember(id) }

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

// callCost bounds what waits for one stream by the budget of its bytes.
const callCost = 4 << 10

// readIndex serves a follower's or non-voter's linearizable read.
func (x *exchange) readIndex(ctx context.Context, req *proto.PeerRequest) *proto.PeerResponse {
	index, err := x.store.confirm(ctx, x.caller, req.GetReadIndex().GetTerm())
	if err != nil {
		return &proto.PeerResponse{Id: req.Id, Answer: &proto.PeerResponse_Refused{Refused: err.Error()}}
	}
	return readIndexAnswer(req.Id, index)
}

// apply has an entry appended, if this node leads in the term that the proposer said.
// In a later term the proposer may have given the entry up, or have had it
// refused by a leader in between. It does not wait: answer is called once, at once or by who has the
// answer of Raft.
func (p *peerServer) apply(entry []byte, term uint64, answer func(*proto.ProposeResponse)) {
	err := error(nil)
	if len(entry) > proto.MaxEntryBytes {
		err = ErrTooLarge
	} else {
		err = p.store.checkEntry(entry)
	}
	switch {
	case err != nil:
		answer(&proto.ProposeResponse{Error: proto.ProposeError_PROPOSE_INVALID, Detail: err.Error()})
	case p.store.leader.leads(term) && p.store.raft.CurrentTerm() == term:
		p.store.begin(&proposal{frame: entry, since: time.Now(), then: func(p *proposal) { answer(proposeAnswer(p.r, p.err)) }})
	default:
		answer(proposeAnswer(mvcc.Result{}, errNotSent))
	}
}

// proposeAnswer says what became of an entry.
func proposeAnswer(r mvcc.Result, err error) *proto.ProposeResponse {
	switch {
	case err == nil:
		return &proto.ProposeResponse{Index: uint64(r.Index), Term: uint64(r.Term), Outcome: r.Outcome, Revision: uint64(r.Revision), Exceeded: r.Exceeded}
	case errors.Is(err, errNotSent):
		return &proto.ProposeResponse{Error: proto.ProposeError_PROPOSE_NOT_LEADER, Detail: err.Error()}
	}
	var full *noSpaceError
	if errors.As(err, &full) {
		return &proto.ProposeResponse{Error: proto.ProposeError_PROPOSE_NO_SPACE, Detail: err.Error(), Exceeded: full.exceeded}
	}
	return &proto.ProposeResponse{Error: proto.ProposeError_PROPOSE_UNKNOWN, Detail: err.Error()}
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
