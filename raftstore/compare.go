package raftstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/proto"
)

// A node that has started compares what its log holds with what each other node knows that it has
// acknowledged, before it answers that node anything that Raft relies on: votes, entries, the term for a
// quorum round. So a data directory that was put back to an older copy is found at the first contact with
// a node that can know it. What a leader knows of its followers' acknowledgements it tells the other
// followers every compareEvery, and all keep it in a file: it outlives changes of leader and restarts.
// See DESIGN.md, "Restored directories".

const (
	// compareEvery is how often a node looks for members that it has not compared with, a leader tells
	// others what it knows, and the file is written.
	compareEvery = time.Second
	// compareWithin bounds one call.
	compareWithin = time.Second
	// soundWithin bounds a call that another one, which is bounded by compareWithin, may wait for.
	soundWithin = compareWithin / 2
)

// lostKey has, in the stable store, the index up to which this node had acknowledged what it has lost.
const lostKey = "LostAcknowledged"

// ErrEntriesLost is fatal: entries or the term of a vote that this node had acknowledged are gone.
var ErrEntriesLost = errors.New("this node has lost what it had acknowledged: its data directory was put back to an older copy, or its disk lost writes. " +
	"It takes no part in the cluster any more. Keep the directory until the cluster has a quorum and its data is checked; " +
	"then remove this member ('quorate member remove') and let the node join again with an empty directory")

var errNotCompared = errors.New("this node has not yet compared with that one what it has acknowledged")

// comparison is what a process compares, and with whom it has.
type comparison struct {
	start      uint64 // random
	term, last uint64 // of the log when the process started

	known acknowledged

	ready chan struct{} // closed when the store has its Raft

	mu      sync.Mutex
	with    map[raft.ServerID]bool
	peers   map[raft.ServerID]peerStart
	told    map[raft.ServerID]toldStart // acknowledged.changes when a member was told
	written uint64                      // and when the file was written; of the goroutine that compares
	kept    map[proto.NodeID]uint64     // up to where the file says that a node has acknowledged entries
	lost    error                       // ErrEntriesLost with the circumstances
}

// peerStart is which process of another node talks to this one: it is known when that has sent a challenge back.
type peerStart struct {
	start uint64
	since int64 // Unix time
	// asking has been sent the challenge, and has not sent it back; evidence is what was known then.
	asking, challenge uint64
	evidence          promises
}

// toldStart says what a process of another node was told.
type toldStart struct{ start, changes uint64 }

// beginComparison notes where the log ends, before Raft is there, and reads the file. It refuses a directory that
// was found to be an older copy.
func (s *Store) beginComparison() error {
	c := &s.comparison
	if at, err := s.log.GetUint64([]byte(lostKey)); err == nil && at > 0 {
		return fmt.Errorf("entries up to %d were acknowledged: %w", at, ErrEntriesLost)
	}
	c.start = rand.Uint64() | 1
	c.with, c.peers, c.told = map[raft.ServerID]bool{}, map[raft.ServerID]peerStart{}, map[raft.ServerID]toldStart{}
	// The error of a key that is absent is Raft's to judge; then the term is zero.
	c.term, _ = s.log.GetUint64(raftTerm)
	_, last, err := bounds(s.log)
	if err != nil {
		return err
	}
	c.last = max(last, s.snapshots.Index())
	var f proto.AcknowledgedFile
	s.readNote(acknowledgedFile, &f)
	c.known.add(f.Known, s.ofOthers(f.Lost), func(proto.NodeID) bool { return true })
	_, _, c.written = c.known.all()
	return nil
}

// compared reports whether what this node says to another counts.
func (c *comparison) compared(id raft.ServerID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.with[id] && c.lost == nil
}

// again has this node compare with another one again.
func (c *comparison) again(id raft.ServerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.with[id] = false
}

// startOf is the process of a node that this one talks with, or 0.
func (c *comparison) startOf(id raft.ServerID) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peers[id].start
}

