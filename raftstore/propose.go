package raftstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/exchange"
	"github.com/quorate/quorate/raftstore/failover"
	"github.com/quorate/quorate/raftstore/local"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/replication"
)

// Propose replicates one write and returns when this node has applied it, so
// that its own reads see it. A refused condition is a Result, not an error.
//
// The write carries a request id (made here if it has none), so that it can be
// sent again after a lost answer and still takes effect once. While members run a release
// that knows neither rules nor limits, it is proposed without them (mvcc.For). Errors:
// ErrTooLarge, ErrOverloaded, errors.ErrDiskFull, ErrNoLeader, ErrFeature, ErrClosed (the write is in no log);
// ErrUnknownOutcome and the context's error after the write was sent (it may
// take effect).
func (s *Store) Propose(ctx context.Context, w *proto.Write) (mvcc.Result, error) {
	if len(w.RequestId) == 0 {
		w.RequestId = make([]byte, proto.RequestIDSize)
		rand.Read(w.RequestId)
	}
	err := mvcc.Validate(w)
	var r mvcc.Result
	if err == nil {
		r, err = s.proposeRemembered(ctx, w)
	}
	if err != nil {
		return mvcc.Result{}, fmt.Errorf("write %s %s: %w", w.Table, w.Key, err)
	}
	if r.Version == nil && (r.Outcome == proto.Outcome_OUTCOME_APPLIED || r.Outcome == proto.Outcome_OUTCOME_DUPLICATE) {
		if t := s.State().Table(w.Table); t != nil {
			r.Table, r.Version = t, t.Version(w.Key, r.Revision)
		}
		if r.Version == nil {
			// Applied and compacted between two looks: only a node that was stopped
			// for long gets here. The caller cannot be given what it wrote.
			return mvcc.Result{}, fmt.Errorf("write %s %s: revision %d: %w: %w",
				w.Table, w.Key, r.Revision, ErrUnknownOutcome, mvcc.ErrCompacted)
		}
	}
	return r, nil
}

// errRequestIDExpired means that the only copy of a write that was ever sent was refused,
// because this node's state was so old that no request id can be relied on.
var errRequestIDExpired = errors.New("the history does not reach back to what this node had applied")

// proposeRemembered proposes a write with what this node has applied, so that a copy
// that comes late, from a process that stood still for longer than the history is
// kept, cannot take effect a second time.
func (s *Store) proposeRemembered(ctx context.Context, w *proto.Write) (r mvcc.Result, err error) {
	if err := s.allowedByQuorum(ctx, w); err != nil {
		return r, err
	}
	if full, err := s.fullByQuorum(ctx, w); full != nil || err != nil {
		return mvcc.Result{Outcome: proto.Outcome_OUTCOME_NO_SPACE, Exceeded: full}, err
	}
	for range 4 {
		w.Since = uint64(s.Applied())
		r, err = s.proposals.propose(ctx, proto.KindWrite, w)
		var full *noSpaceError
		if errors.As(err, &full) && !errors.Is(err, ErrUnknownOutcome) {
			return full.refusal()
		}
		if !errors.Is(err, errRequestIDExpired) || errors.Is(err, ErrUnknownOutcome) {
			return r, err
		}
		// Once the refusal is applied here, this node is above that floor.
		if err := s.WaitApplied(ctx, proto.Revision(r.Index)); err != nil {
			return r, err
		}
	}
	return r, errors.Join(ErrOverloaded, err)
}

// Compact asks for the history up to floor to be dropped on all nodes.
func (s *Store) Compact(ctx context.Context, floor proto.Revision) error {
	_, err := s.proposals.propose(ctx, proto.KindCompact, &proto.Compact{Floor: uint64(floor)})
	if err != nil {
		return fmt.Errorf("compact to %d: %w", floor, err)
	}
	return nil
}

// proposals are on their way to the log, of this node or of the leader.
type proposals struct {
	cfg       *Config
	node      *local.Node
	streams   *exchange.Streams
	transport *replication.Transport
	failover  *failover.Failover
	disks     *diskSpace
	features  *features
	waiters   *waiters
	applied   func() proto.Revision

	inFlight atomic.Int64 // bytes
	// applying counts those that this leader has given to raft and that are not applied yet.
	applying  atomic.Int64
	batches   batches
	writeTime replication.WriteTime

	pending, failed, sent atomic.Int64
}

