// Package readindex finds out up to where a node has to have applied so that its reads are Most Recent, and how stale
// those are that do not ask.
package readindex

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/proto"
	storeerrors "github.com/quorate/quorate/raftstore/errors"
	"github.com/quorate/quorate/raftstore/exchange"
	"github.com/quorate/quorate/raftstore/local"
)

// Config is what a Reader needs.
type Config struct {
	Node    *local.Node
	Streams *exchange.Streams
	// Applied is what this node has applied.
	Applied func() proto.Revision
	// Compared returns an error for a node with which this one has not compared what it has acknowledged.
	Compared func(raft.ServerID) error
	// Unheard reports that the leader does not answer.
	Unheard func(leader raft.ServerID) bool
	// NoLeader is how long a read waits for a leader, QuorumIsLost whether none can be elected.
	NoLeader     time.Duration
	QuorumIsLost func() bool
	// Waited is told how long a read index took, RoundTrip how long a voter took to answer.
	Waited    func(time.Duration)
	RoundTrip func(proto.NodeID, time.Duration)
}

// Reader finds read indexes. All methods are safe for concurrent use.
type Reader struct {
	cfg    Config
	node   *local.Node
	fresh  freshness
	reads  atomic.Int64
	rounds atomic.Uint64
}

// New returns a Reader.
func New(cfg Config) *Reader { return &Reader{cfg: cfg, node: cfg.Node} }

// Counts returns how many read indexes were asked for here, and how many rounds this node has made as the leader.
func (r *Reader) Counts() (reads int64, rounds uint64) { return r.reads.Load(), r.rounds.Load() }

// ReadIndex returns an index with this promise: a node that has applied it has
// applied every write that was acknowledged anywhere before the call. It asks
// the leader, or, on the leader, a majority of the voters. Errors: ErrNoLeader
// (after Config.NoLeader, or as soon as none can be elected), storeerrors.ErrClosed, the context's.
func (r *Reader) ReadIndex(ctx context.Context) (proto.Revision, error) {
	began := time.Now()
	r.reads.Add(1)
	ctx, cancel := context.WithTimeout(ctx, r.cfg.NoLeader)
	defer cancel()
	for {
		if ctx.Err() != nil {
			return 0, fmt.Errorf("read index: %w", context.Cause(ctx))
		}
		change := r.node.Changed()
		index, err := r.once(ctx, change)
		if err == nil {
			r.cfg.Waited(time.Since(began))
			r.fresh.confirmed(began, index)
			return index, nil
		}
		if r.node.Context().Err() != nil {
			return 0, storeerrors.ErrClosed
		}
		wait, cancel := context.WithTimeout(ctx, local.RetryEvery)
		select {
		case <-change:
		case <-wait.Done():
		}
		cancel()
		if ctx.Err() != nil || r.cfg.QuorumIsLost() {
			return 0, fmt.Errorf("read index: %w: %w", storeerrors.ErrNoLeader, err)
		}
	}
}