// admit is asked about each message of Raft from another node.
func (s *Store) admit(req any, id raft.ServerID, addr raft.ServerAddress) error {
	if err := s.mustCompare(id, addr); err != nil {
		return err
	}
	switch r := req.(type) {
	case *raft.InstallSnapshotRequest:
		return s.admitSnapshot(r.Size)
	case *raft.RequestVoteRequest:
		s.transport.promised(id, promise{term: r.Term}) // a candidate has voted for itself
	case *raft.AppendEntriesRequest:
		// What a leader sends may not be on its disk yet (ahead.go); what comes before that is, and what it knows to be
		// committed.
		p := promise{term: r.Term, committed: min(r.LeaderCommitIndex, r.PrevLogEntry+uint64(len(r.Entries)))}
		if r.PrevLogTerm == r.Term {
			p.index = r.PrevLogEntry
		}
		s.transport.promised(id, p)
		s.skipBelow(r)
	}
	return nil
}

// mustCompare waits until this node has compared with another one. The address that a message names counts only for a
// node that is not in the configuration here: there is one connection to a node, and others use it.
func (s *Store) mustCompare(id raft.ServerID, addr raft.ServerAddress) error {
	if s.comparison.compared(id) {
		return nil
	}
	select {
	case <-s.comparison.ready:
		if known, ok := s.memberAt(id); ok {
			addr = known
		}
		return s.compareWith(s.ctx, id, addr)
	case <-s.ctx.Done():
		return ErrClosed
	}
}

// compareWith compares with one node, unless that has been done, and has it compare with this one: each of them says where it
// was when it started, and the other, what it knows. An error means that this node must not answer it.
func (s *Store) compareWith(ctx context.Context, id raft.ServerID, addr raft.ServerAddress) error {
	c := &s.comparison
	conn, err := s.cfg.Peers.Conn(proto.NodeID(id), string(addr))
	if err != nil {
		return fmt.Errorf("%w: %w", errNotCompared, err)
	}
	ctx, cancel := context.WithTimeout(ctx, compareWithin)
	defer cancel()
	req := &proto.AcknowledgedRequest{Start: c.start, Term: c.term, LastLogIndex: c.last}
	for range comparedAfter {
		evidence := s.evidence(proto.NodeID(id)) // before the call: who answers it is alive then
		c.mu.Lock()
		done, lost, was := c.with[id], c.lost, c.peers[id].start
		c.mu.Unlock()
		if done || lost != nil {
			return lost
		}
		r, err := proto.NewPeerClient(conn).Acknowledged(ctx, req, grpc.WaitForReady(true))
		switch {
		case status.Code(err) == codes.Unimplemented:
			r = &proto.AcknowledgedResponse{} // a release that compares nothing
		case err != nil:
			return fmt.Errorf("%w: %w", errNotCompared, err)
		}
		if r.Lost != nil {
			return s.hasLost(r.Lost)
		}
		s.hear(nil, r.Others)
		lostThere := s.judge(proto.NodeID(id), r.Start, r.Term, r.LastLogIndex, evidence)
		if !c.answered(id, was, r.Start) {
			req.Challenge, req.Compared, req.CalleeLost = 0, 0, nil
			continue
		}
		switch {
		case r.Start == 0:
		case lostThere == nil:
			c.known.found(proto.NodeID(id))
		default:
			s.lose(lostThere)
		}
		// It may know this process, and not have compared with it: then it has to be told that this one has.
		if r.Challenge == 0 && (r.Start == 0 || req.Compared == r.Start) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.with[id] = true
			return c.lost
		}
		req.Challenge, req.Compared, req.CalleeLost = r.Challenge, r.Start, lostThere
	}
	return fmt.Errorf("%w: it takes no answer to its challenge", errNotCompared)
}

// answered notes that a process of a node has answered a call that was made when was was known as the one that this node
// talks with. It returns false if another one has become known meanwhile: the answer may be that of a process that has ended
// since. It comes before that process is told that it has been compared with, for from then on it acknowledges, and
// what a process has acknowledged must never be taken for that of an earlier one.
func (c *comparison) answered(id raft.ServerID, was, start uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[id]
	switch {
	case start == 0 || p.start == start:
	case p.start == was:
		c.peers[id] = peerStart{start: start, since: time.Now().Unix()} // without the challenge of an earlier one
	default:
		return false
	}
	return true
}

