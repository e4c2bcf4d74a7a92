//lint:file-ignore SA1019 raft 1.7 still sets and reads the fields that it deprecates

// Package replication is the transport that Raft is given: it sends entries ahead and tells followers of commits at once.
package replication

import (
	"cmp"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/proto"
	storeerrors "github.com/quorate/quorate/raftstore/errors"
	"github.com/quorate/quorate/raftstore/exchange"
	"github.com/quorate/quorate/raftstore/local"
)

// Comparison compares this node with others: see raftstore's DESIGN.md, "Restored directories".
type Comparison interface {
	// Must waits until this node has compared with another one.
	Must(id raft.ServerID, addr raft.ServerAddress) error
	// Again has it compare again.
	Again(id raft.ServerID)
	// Promised notes what a node has acknowledged in a term.
	Promised(id raft.ServerID, term, index, committed uint64)
}

// Config is what a Transport needs.
type Config struct {
	// Inner is the transport of the peer port.
	Inner raft.Transport
	Node  *local.Node
	Log   raft.LogStore
	// Comparison is asked before anything that Raft relies on is sent, and told what other nodes promise.
	Comparison Comparison
	// MayLead returns an error when this node could not store its first entries as the leader.
	MayLead func() error
	// Applied is what this node has applied, Applying whether proposals of this leader are on their way there.
	Applied  func() proto.Revision
	Applying func() bool
	// Go runs what an answer to a proposal gives rise to.
	Go func(func())
	// WriteTime is how long writes of the log take.
	WriteTime *WriteTime
	// RetryFor is for how long a message to a peer that is away holds its entries. Default 30 s.
	RetryFor time.Duration
}

// Transport is the transport that raft is given: the one of the peer port, plus
// three things. It sends entries ahead (Ahead). It repeats entries to a peer that is away sooner than raft does (see
// retryAppend), and it sends one message more, the nudge: that has the commit index,
// which raft would only mention with the next entries, or after
// CommitTimeout (50 to 100 ms). Without it, a lone write through a follower, and
// a linearizable read on a follower behind a lone write, wait that long.
//
// The nudge is an ordinary AppendEntries without entries whose previous entry
// is the committed one: it is true of the leader's log whenever it is sent in
// the leader's own term, a follower that lacks that entry refuses it, and a
// follower that has it may commit up to it. It is sent only to a follower that
// was sent the entry some time ago and has not been told of the commit since.
type Transport struct {
	raft.Transport
	cfg  Config
	node *local.Node
	own  local.Deliverer // nil: the transport cannot

	mu    sync.Mutex
	peers map[raft.ServerID]*peerProgress

	nudges      atomic.Int64
	beatsFailed atomic.Int64
	wentAhead   atomic.Int64  // messages that were taken; see Ahead
	retryFor    time.Duration // retryAppendFor

	poke  chan struct{}
	done  chan struct{}
	ended sync.WaitGroup
}

// peerProgress is what a peer has been sent, by raft itself or by a nudge.
type peerProgress struct {
	addr   raft.ServerAddress
	term   uint64 // the following are of this term
	acked  uint64 // last entry that the peer has acknowledged
	commit uint64 // highest commit index in a message
	waits  uint64 // entry of its own proposal that was answered before it had acknowledged it
	busy   bool   // a nudge is under way
	ahead  bool   // entries are on their way ahead of raft's own; see ahead
}

// nudgeDelay leaves raft the time to mention the commit with entries that
// follow at once, as under load they do.
const nudgeDelay = 200 * time.Microsecond

var _ raft.WithPreVote = (*Transport)(nil)

// New returns a transport. It refuses to send what has to be compared first until the node has its Raft.
func New(cfg Config) *Transport {
	own, _ := cfg.Inner.(local.Deliverer)
	return &Transport{
		Transport: cfg.Inner, cfg: cfg, node: cfg.Node, own: own,
		peers:    map[raft.ServerID]*peerProgress{},
		retryFor: cmp.Or(cfg.RetryFor, retryAppendFor),
		poke:     make(chan struct{}, 1),
		done:     make(chan struct{}),
	}
}

// Start begins to send nudges. The node has its Raft.
func (t *Transport) Start() { t.ended.Go(t.run) }

// Close ends what the transport does by itself, and waits for it.
func (t *Transport) Close() {
	close(t.done)
	t.ended.Wait()
}

// Counts returns how many nudges were sent, and how many heartbeats failed.
func (t *Transport) Counts() (nudges, beatsFailed int64) {
	return t.nudges.Load(), t.beatsFailed.Load()
}

// WentAhead is how many messages of entries were taken while this node was still writing them. For tests.
func (t *Transport) WentAhead() int64 { return t.wentAhead.Load() }

