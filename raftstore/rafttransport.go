//lint:file-ignore SA1019 raft 1.7 still sets and reads the fields that it deprecates

package raftstore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/planted"
)

// nudger is raft's transport plus one message of our own: it tells followers of
// a commit that raft would only mention with the next entries, or after
// CommitTimeout (50 to 100 ms). Without it, a lone write through a follower, and
// a linearizable read on a follower behind a lone write, wait that long.
//
// The message is an ordinary AppendEntries without entries whose previous entry
// is the committed one: it is true of the leader's log whenever it is sent in
// the leader's own term, a follower that lacks that entry refuses it, and a
// follower that has it may commit up to it. It is sent only to a follower that
// was sent the entry some time ago and has not been told of the commit since.
type nudger struct {
	raft.Transport
	store *Store

	mu    sync.Mutex
	peers map[raft.ServerID]*told

	beatsFailed atomic.Int64
	keep        time.Duration // insistFor

	poke  chan struct{}
	done  chan struct{}
	ended sync.WaitGroup
}

// told is what a peer has been sent, by raft itself or by a nudge.
type told struct {
	addr   raft.ServerAddress
	term   uint64 // the following are of this term
	acked  uint64 // last entry that the peer has acknowledged
	commit uint64 // highest commit index in a message
	busy   bool   // a nudge is under way
}

// nudgeDelay leaves raft the time to mention the commit with entries that
// follow at once, as under load they do.
const nudgeDelay = 200 * time.Microsecond

var _ raft.WithPreVote = (*nudger)(nil)

func newNudger(t raft.Transport) *nudger {
	return &nudger{
		Transport: t,
		peers:     map[raft.ServerID]*told{},
		keep:      insistFor,
		poke:      make(chan struct{}, 1),
		done:      make(chan struct{}),
	}
}

func (n *nudger) start(s *Store) {
	n.mu.Lock()
	n.store = s
	n.mu.Unlock()
	n.ended.Add(1)
	go n.run()
}

func (n *nudger) close() {
	close(n.done)
	n.ended.Wait()
}

// RequestPreVote forwards; without it raft would quietly do without pre-votes.
func (n *nudger) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	t, ok := n.Transport.(raft.WithPreVote)
	if !ok {
		return raft.ErrPipelineReplicationNotSupported
	}
	return t.RequestPreVote(id, target, args, resp)
}

// SetHeartbeatHandler is ignored: a heartbeat handler runs beside raft's main
// loop and lets state machines diverge (raft#695).
func (n *nudger) SetHeartbeatHandler(handle func(raft.RPC)) {
	if planted.On(planted.FastPath) {
		n.Transport.SetHeartbeatHandler(handle)
	}
}

// AppendEntries notes what the peer is told, and insists where it cannot be
// reached.
func (n *nudger) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	err := n.Transport.AppendEntries(id, target, args, resp)
	switch {
	case err == nil:
	case isHeartbeat(args):
		n.beatsFailed.Add(1)
	default:
		err = n.insist(err, id, target, args, func() error {
			*resp = raft.AppendEntriesResponse{}
			return n.Transport.AppendEntries(id, target, args, resp)
		})
	}
	if err == nil && resp.Success {
		n.note(id, target, args)
	}
	return err
}

// AppendEntriesPipeline wraps the pipeline to note what it acknowledges.
func (n *nudger) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := n.Transport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	return newPipeline(n, id, target, p), nil
}

func (n *nudger) note(id raft.ServerID, addr raft.ServerAddress, args *raft.AppendEntriesRequest) {
	last := args.PrevLogEntry
	if k := len(args.Entries); k > 0 {
		last = args.Entries[k-1].Index
	}
	n.mu.Lock()
	p := n.peers[id]
	if p == nil || p.term < args.Term {
		p = &told{term: args.Term}
		n.peers[id] = p
	}
	p.addr = addr
	if p.term == args.Term {
		p.acked = max(p.acked, last)
		p.commit = max(p.commit, args.LeaderCommitIndex)
	}
	n.mu.Unlock()
	if len(args.Entries) > 0 {
		n.wakeUp()
	}
}

func (n *nudger) wakeUp() {
	select {
	case n.poke <- struct{}{}:
	default:
	}
}

func (n *nudger) run() {
	defer n.ended.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-n.done:
			return
		case <-n.poke:
		}
		timer.Reset(nudgeDelay)
		select {
		case <-n.done:
			return
		case <-timer.C:
		}
		n.round()
	}
}

