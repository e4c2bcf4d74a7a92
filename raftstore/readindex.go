package raftstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/proto"
)

// ReadIndex returns an index with this promise: a node that has applied it has
// applied every write that was acknowledged anywhere before the call. It asks
// the leader, or, on the leader, a majority of the voters. Errors: ErrNoLeader
// (after Timing.NoLeader, or as soon as none can be elected), ErrClosed, the context's.
func (s *Store) ReadIndex(ctx context.Context) (proto.Revision, error) {
	began := time.Now()
	s.stats.readIndexes.Add(1)
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timing.NoLeader)
	defer cancel()
	for {
		if ctx.Err() != nil {
			return 0, fmt.Errorf("read index: %w", context.Cause(ctx))
		}
		change := s.leader.watch()
		index, err := s.readIndexOnce(ctx, change)
		if err == nil {
			s.stats.readIndexWait(time.Since(began))
			s.fresh.confirmed(began, index)
			return index, nil
		}
		if s.ctx.Err() != nil {
			return 0, ErrClosed
		}
		wait, cancel := context.WithTimeout(ctx, retryEvery)
		select {
		case <-change:
		case <-wait.Done():
		}
		cancel()
		if ctx.Err() != nil || s.cfg.QuorumIsLost() {
			return 0, fmt.Errorf("read index: %w: %w", ErrNoLeader, err)
		}
	}
}

// readIndexOnce asks once. The answer is not waited for when the leader changes: a silent one
// is replaced long before askTimeout.
func (s *Store) readIndexOnce(ctx context.Context, change <-chan struct{}) (proto.Revision, error) {
	if s.leader.ready() {
		return s.confirm(ctx, "", 0)
	}
	addr, id := s.raft.LeaderWithID()
	if id == "" || id == raft.ServerID(s.cfg.Node) || s.silence.unheard(id) {
		return 0, ErrNotLeader
	}
	if !s.comparison.compared(id) {
		return 0, errNotCompared // with the question, this node answers the leader's round
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	call := peerCall{until: change, req: proto.PeerRequest{Request: &proto.PeerRequest_ReadIndex{
		ReadIndex: &proto.ReadIndexRequest{Term: s.raft.CurrentTerm()},
	}}}
	if err := s.streams.send(ctx, proto.NodeID(id), string(addr), &call); err != nil {
		return 0, fmt.Errorf("ask the leader for a read index: %w", err)
	}
	r := call.resp.GetReadIndex()
	if r == nil {
		return 0, fmt.Errorf("the leader %s gave another kind of answer", id)
	}
	return proto.Revision(r.Index), nil
}

const (
	// askTimeout bounds one call to one peer.
	askTimeout = time.Second
	// hedgeAfter is how long the quorum round waits for the voters that it asked
	// first before it asks the others.
	hedgeAfter = 10 * time.Millisecond
)

var errNewerTerm = errors.New("a voter knows a newer term")

// confirm is the leader's side of a read: the commit index, and then proof that
// nobody has led since. A vote for a newer term is only given by a voter whose
// current term has already reached it. So if, after the round began, a majority
// of voters (this node included) still had no newer term, then no newer leader
// existed when the round began, and the commit index covers all that was
// acknowledged by then. Clocks and leases take no part, and non-voters do not
// count. (Raft's VerifyLeader counts non-voters, and answers to messages that
// were sent earlier: two ways to a stale read.)
//
// asker, if it is a voter, sent askerTerm after its read had begun; it counts as
// one answer. Errors: ErrNotLeader, or why there was no majority.
func (s *Store) confirm(ctx context.Context, asker proto.NodeID, askerTerm uint64) (proto.Revision, error) {
	c, err := s.beginConfirm(asker, askerTerm)
	if err != nil {
		return 0, err
	}
	if err := s.askVoters(ctx, c.term, c.others, c.need); err != nil {
		return 0, err
	}
	return s.endConfirm(c)
}

// confirmAtOnce is confirm where the asker's answer and this node's are a majority, as
// in a cluster of three. Otherwise, and where confirm would fail, ok is false.
func (s *Store) confirmAtOnce(asker proto.NodeID, askerTerm uint64) (index proto.Revision, ok bool) {
	c, err := s.beginConfirm(asker, askerTerm)
	if err != nil || c.need > 0 {
		return 0, false
	}
	index, err = s.endConfirm(c)
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

func (s *Store) beginConfirm(asker proto.NodeID, askerTerm uint64) (c indexConfirm, err error) {
	c.term = s.leader.term.Load()
	if c.term == 0 || s.raft.State() != raft.Leader || s.raft.CurrentTerm() != c.term {
		return c, ErrNotLeader
	}
	// Since an entry of this term has committed, every index from there on is one
	// that the state machines see: there are no no-ops or barriers behind it.
	c.index = proto.Revision(s.raft.CommitIndex())

	future := s.raft.GetConfiguration()
	if err := future.Error(); err != nil {
		return c, err
	}
	voters, answers, self := 0, 0, false
	for _, server := range future.Configuration().Servers {
		if server.Suffrage != raft.Voter {
			continue
		}
		voters++
		switch proto.NodeID(server.ID) {
		case s.cfg.Node:
			self = true
			answers++
		case asker:
			if askerTerm > c.term {
				return c, fmt.Errorf("%s: %w", asker, errNewerTerm)
			}
			answers++
		default:
			c.others = append(c.others, server)
		}
	}
	if !self {
		return c, fmt.Errorf("this node is not a voter any more: %w", ErrNotLeader)
	}
	c.need = voters/2 + 1 - answers
	return c, nil
}

// endConfirm returns the index, now that a majority has answered.
func (s *Store) endConfirm(c indexConfirm) (proto.Revision, error) {
	if s.raft.State() != raft.Leader || s.raft.CurrentTerm() != c.term {
		return 0, ErrNotLeader
	}
	return c.index, nil
}

// askVoters returns nil when need of the voters have answered that they know no
// newer term. Each use is a round of its own: its calls are made after it
// began, and answers of earlier rounds cannot reach it. It asks as many voters
// as it needs, and the others only if those do not answer soon.
func (s *Store) askVoters(ctx context.Context, term uint64, others []raft.Server, need int) error {
	if need <= 0 {
		return nil
	}
	if need > len(others) {
		return fmt.Errorf("%d more voters needed, there are %d", need, len(others))
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	round := s.stats.rounds.Add(1)
	// Voters take turns at being asked first.
	first := int(round % uint64(len(others)))
	answers := make(chan error, len(others))
	asked := 0
	ask := func() {
		server := others[(first+asked)%len(others)]
		asked++
		go func() { answers <- s.askTerm(ctx, server, term, round) }()
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
			case errors.Is(err, errNewerTerm):
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

func (s *Store) askTerm(ctx context.Context, server raft.Server, term, round uint64) error {
	call := peerCall{req: proto.PeerRequest{Request: &proto.PeerRequest_CurrentTerm{
		CurrentTerm: &proto.CurrentTermRequest{Round: round},
	}}}
	began := time.Now()
	if err := s.streams.send(ctx, proto.NodeID(server.ID), string(server.Address), &call); err != nil {
		return fmt.Errorf("ask %s for its term: %w", server.ID, err)
	}
	s.stats.roundTrip(proto.NodeID(server.ID), time.Since(began))
	r := call.resp.GetCurrentTerm()
	switch {
	case r == nil || r.Round != round:
		return fmt.Errorf("%s did not answer round %d", server.ID, round)
	case r.Term > term:
		return fmt.Errorf("%s: term %d, ours is %d: %w", server.ID, r.Term, term, errNewerTerm)
	}
	return nil
}