// RequestPreVote forwards; without it raft would quietly do without pre-votes.
func (t *Transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	inner, ok := t.Transport.(raft.WithPreVote)
	if !ok {
		return raft.ErrPipelineReplicationNotSupported
	}
	if err := t.compared(id, target); err != nil {
		return err
	}
	if err := t.cfg.MayLead(); err != nil {
		return err
	}
	err := inner.RequestPreVote(id, target, args, resp)
	t.compareAgain(id, err)
	return err
}

// compareAgain has this node compare again with one that has refused a message because it has not compared with this one: it has
// started since, and may not be able to dial this node.
func (t *Transport) compareAgain(id raft.ServerID, err error) {
	if err != nil && strings.Contains(err.Error(), local.ErrNotCompared.Error()) {
		t.cfg.Comparison.Again(id)
	}
}

// RequestVote asks a node for its vote, if this node may be elected by it, and remembers that it has given it.
func (t *Transport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if err := t.compared(id, target); err != nil {
		return err
	}
	if err := t.cfg.MayLead(); err != nil {
		return err
	}
	err := t.Transport.RequestVote(id, target, args, resp)
	t.compareAgain(id, err)
	if err == nil && resp.Granted {
		t.cfg.Comparison.Promised(id, args.Term, 0, 0)
	}
	return err
}

// compared has this node compare with another one before it campaigns there or leads it: see compare.go.
func (t *Transport) compared(id raft.ServerID, target raft.ServerAddress) error {
	if t.node.Raft() == nil {
		return local.ErrNotCompared
	}
	return t.cfg.Comparison.Must(id, target)
}

// ErrOldTerm refuses to send a message for a term in which this node does not lead any more. The library's goroutine for a follower
// may outlive a leadership, and reads the log as it is by then: see peer.checkTerms.
var ErrOldTerm = errors.New("this node leads in another term by now")

// mayAppend reports whether a message of a leader is to be sent.
func (t *Transport) mayAppend(id raft.ServerID, target raft.ServerAddress, term uint64) error {
	if err := t.compared(id, target); err != nil {
		return err
	}
	if t.node.Raft().CurrentTerm() != term {
		return ErrOldTerm
	}
	return nil
}

// Promises notes what all peers have acknowledged to this node as a leader. What was committed counts only as
// long as this node leads in the term: later, the commit index is that of another leader's log.
func (t *Transport) Promises() {
	commit := t.node.Raft().CommitIndex()
	leads := t.node.Raft().State() == raft.Leader
	term := t.node.Raft().CurrentTerm()
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, p := range t.peers {
		if _, member := t.node.Address(id); p.acked == 0 || !member {
			continue
		}
		committed := uint64(0)
		if leads && p.term == term {
			committed = min(p.acked, commit)
		}
		t.cfg.Comparison.Promised(id, p.term, p.acked, committed)
	}
}

// SetHeartbeatHandler is ignored: a heartbeat handler runs beside raft's main
// loop and lets state machines diverge (raft#695).
func (t *Transport) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntries notes what the peer is told, and repeats it where the peer cannot
// be reached.
func (t *Transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if err := t.mayAppend(id, target, args.Term); err != nil {
		return err
	}
	err := t.Transport.AppendEntries(id, target, args, resp)
	t.compareAgain(id, err)
	switch {
	case err == nil:
	case IsHeartbeat(args):
		t.beatsFailed.Add(1)
	default:
		err = t.retryAppend(err, id, target, args, func() error {
			*resp = raft.AppendEntriesResponse{}
			if err := t.compared(id, target); err != nil {
				return err
			}
			err := t.Transport.AppendEntries(id, target, args, resp)
			t.compareAgain(id, err)
			return err
		})
	}
	if err == nil && t.closed() {
		// Raft does not wait for the goroutine of a pipeline when it ends, and what it does with a
		// refusal would race with it.
		return storeerrors.ErrClosed
	}
	if err == nil && resp.Success {
		t.note(id, target, args)
	}
	if err == nil && !resp.Success && !resp.NoRetryBackoff && resp.Term == args.Term {
		// Raft takes a refusal for a log that ends earlier, and would go back by an entry each time: to a snapshot, or, if its
		// own log still has them, to entries that the follower has cut off, which it can never match. Of a log that does end
		// earlier, or of another term, it must be told: NoRetryBackoff says that it is the former.
		t.tellCommitted(id, target, args)
		return ErrFollowerFull
	}
	return err
}

