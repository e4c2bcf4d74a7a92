package raftstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/local"
	"github.com/quorate/quorate/raftstore/mvcc"
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

// Exchange answers another node's calls.
func (p *peerServer) Exchange(stream grpc.BidiStreamingServer[proto.PeerRequest, proto.PeerResponse]) error {
	caller, ok := p.caller(stream.Context())
	if !ok {
		return status.Error(codes.Unauthenticated, "no node id")
	}
	return p.store.server.Serve(stream, &calls{peerServer: p, caller: caller})
}

// calls answers those of one stream of another node: what is answered from memory at once. Proposals go to Raft with others; read
// indexes for which other voters are asked have a goroutine each, because they wait.
type calls struct {
	*peerServer
	caller proto.NodeID
	member bool // the caller is one; of AnswerAtOnce
}

// AnswerAtOnce implements exchange.Handler: it returns the answer to what waits for nobody, and refuses; nil is for
// Serve.
func (x *calls) AnswerAtOnce(req *proto.PeerRequest) *proto.PeerResponse {
	switch r := req.Request.(type) {
	case *proto.PeerRequest_CurrentTerm:
		if !x.store.comparison.compared(raft.ServerID(x.caller)) {
			return &proto.PeerResponse{Id: req.Id, Answer: &proto.PeerResponse_Refused{Refused: local.ErrNotCompared.Error()}}
		}
		answer := &proto.CurrentTermResponse{Round: r.CurrentTerm.GetRound(), Term: x.store.node.Raft().CurrentTerm(), Follows: x.store.node.Raft().State() != raft.Leader}
		if disk := r.CurrentTerm.GetDisk(); disk != nil && x.store.node.Ready() {
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
	if !x.member && x.store.node.Ready() {
		if x.member = x.isMember(x.caller); !x.member {
			return stranger(req, x.caller)
		}
	}
	if r := req.GetReadIndex(); r != nil {
		if index, ok := x.store.reads.ConfirmAtOnce(x.caller, r.GetTerm()); ok {
			return readIndexAnswer(req.Id, index)
		}
	}
	return nil
}

func readIndexAnswer(id uint64, index proto.Revision) *proto.PeerResponse {
	return &proto.PeerResponse{Id: id, Answer: &proto.PeerResponse_ReadIndex{ReadIndex: &proto.ReadIndexResponse{Index: uint64(index)}}}
}

// Serve implements exchange.Handler: it has a proposal or a read index answered, by calling done once, at once or later.
func (x *calls) Serve(ctx context.Context, req *proto.PeerRequest, done func(*proto.PeerResponse)) {
	r, ok := req.Request.(*proto.PeerRequest_Propose)
	if !ok {
		go func() { done(x.readIndex(ctx, req)) }()
		return
	}
	id := req.Id
	answer := func(a *proto.ProposeResponse) {
		if a.Error == proto.ProposeError_PROPOSE_OK {
			x.store.transport.TellsCommit(raft.ServerID(x.caller), a.Index)
		}
		done(&proto.PeerResponse{Id: id, Answer: &proto.PeerResponse_Propose{Propose: a}})
	}
	if ctx.Err() != nil {
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
func (p *peerServer) isMember(id proto.NodeID) bool { return p.store.node.IsMember(id) }

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

// readIndex serves a follower's or non-voter's linearizable read.
func (x *calls) readIndex(ctx context.Context, req *proto.PeerRequest) *proto.PeerResponse {
	index, err := x.store.reads.Confirm(ctx, x.caller, req.GetReadIndex().GetTerm())
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
		err = p.store.features.checkEntry(entry)
	}
	switch {
	case err != nil:
		answer(&proto.ProposeResponse{Error: proto.ProposeError_PROPOSE_INVALID, Detail: err.Error()})
	case term != 0 && p.store.node.LeadsIn() == term && p.store.node.Raft().CurrentTerm() == term:
		p.store.proposals.begin(&proposal{frame: entry, since: time.Now(), then: func(p *proposal) { answer(proposeAnswer(p.r, p.err)) }})
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
		p.store.failover.Asked(from, req)
	}
	return p.store.failover.LeaderLost(ctx, req), nil
}

// Acknowledged compares what the caller has with what this node knows of it.
func (p *peerServer) Acknowledged(ctx context.Context, req *proto.AcknowledgedRequest) (*proto.AcknowledgedResponse, error) {
	from, ok := p.caller(ctx)
	if !ok {
		return nil, status.Error(codes.Unauthenticated, "no node id")
	}
	return p.store.comparison.acknowledged(ctx, from, req), nil
}

// Status describes this node.
func (p *peerServer) Status(ctx context.Context, _ *proto.StatusRequest) (*proto.NodeStatus, error) {
	return p.describe(ctx), nil
}