// comparedAfter is how many calls it takes to compare with a node, and one more for each that is repeated.
const comparedAfter = 5

// evidence is what is known here that a node has promised.
func (s *Store) evidence(id proto.NodeID) promises {
	s.transport.promises()
	return s.comparison.known.of(id)
}

// judge returns what a process of a node has lost, nil: nothing that is known here. It must have been alive since there
// was the evidence.
func (s *Store) judge(id proto.NodeID, start, term, last uint64, evidence promises) *proto.LostEntries {
	before := evidence.before(start)
	if start == 0 || !before.broken(term, last) {
		return nil
	}
	return s.lostEntries(id, term, last, before, s.cfg.Node)
}

// lose notes that a member has lost entries.
func (s *Store) lose(l *proto.LostEntries) {
	if s.comparison.known.lose(l) {
		s.cfg.Logger.Error("a member has lost entries that it had acknowledged: it does not count any more. See 'quorate member list'",
			"node_id", l.NodeId, "acknowledged", max(l.Acknowledged, l.Committed), "log_ends_at", l.LastLogIndex)
	}
}

// sound asks a member, where it is, and reports whether a process answers that has what the member had, and did not start as
// start.
func (s *Store) sound(ctx context.Context, id proto.NodeID, start uint64) bool {
	addr, ok := s.memberAt(raft.ServerID(id))
	if !ok {
		return false
	}
	conn, err := s.cfg.Peers.Conn(id, string(addr))
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, soundWithin)
	defer cancel()
	evidence := s.evidence(id) // before the call: who answers it is alive then
	c := &s.comparison
	r, err := proto.NewPeerClient(conn).Acknowledged(ctx, &proto.AcknowledgedRequest{Start: c.start, Term: c.term, LastLogIndex: c.last}, grpc.WaitForReady(true))
	return err == nil && r.Start != 0 && r.Start != start && s.judge(id, r.Start, r.Term, r.LastLogIndex, evidence) == nil
}

// hasLost ends this node, for good, if it is so: the next start is refused as well.
func (s *Store) hasLost(l *proto.LostEntries) error {
	c := &s.comparison
	if p := (promise{term: l.AcknowledgedTerm, index: l.Acknowledged, committed: l.Committed}); !p.broken(c.term, c.last) {
		return fmt.Errorf("%w: node %s says that entries were lost that are here", errNotCompared, l.ToNodeId)
	}
	why := fmt.Errorf("node %s knows of entries up to %d that this node had acknowledged in term %d or before; "+
		"it has started in term %d with a log that ends at %d: %w", l.ToNodeId, max(l.Acknowledged, l.Committed), l.AcknowledgedTerm, c.term, c.last, ErrEntriesLost)
	c.mu.Lock()
	first := c.lost == nil
	if first {
		c.lost = why
	}
	c.mu.Unlock()
	if first {
		if err := s.log.SetUint64([]byte(lostKey), max(l.Acknowledged, l.Committed, 1)); err != nil {
			why = errors.Join(why, err)
		}
		s.cfg.Fatal(why)
	}
	return why
}

// Acknowledged compares what the caller has with what this node knows of it.
func (p *peerServer) Acknowledged(ctx context.Context, req *proto.AcknowledgedRequest) (*proto.AcknowledgedResponse, error) {
	from, ok := p.caller(ctx)
	if !ok {
		return nil, status.Error(codes.Unauthenticated, "no node id")
	}
	return p.store.acknowledged(ctx, from, req), nil
}