// round nudges every peer that has acknowledged entries of which it does not
// know yet that they are committed.
func (n *nudger) round() {
	s := n.store
	term := s.leader.term.Load()
	if term == 0 || s.raft.State() != raft.Leader || s.raft.CurrentTerm() != term {
		return
	}
	if s.applying.Load() > 0 {
		// More entries follow at once and mention the commit; the acknowledgement of
		// the last of them pokes again.
		return
	}
	commit := s.raft.CommitIndex()
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, p := range n.peers {
		upTo := min(commit, p.acked)
		if p.term != term || p.busy || p.commit >= upTo {
			continue
		}
		p.busy = true
		n.ended.Add(1)
		go func() {
			defer n.ended.Done()
			n.send(id, p, term, upTo)
		}()
	}
}

func (n *nudger) send(id raft.ServerID, p *told, term, upTo uint64) {
	defer func() {
		n.mu.Lock()
		p.busy = false
		behind := p.commit < min(n.store.raft.CommitIndex(), p.acked)
		n.mu.Unlock()
		if behind {
			n.wakeUp()
		}
	}()
	var entry raft.Log
	if err := n.store.log.GetLog(upTo, &entry); err != nil {
		// Already cut; raft's own CommitTimeout will tell the peer.
		n.mu.Lock()
		p.commit = max(p.commit, upTo)
		n.mu.Unlock()
		return
	}
	args := &raft.AppendEntriesRequest{
		RPCHeader:         raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(n.store.cfg.Node), Addr: n.Transport.EncodePeer(raft.ServerID(n.store.cfg.Node), n.Transport.LocalAddr())},
		Term:              term,
		Leader:            n.Transport.EncodePeer(raft.ServerID(n.store.cfg.Node), n.Transport.LocalAddr()),
		PrevLogEntry:      upTo,
		PrevLogTerm:       entry.Term,
		LeaderCommitIndex: upTo,
	}
	var resp raft.AppendEntriesResponse
	n.mu.Lock()
	addr := p.addr
	n.mu.Unlock()
	err := n.Transport.AppendEntries(id, addr, args, &resp)
	n.mu.Lock()
	// Told or not, this commit is not tried again: raft does so by itself.
	p.commit = max(p.commit, upTo)
	n.mu.Unlock()
	if err == nil && resp.Success {
		n.store.stats.nudges.Add(1)
	}
}

const (
	// insistEvery is how soon a peer that is back gets entries again.
	insistEvery = 50 * time.Millisecond
	// insistFor bounds how long a message that is repeated holds entries of the log in
	// memory.
	insistFor = 30 * time.Second
)

// isHeartbeat tells raft's heartbeats, which must not wait, from its other
// messages without entries.
func isHeartbeat(r *raft.AppendEntriesRequest) bool {
	return len(r.Entries) == 0 && r.PrevLogEntry == 0 && r.LeaderCommitIndex == 0
}

// insist repeats a message to a peer that has failed with err until it succeeds, as long
// as this node leads in the term and the peer is a member at that address: raft takes
// the address of its next attempt from the configuration. Raft would wait between its
// own attempts, twice as long after each and up to ten seconds, and does not notice that
// a peer is back: with one more node gone, writes would hang for that long. After a while
// the message goes without its entries; raft sends those when it has arrived.
func (n *nudger) insist(err error, id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, call func() error) error {
	n.mu.Lock()
	s := n.store
	n.mu.Unlock()
	if s == nil {
		return err
	}
	tick := time.NewTicker(insistEvery)
	defer tick.Stop()
	for began := time.Now(); err != nil; {
		select {
		case <-s.ctx.Done():
			return err
		case <-tick.C:
		}
		if s.raft.State() != raft.Leader || s.raft.CurrentTerm() != args.Term {
			return err
		}
		long := time.Since(began) > n.keep
		switch addr, member := s.memberAt(id); {
		case member && addr != target, !member && long:
			return err
		case long:
			args.Entries = nil
		}
		err = call()
	}
	return err
}

// memberAt returns the address of a member in the configuration.
func (s *Store) memberAt(id raft.ServerID) (addr raft.ServerAddress, ok bool) {
	for _, m := range s.raft.GetConfiguration().Configuration().Servers {
		if m.ID == id {
			return m.Address, true
		}
	}
	return "", false
}

// pipeline passes a raft pipeline on and tells the nudger what was acknowledged.
type pipeline struct {
	raft.AppendPipeline
	out  chan raft.AppendFuture
	done chan struct{}
	once sync.Once
}

func newPipeline(n *nudger, id raft.ServerID, addr raft.ServerAddress, inner raft.AppendPipeline) *pipeline {
	p := &pipeline{AppendPipeline: inner, out: make(chan raft.AppendFuture), done: make(chan struct{})}
	n.ended.Add(1)
	go func() {
		defer n.ended.Done()
		for {
			var f raft.AppendFuture
			select {
			case f = <-inner.Consumer():
			case <-p.done:
				return
			}
			if f.Error() == nil && f.Response().Success {
				n.note(id, addr, f.Request())
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

func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.out }

func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.done) })
	return p.AppendPipeline.Close()
}