// tellCommitted tells a follower that has refused entries what is committed of those before them. Raft says so only with entries, but as long as a follower
// does not know it, it cannot cut its log, and so it takes none. If it fails, it is done again with the next try.
func (t *Transport) tellCommitted(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest) {
	told := *args
	told.Entries = nil
	if told.LeaderCommitIndex = min(args.LeaderCommitIndex, args.PrevLogEntry); told.LeaderCommitIndex > 0 {
		_ = t.Transport.AppendEntries(id, target, &told, new(raft.AppendEntriesResponse))
	}
}

// ErrFollowerFull is why a follower is sent the same entries again, later.
var ErrFollowerFull = errors.New("the disk of the follower is full")

// closed reports whether the store has begun to end, which it does before Raft.
func (t *Transport) closed() bool { return t.node.Context().Err() != nil }

// AppendEntriesPipeline wraps the pipeline to note what it acknowledges.
func (t *Transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	if err := t.compared(id, target); err != nil {
		return nil, err
	}
	p, err := t.Transport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	return newPipeline(t, id, target, p), nil
}

func (t *Transport) note(id raft.ServerID, addr raft.ServerAddress, args *raft.AppendEntriesRequest) {
	last := args.PrevLogEntry
	if k := len(args.Entries); k > 0 {
		last = args.Entries[k-1].Index
	}
	t.mu.Lock()
	p := t.peers[id]
	if p == nil || p.term < args.Term {
		if p != nil && p.acked > 0 {
			t.cfg.Comparison.Promised(id, p.term, p.acked, 0)
		}
		p = &peerProgress{term: args.Term}
		t.peers[id] = p
	}
	p.addr = addr
	if p.term == args.Term {
		p.acked = max(p.acked, last)
		p.commit = max(p.commit, args.LeaderCommitIndex)
	}
	t.mu.Unlock()
	if len(args.Entries) > 0 {
		t.WakeUp()
	}
}

// WakeUp has the transport look whether a nudge is to be sent.
func (t *Transport) WakeUp() { local.Wake(t.poke) }

// run sends nudges: at once to a follower that waits for one, and to the others when Raft has had the time to mention the
// commit with entries that follow.
func (t *Transport) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-t.done:
			return
		case <-t.poke:
		}
		t.round(true)
		timer.Reset(nudgeDelay)
		for later := false; !later; {
			select {
			case <-t.done:
				return
			case <-t.poke:
				t.round(true)
			case <-timer.C:
				later = true
			}
		}
		t.round(false)
	}
}

// round nudges every peer that has acknowledged entries of which it does not
// know yet that they are committed, or those of them that wait for that.
func (t *Transport) round(waiting bool) {
	term := t.node.LeadsIn()
	if term == 0 || !t.node.Leads(term) {
		return
	}
	if t.cfg.Applying() {
		// More entries follow at once and mention the commit; the acknowledgement of
		// the last of them pokes again.
		return
	}
	commit := t.node.Raft().CommitIndex()
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, p := range t.peers {
		upTo := min(commit, p.acked)
		if p.term != term || p.busy || p.commit >= upTo || waiting && (p.commit >= p.waits || p.waits > upTo) {
			continue
		}
		p.busy = true
		t.ended.Go(func() { t.send(id, p, term, upTo) })
	}
}

// TellsCommit notes that an answer to a follower's proposal says that its entry is committed. A follower that has the entry
// needs no nudge: see CommitAnswered. One that has not waits for it.
func (t *Transport) TellsCommit(id raft.ServerID, index uint64) {
	term := t.node.LeadsIn()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch p := t.peers[id]; {
	case p == nil || p.term != term:
	case p.acked >= index:
		p.commit = max(p.commit, index)
	default:
		p.waits = max(p.waits, index)
	}
}

// CommitAnswered has Raft commit an entry of this follower's log that an answer of the leader says is committed. It gives Raft
// what the leader would send as a nudge. Raft compares the entry's index and term with its log: if it has that entry, all
// before it are the leader's, too.
func (t *Transport) CommitAnswered(c exchange.Committed) {
	term := t.node.Raft().CurrentTerm()
	addr, id := t.node.Raft().LeaderWithID()
	wanted := func() bool { // also by a candidate that follows the leader: see DESIGN.md, "Fast failover"
		state := t.node.Raft().State()
		return uint64(t.cfg.Applied()) < c.Index && t.node.Raft().CurrentTerm() == term && (state == raft.Follower || state == raft.Candidate)
	}
	if t.own == nil || id != raft.ServerID(c.Leader) || t.node.Raft().LastIndex() < c.Index || !wanted() {
		return
	}
	leader := t.EncodePeer(id, addr)
	req := &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: leader},
		Term:      term, Leader: leader,
		PrevLogEntry: c.Index, PrevLogTerm: c.Term, LeaderCommitIndex: c.Index,
	}
	if !t.own.DeliverAtOnce(req) {
		t.cfg.Go(func() { t.own.Deliver(t.node.Context(), req, wanted) }) // who calls is one of them
	}
}