func (s *Store) acknowledged(ctx context.Context, from proto.NodeID, req *proto.AcknowledgedRequest) *proto.AcknowledgedResponse {
	c, id := &s.comparison, raft.ServerID(from)
	r := &proto.AcknowledgedResponse{Start: c.start, Term: c.term, LastLogIndex: c.last}
	// What others have acknowledged counts from members only.
	if r.Unheard = !s.isMember(from); !r.Unheard {
		s.hear(req.Known, req.Lost)
	}
	if own := c.known.of(s.cfg.Node).before(c.start); own.broken(c.term, c.last) {
		_ = s.hasLost(s.lostEntries(s.cfg.Node, c.term, c.last, own, from))
	}
	evidence := s.evidence(from)
	proven := c.proves(id, req.Start, req.Challenge)
	if proven != nil {
		if r.Lost = s.judge(from, req.Start, req.Term, req.LastLogIndex, proven.evidence); r.Lost != nil {
			// It is refused in any case. The member has lost nothing if it runs beside it, with the directory that this is a copy of.
			if s.sound(ctx, from, req.Start) {
				s.cfg.Logger.Warn("a process was refused that has an older copy of the directory of a member, which runs: end it, and delete the copy",
					"node_id", from, "acknowledged", max(r.Lost.Acknowledged, r.Lost.Committed), "log_ends_at", req.LastLogIndex)
			} else {
				s.lose(r.Lost)
			}
			return r
		}
	}
	_, r.Others, _ = c.known.all()
	r.Others = slices.DeleteFunc(r.Others, func(l *proto.LostEntries) bool { return l.NodeId == string(from) })
	if req.Compared == c.start && req.CalleeLost != nil {
		_ = s.hasLost(req.CalleeLost)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch p := c.peers[id]; {
	case proven != nil && p.asking == req.Start && p.challenge == req.Challenge:
		c.peers[id] = peerStart{start: req.Start, since: time.Now().Unix()}
		c.known.found(from)
	case p.start == req.Start && !evidence.before(req.Start).broken(req.Term, req.LastLogIndex):
	case p.asking == req.Start:
		r.Challenge = p.challenge
	default:
		p.asking, p.challenge, p.evidence = req.Start, rand.Uint64()|1, evidence
		c.peers[id], r.Challenge = p, p.challenge
	}
	if r.Challenge == 0 && req.Compared == c.start && req.CalleeLost == nil {
		c.with[id] = true
	}
	return r
}

// proves returns what was known when a process of a node was sent the challenge that it sends back, or nil.
func (c *comparison) proves(id raft.ServerID, start, challenge uint64) *peerStart {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.peers[id]; challenge != 0 && p.asking == start && p.challenge == challenge {
		return &p
	}
	return nil
}

// hear takes over what a member says of others. That a node has lost entries is old news if it has come back since.
func (s *Store) hear(known []*proto.Acknowledgement, lost []*proto.LostEntries) {
	c := &s.comparison
	lost = slices.DeleteFunc(s.ofOthers(lost), func(l *proto.LostEntries) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return l.FoundUnix < c.peers[raft.ServerID(l.NodeId)].since
	})
	c.known.add(known, lost, s.isMember)
}

// ofOthers leaves out what is said of this node. If it has lost something it is told so when it compares, and ends; what it
// hears besides is about a process that had a copy of its directory.
func (s *Store) ofOthers(lost []*proto.LostEntries) []*proto.LostEntries {
	return slices.DeleteFunc(slices.Clone(lost), func(l *proto.LostEntries) bool { return l.NodeId == string(s.cfg.Node) })
}

// isMember reports whether a node is in the newest configuration that is known here.
func (s *Store) isMember(id proto.NodeID) bool {
	_, servers, err := s.Members()
	return err == nil && slices.ContainsFunc(servers, func(m Server) bool { return m.ID == id })
}

func (s *Store) lostEntries(id proto.NodeID, term, last uint64, before promise, to proto.NodeID) *proto.LostEntries {
	return &proto.LostEntries{
		NodeId: string(id), Term: term, LastLogIndex: last, AcknowledgedTerm: before.term,
		Acknowledged: before.index, Committed: before.committed, ToNodeId: string(to), FoundUnix: time.Now().Unix(),
	}
}