func (a *proposals) propose(ctx context.Context, kind proto.Kind, m proto.Message) (mvcc.Result, error) {
	if err := a.features.allowed(kind, m); err != nil {
		return mvcc.Result{}, err
	}
	frame, err := proto.Encode(kind, m)
	if err != nil {
		return mvcc.Result{}, err
	}
	if len(frame)+proto.InTermBytes > proto.MaxEntryBytes {
		return mvcc.Result{}, fmt.Errorf("%d bytes, the limit is %d: %w", len(frame), proto.MaxEntryBytes, ErrTooLarge)
	}
	size := int64(len(frame))
	if a.inFlight.Add(size) > a.cfg.Limits.InFlightBytes {
		a.inFlight.Add(-size)
		return mvcc.Result{}, ErrOverloaded
	}
	defer a.inFlight.Add(-size)
	a.pending.Add(1)
	defer a.pending.Add(-1)

	r, err := a.retry(ctx, frame)
	if err != nil {
		a.failed.Add(1)
		return r, err
	}
	if err := a.waiters.wait(ctx, proto.Revision(r.Index), a.applied); err != nil {
		return r, errors.Join(ErrUnknownOutcome, err)
	}
	return r, nil
}

// retry sends the frame to the leader until it has an answer, the context
// ends, no leader was there for Timing.NoLeader, or none can be elected. The request
// id in the frame makes it take effect once.
func (a *proposals) retry(ctx context.Context, frame []byte) (mvcc.Result, error) {
	began := time.Now()
	var tries attempts
	for {
		change := a.node.Changed()
		var r mvcc.Result
		// Nothing is written for a caller that has gone: its answer could even win over the end of its context below.
		if ctx.Err() == nil && tries.mayRepeat(a.node.Raft().CurrentTerm()) {
			var term uint64
			var err error
			r, term, err = a.attempt(ctx, frame)
			if final, err := tries.judge(&r, term, err); final {
				return r, err
			}
		}
		wait, cancel := context.WithTimeout(ctx, local.RetryEvery)
		if time.Since(began) > a.cfg.Timing.NoLeader || a.cfg.QuorumIsLost() || ctx.Err() != nil || a.node.Context().Err() != nil {
			cancel()
			return r, giveUp(tries.sent, tries.last, context.Cause(ctx), a.node.Context().Err())
		}
		select {
		case <-change:
		case <-wait.Done():
		}
		cancel()
	}
}

// attempts is what is known of the copies of one frame.
type attempts struct {
	made   int
	sent   bool   // a copy may be in a log
	sentIn uint64 // the last term in which one was sent
	last   error  // of the last attempt
}

// mayRepeat reports whether the frame may be sent in a term. In the term in which it was
// sent, it may still be on its way to the same leader, be overtaken by its repetition,
// and take effect after that was refused. A later term's leader has it in its log, or
// nobody ever will.
func (a *attempts) mayRepeat(term uint64) bool { return !a.sent || term > a.sentIn }

// judge takes the answer of the leader of a term. final says that it is the proposal's,
// with the error.
func (a *attempts) judge(r *mvcc.Result, term uint64, err error) (final bool, _ error) {
	a.made++
	a.last = err
	switch {
	case err == nil:
		return a.judgeOutcome(r)
	case errors.Is(err, errNotSent):
		return false, nil
	case errors.Is(err, ErrUnknownOutcome):
		a.sent, a.sentIn = true, term
		return false, nil
	case a.sent: // refused now, which says nothing of the copy that was sent before
		return true, giveUp(a.sent, err, nil, nil)
	default: // refused for good
		return true, err
	}
}

// judgeOutcome is judge for an entry that was applied.
func (a *attempts) judgeOutcome(r *mvcc.Result) (final bool, _ error) {
	switch {
	case r.Outcome == proto.Outcome_OUTCOME_REQUEST_ID_EXPIRED && a.sent:
		return true, giveUp(a.sent, errRequestIDExpired, nil, nil)
	case r.Outcome == proto.Outcome_OUTCOME_REQUEST_ID_EXPIRED:
		return true, errRequestIDExpired
	case r.Outcome == proto.Outcome_OUTCOME_TERM_MISMATCH:
		// No copy before it has taken effect, and none can any more: each is of
		// an earlier term than this entry's.
		a.sent, a.last = false, errNotSent
		return false, nil
	case r.Outcome == proto.Outcome_OUTCOME_DUPLICATE && a.made > 1:
		r.Outcome = proto.Outcome_OUTCOME_APPLIED
	}
	return true, nil
}

// errNotSent means that the frame is certainly in no log.
var errNotSent = errors.New("not sent")