// Header is that of a message which this node makes itself.
func (t *Transport) Header() raft.RPCHeader {
	self := raft.ServerID(t.node.ID)
	return raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(self), Addr: t.EncodePeer(self, t.LocalAddr()),
	}
}

func (t *Transport) send(id raft.ServerID, p *peerProgress, term, upTo uint64) {
	defer func() {
		t.mu.Lock()
		p.busy = false
		behind := p.commit < min(t.node.Raft().CommitIndex(), p.acked)
		t.mu.Unlock()
		if behind {
			t.WakeUp()
		}
	}()
	var entry raft.Log
	if err := t.cfg.Log.GetLog(upTo, &entry); err != nil {
		// Already cut; raft's own CommitTimeout will tell the peer.
		t.mu.Lock()
		p.commit = max(p.commit, upTo)
		t.mu.Unlock()
		return
	}
	header := t.Header()
	args := &raft.AppendEntriesRequest{
		RPCHeader:         header,
		Term:              term,
		Leader:            header.Addr,
		PrevLogEntry:      upTo,
		PrevLogTerm:       entry.Term,
		LeaderCommitIndex: upTo,
	}
	var resp raft.AppendEntriesResponse
	t.mu.Lock()
	addr := p.addr
	t.mu.Unlock()
	err := t.Transport.AppendEntries(id, addr, args, &resp)
	t.mu.Lock()
	// Told or not, this commit is not tried again: raft does so by itself.
	p.commit = max(p.commit, upTo)
	t.mu.Unlock()
	if err == nil && resp.Success {
		t.nudges.Add(1)
	}
}

const (
	// retryAppendEvery is how soon a peer that is back gets entries again.
	retryAppendEvery = 50 * time.Millisecond
	// retryAppendFor bounds how long a message that is repeated holds entries of the log in
	// memory.
	retryAppendFor = 30 * time.Second
)

// IsHeartbeat tells raft's heartbeats, which must not wait, from its other
// messages without entries.
func IsHeartbeat(r *raft.AppendEntriesRequest) bool {
	return len(r.Entries) == 0 && r.PrevLogEntry == 0 && r.LeaderCommitIndex == 0
}

// retryAppend repeats a message to a peer that has failed with err until it succeeds, as long
// as this node leads in the term and the peer is a member at that address: raft takes
// the address of its next attempt from the configuration. Raft would wait between its
// own attempts, twice as long after each and up to ten seconds, and does not notice that
// a peer is back: with one more node gone, writes would hang for that long. After a while
// the message goes without its entries; raft sends those when it has arrived.
func (t *Transport) retryAppend(err error, id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, call func() error) error {
	tick := time.NewTicker(retryAppendEvery)
	defer tick.Stop()
	for began := time.Now(); err != nil; {
		select {
		case <-t.node.Context().Done():
			return err
		case <-tick.C:
		}
		if !t.node.Leads(args.Term) {
			return err
		}
		long := time.Since(began) > t.retryFor
		switch addr, member := t.node.Address(id); {
		case member && addr != target, !member && long:
			return err
		case long:
			args.Entries = nil
		}
		err = call()
	}
	return err
}

// pipeline passes a raft pipeline on and tells the transport what was acknowledged.
type pipeline struct {
	raft.AppendPipeline
	may  func(term uint64) error
	out  chan raft.AppendFuture
	done chan struct{}
	once sync.Once
}

func newPipeline(t *Transport, id raft.ServerID, addr raft.ServerAddress, inner raft.AppendPipeline) *pipeline {
	p := &pipeline{AppendPipeline: inner, may: func(term uint64) error { return t.mayAppend(id, addr, term) }, out: make(chan raft.AppendFuture), done: make(chan struct{})}
	t.ended.Add(1)
	go func() {
		defer t.ended.Done()
		for {
			var f raft.AppendFuture
			select {
			case f = <-inner.Consumer():
			case <-p.done:
				return
			}
			if f.Error() == nil && f.Response().Success {
				t.note(id, addr, f.Request())
			}
			select {
			case p.out <- f:
			case <-p.done:
				return
			}
		}
	}()
	return p
}

// AppendEntries sends a message of a leader, as Transport.AppendEntries does.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if err := p.may(args.Term); err != nil {
		return nil, err
	}
	return p.AppendPipeline.AppendEntries(args, resp)
}

func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.out }

func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.done) })
	return p.AppendPipeline.Close()
}