// Lost are the members that are known here to have lost entries.
func (s *Store) Lost() []*proto.LostEntries {
	_, lost, _ := s.comparison.known.all()
	return lost
}

// Acknowledged is the index up to which this node remembers, also behind a restart, that another one has acknowledged
// entries, some of which may not be committed.
func (s *Store) Acknowledged(id proto.NodeID) uint64 {
	s.comparison.mu.Lock()
	defer s.comparison.mu.Unlock()
	return s.comparison.kept[id]
}

// Compared reports whether this node has compared with another one what it has acknowledged to it, and lost nothing
// of that. Before, it does not answer that node.
func (s *Store) Compared(id proto.NodeID) bool { return s.comparison.compared(raft.ServerID(id)) }

// compare has this node compare with all others, and spreads and keeps what is known.
func (s *Store) compare() {
	tick := time.NewTicker(compareEvery)
	defer tick.Stop()
	for {
		s.compareOnce()
		select {
		case <-s.ctx.Done():
			s.transport.promises()
			s.writeAcknowledged()
			return
		case <-tick.C:
		}
	}
}

func (s *Store) compareOnce() {
	c := &s.comparison
	_, servers, err := s.Members()
	if err != nil || len(servers) == 0 {
		return
	}
	s.transport.promises()
	c.known.keep(func(id proto.NodeID) bool {
		return slices.ContainsFunc(servers, func(m Server) bool { return m.ID == id })
	})
	known, lost, changes := c.known.all()
	s.writeAcknowledged() // before what may wait for a node that is down
	var tasks sync.WaitGroup
	for _, l := range lost {
		tasks.Go(func() {
			if id := proto.NodeID(l.NodeId); s.sound(s.ctx, id, 0) {
				c.known.found(id)
			}
		})
	}
	for _, m := range servers {
		id := raft.ServerID(m.ID)
		c.mu.Lock()
		with, told := c.with[id], toldStart{c.peers[id].start, changes}
		old := c.told[id]
		c.mu.Unlock()
		switch {
		case m.ID == s.cfg.Node:
		case !with:
			tasks.Go(func() { _ = s.compareWith(s.ctx, id, raft.ServerAddress(m.Address)) }) // it is tried again
		case s.leader.ready() && told != old:
			tasks.Go(func() { s.tell(m, known, lost, told) })
		}
	}
	tasks.Wait()
}

// tell tells a member what this node knows of others.
func (s *Store) tell(m Server, known []*proto.Acknowledgement, lost []*proto.LostEntries, told toldStart) {
	c := &s.comparison
	conn, err := s.cfg.Peers.Conn(m.ID, m.Address)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, compareWithin)
	defer cancel()
	r, err := proto.NewPeerClient(conn).Acknowledged(ctx, &proto.AcknowledgedRequest{
		Start: c.start, Term: c.term, LastLogIndex: c.last, Known: known, Lost: lost,
	})
	switch {
	case err != nil:
	case r.Lost != nil:
		_ = s.hasLost(r.Lost)
	default:
		s.hear(nil, r.Others)
		if r.Challenge != 0 {
			c.again(raft.ServerID(m.ID)) // it doubts this process, or its own
		}
		if r.Challenge != 0 || r.Unheard {
			return // it is told again
		}
		c.mu.Lock()
		c.told[raft.ServerID(m.ID)] = told
		c.mu.Unlock()
	}
}

// writeAcknowledged writes the file if something has changed.
func (s *Store) writeAcknowledged() {
	c := &s.comparison
	known, lost, changes := c.known.all()
	if changes == c.written {
		return
	}
	if !s.writeNote(acknowledgedFile, "what other nodes have acknowledged", &proto.AcknowledgedFile{
		Format: noteFormat, ClusterId: string(s.Cluster()), Known: known, Lost: lost,
	}) {
		return
	}
	c.written = changes
	kept := map[proto.NodeID]uint64{}
	for _, k := range known {
		id := proto.NodeID(k.NodeId)
		kept[id] = max(kept[id], k.Index, k.Committed)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = kept
}