func giveUp(sent bool, last, caller, closed error) error {
	switch {
	case sent:
		return errors.Join(ErrUnknownOutcome, last, caller)
	case closed != nil:
		return ErrClosed
	case caller != nil:
		return errors.Join(last, caller)
	default:
		return errors.Join(ErrNoLeader, last)
	}
}

// attempt sends the frame once, to the leader of the term that it returns. Errors:
// errNotSent, ErrUnknownOutcome, or one that ends the proposal.
func (a *proposals) attempt(ctx context.Context, frame []byte) (mvcc.Result, uint64, error) {
	if term := a.node.LeadsIn(); term != 0 {
		r, err := a.apply(ctx, copyFor(frame, term))
		return r, term, err
	}
	term := a.node.Raft().CurrentTerm()
	addr, id := a.node.OtherLeader()
	if id == "" || a.node.Raft().CurrentTerm() != term {
		return mvcc.Result{}, term, errNotSent
	}
	if time.Since(a.node.Raft().LastContact()) > a.cfg.Timing.NoLeader || a.failover.Unheard(id) {
		return mvcc.Result{}, term, errNotSent // it would only wait on: see package exchange
	}
	a.sent.Add(1)
	r, err := a.forward(ctx, proto.NodeID(id), string(addr), term, copyFor(frame, term))
	return r, term, err
}

// copyFor is the frame for the leader of a term.
func copyFor(frame []byte, term uint64) []byte {
	if kind, _, err := proto.Split(frame); err != nil || kind != proto.KindWrite {
		return frame // to do it twice is as good as once
	}
	return proto.InTerm(frame, proto.Term(term))
}

// forward gives the frame to the leader of a term and waits for its answer, as
// long as that node leads and is heard of: see package exchange.
func (a *proposals) forward(ctx context.Context, leader proto.NodeID, addr string, term uint64, frame []byte) (mvcc.Result, error) {
	call := forwarded{
		Call: exchange.Call{Request: proto.PeerRequest{Term: term, Request: &proto.PeerRequest_Propose{Propose: frame}}}, by: a, waits: waiter{pos: -1},
	}
	call.Then = &call
	if err := a.streams.Ask(ctx, leader, addr, &call.Call); err != nil {
		a.waiters.leave(&call.waits)
		if errors.Is(err, exchange.ErrNotSent) {
			return mvcc.Result{}, errors.Join(errNotSent, err)
		}
		return mvcc.Result{}, errors.Join(ErrUnknownOutcome, err)
	}
	r := call.Response.GetPropose()
	if r == nil {
		return mvcc.Result{}, errors.Join(ErrUnknownOutcome, errors.New("the leader's answer is of another kind"))
	}
	detail := errors.New(r.Detail)
	switch r.Error {
	case proto.ProposeError_PROPOSE_OK:
		return mvcc.Result{Index: proto.RaftIndex(r.Index), Outcome: r.Outcome, Revision: proto.Revision(r.Revision), Exceeded: r.Exceeded}, nil
	case proto.ProposeError_PROPOSE_NOT_LEADER:
		return mvcc.Result{}, errors.Join(errNotSent, detail)
	case proto.ProposeError_PROPOSE_OVERLOADED:
		return mvcc.Result{}, errors.Join(ErrOverloaded, detail)
	case proto.ProposeError_PROPOSE_NO_SPACE:
		return mvcc.Result{}, &noSpaceError{r.Exceeded}
	case proto.ProposeError_PROPOSE_INVALID:
		return mvcc.Result{}, fmt.Errorf("the leader refuses the entry: %w", detail)
	default:
		return mvcc.Result{}, errors.Join(ErrUnknownOutcome, detail)
	}
}

// forwarded is a proposal that the leader is asked to give to its Raft.
type forwarded struct {
	exchange.Call
	by    *proposals
	waits waiter // for the entry that the answer names
}

// Answered wakes who waits for the answer to a proposal when this node has applied the entry, for
// which it would have to wait then anyway: it is woken once instead of twice.
func (c *forwarded) Answered(last exchange.Committed) {
	c.waits.index, c.waits.done = proto.Revision(c.Response.GetPropose().GetIndex()), c.Done()
	c.by.waiters.wake(&c.waits, c.by.applied)
	if last.Index > 0 {
		c.by.transport.CommitAnswered(last)
	}
}

// classify says what an error of raft.Apply means for the entry.
func classify(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout),
		errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return errors.Join(errNotSent, err)
	case errors.Is(err, raft.ErrRaftShutdown):
		return errors.Join(ErrUnknownOutcome, err)
	default: // ErrLeadershipLost, ErrAbortedByRestore, failed log writes
		return errors.Join(ErrUnknownOutcome, err)
	}
}