// once asks once. The answer is not waited for when the leader changes: a silent one
// is replaced long before askTimeout.
func (r *Reader) once(ctx context.Context, change <-chan struct{}) (proto.Revision, error) {
	if r.node.Ready() {
		return r.Confirm(ctx, "", 0)
	}
	addr, id := r.node.OtherLeader()
	if id == "" || r.cfg.Unheard(id) {
		return 0, storeerrors.ErrNotLeader
	}
	if err := r.cfg.Compared(id); err != nil {
		return 0, err // with the question, this node answers the leader's round
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	call := exchange.Call{Until: change, Request: proto.PeerRequest{Request: &proto.PeerRequest_ReadIndex{
		ReadIndex: &proto.ReadIndexRequest{Term: r.node.Raft().CurrentTerm()},
	}}}
	if err := r.cfg.Streams.Ask(ctx, proto.NodeID(id), string(addr), &call); err != nil {
		return 0, fmt.Errorf("ask the leader for a read index: %w", err)
	}
	answer := call.Response.GetReadIndex()
	if answer == nil {
		return 0, fmt.Errorf("the leader %s gave another kind of answer", id)
	}
	return proto.Revision(answer.Index), nil
}

const (
	// askTimeout bounds one call to one peer.
	askTimeout = time.Second
	// hedgeAfter is how long the quorum round waits for the voters that it asked
	// first before it asks the others.
	hedgeAfter = 10 * time.Millisecond
)

// ErrNewerTerm ends a round: this node leads no more.
var ErrNewerTerm = errors.New("a voter knows a newer term")

// Confirm is the leader's side of a read: the commit index, and then proof that
// nobody has led since. A vote for a newer term is only given by a voter whose
// current term has already reached it. So if, after the round began, a majority
// of voters (this node included) still had no newer term, then no newer leader
// existed when the round began, and the commit index covers all that was
// acknowledged by then. Clocks and leases take no part, and non-voters do not
// count. (Raft's VerifyLeader counts non-voters, and answers to messages that
// were sent earlier: two ways to a stale read.)
//
// asker, if it is a voter, sent askerTerm after its read had begun; it counts as
// one answer. Errors: storeerrors.ErrNotLeader, or why there was no majority.
func (r *Reader) Confirm(ctx context.Context, asker proto.NodeID, askerTerm uint64) (proto.Revision, error) {
	c, err := r.beginConfirm(asker, askerTerm)
	if err != nil {
		return 0, err
	}
	if err := r.askVoters(ctx, c.term, c.others, c.need); err != nil {
		return 0, err
	}
	return r.endConfirm(c)
}

// ConfirmAtOnce is Confirm where the asker's answer and this node's are a majority, as
// in a cluster of three. Otherwise, and where Confirm would fail, ok is false.
func (r *Reader) ConfirmAtOnce(asker proto.NodeID, askerTerm uint64) (index proto.Revision, ok bool) {
	c, err := r.beginConfirm(asker, askerTerm)
	if err != nil || c.need > 0 {
		return 0, false
	}
	index, err = r.endConfirm(c)
	return index, err == nil
}

// indexConfirm is an index that is confirmed: need of the others have to answer that they know no term
// above this one.
type indexConfirm struct {
	term   uint64
	index  proto.Revision
	others []raft.Server
	need   int
}

func (r *Reader) beginConfirm(asker proto.NodeID, askerTerm uint64) (c indexConfirm, err error) {
	c.term = r.node.LeadsIn()
	if c.term == 0 || !r.node.Leads(c.term) {
		return c, storeerrors.ErrNotLeader
	}
	// Since an entry of this term has committed, every index from there on is one
	// that the state machines see: there are no no-ops or barriers behind it.
	c.index = proto.Revision(r.node.Raft().CommitIndex())

	voters, answers, self := 0, 0, false
	for _, server := range r.node.Servers() {
		if server.Suffrage != raft.Voter {
			continue
		}
		voters++
		switch proto.NodeID(server.ID) {
		case r.node.ID:
			self = true
			answers++
		case asker:
			if askerTerm > c.term {
				return c, fmt.Errorf("%s: %w", asker, ErrNewerTerm)
			}
			answers++
		default:
			c.others = append(c.others, server)
		}
	}
	if !self {
		return c, fmt.Errorf("this node is not a voter any more: %w", storeerrors.ErrNotLeader)
	}
	c.need = voters/2 + 1 - answers
	return c, nil
}

// endConfirm returns the index, now that a majority has answered.
func (r *Reader) endConfirm(c indexConfirm) (proto.Revision, error) {
	if !r.node.Leads(c.term) {
		return 0, storeerrors.ErrNotLeader
	}
	return c.index, nil
}

// askVoters returns nil when need of the voters have answered that they know no
// newer term. Each use is a round of its own: its calls are made after it
// began, and answers of earlier rounds cannot reach it. It asks as many voters
// as it needs, and the others only if those do not answer soon.
func (r *Reader) askVoters(ctx context.Context, term uint64, others []raft.Server, need int) error {
	if need <= 0 {
		return nil
	}
	if need > len(others) {
		return fmt.Errorf("%d more voters needed, there are %d", need, len(others))
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	round := r.rounds.Add(1)
	// Voters take turns at being asked first.
	first := int(round % uint64(len(others)))
	answers := make(chan error, len(others))
	asked := 0
	ask := func() {
		server := others[(first+asked)%len(others)]
		asked++
		go func() { answers <- r.askTerm(ctx, server, term, round) }()
	}
	for asked < need {
		ask()
	}
	hedge := time.NewTimer(hedgeAfter)
	defer hedge.Stop()
	var failed []error
	for good := 0; good < need; {
		select {
		case err := <-answers:
			switch {
			case err == nil:
				good++
			case errors.Is(err, ErrNewerTerm):
				return err
			default:
				failed = append(failed, err)
				if len(failed) > len(others)-need {
					return fmt.Errorf("no majority of voters answered: %w", errors.Join(failed...))
				}
				if asked < len(others) {
					ask()
				}
			}
		case <-hedge.C:
			for asked < len(others) {
				ask()
			}
		case <-ctx.Done():
			return fmt.Errorf("no majority of voters answered: %w", context.Cause(ctx))
		}
	}
	return nil
}

func (r *Reader) askTerm(ctx context.Context, server raft.Server, term, round uint64) error {
	call := exchange.Call{Request: proto.PeerRequest{Request: &proto.PeerRequest_CurrentTerm{
		CurrentTerm: &proto.CurrentTermRequest{Round: round},
	}}}
	began := time.Now()
	if err := r.cfg.Streams.Ask(ctx, proto.NodeID(server.ID), string(server.Address), &call); err != nil {
		return fmt.Errorf("ask %s for its term: %w", server.ID, err)
	}
	r.cfg.RoundTrip(proto.NodeID(server.ID), time.Since(began))
	answer := call.Response.GetCurrentTerm()
	switch {
	case answer == nil || answer.Round != round:
		return fmt.Errorf("%s did not answer round %d", server.ID, round)
	case answer.Term > term:
		return fmt.Errorf("%s: term %d, ours is %d: %w", server.ID, answer.Term, term, ErrNewerTerm)
	}
	return nil
}
