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
	told    map[raft.ServerID]uint64 // acknowledged.changes when a member was told
	written uint64                   // and when the file was written; of the goroutine that compares
	kept    map[proto.NodeID]uint64  // up to where the file says that a node has acknowledged entries
	lost    error                    // ErrEntriesLost with the circumstances
}

// peerStart is which process of another node talks to this one: it is known when that has sent a challenge back.
type peerStart struct {
	start             uint64
	asking, challenge uint64
}

// beginComparison notes where the log ends, before Raft is there, and reads the file. It refuses a directory that
// was found to be an older copy.
func (s *Store) beginComparison() error {
	c := &s.comparison
	if at, err := s.log.GetUint64([]byte(lostKey)); err == nil && at > 0 {
		return fmt.Errorf("entries up to %d were acknowledged: %w", at, ErrEntriesLost)
	}
	c.start = rand.Uint64() | 1
	c.with, c.peers, c.told = map[raft.ServerID]bool{}, map[raft.ServerID]peerStart{}, map[raft.ServerID]uint64{}
	// The error of a key that is absent is Raft's to judge; then the term is zero.
	c.term, _ = s.log.GetUint64(raftTerm)
	_, last, err := bounds(s.log)
	if err != nil {
		return err
	}
	c.last = max(last, s.snapshots.Index())
	var f proto.AcknowledgedFile
	s.readNote(acknowledgedFile, &f)
	c.known.add(f.Known, f.Lost, func(proto.NodeID) bool { return true })
	_, _, c.written = c.known.all()
	return nil
}

// compared reports whether what this node says to another counts.
func (c *comparison) compared(id raft.ServerID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.with[id] && c.lost == nil
}

// startOf is the process of a node that this one talks with, or 0.
func (c *comparison) startOf(id raft.ServerID) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peers[id].start
}

// admit is asked for each message of Raft from another node. The address that it names counts only for a node
// that is not in the configuration here: there is one connection to a node, and others use it.
func (s *Store) admit(id raft.ServerID, addr raft.ServerAddress) error {
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

// compareWith compares with one node, unless that has been done. An error means that this node must not answer it.
func (s *Store) compareWith(ctx context.Context, id raft.ServerID, addr raft.ServerAddress) error {
	c := &s.comparison
	c.mu.Lock()
	done, lost := c.with[id], c.lost
	c.mu.Unlock()
	if done || lost != nil {
		return lost
	}
	conn, err := s.cfg.Peers.Conn(proto.NodeID(id), string(addr))
	if err != nil {
		return fmt.Errorf("%w: %w", errNotCompared, err)
	}
	ctx, cancel := context.WithTimeout(ctx, compareWithin)
	defer cancel()
	req := &proto.AcknowledgedRequest{Start: c.start, Term: c.term, LastLogIndex: c.last}
	for {
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
		c.known.add(nil, r.Others, s.isKnownMember)
		if r.Challenge == 0 {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.with[id] = true
			if c.peers[id].start == 0 && r.Start != 0 {
				c.peers[id] = peerStart{start: r.Start}
			}
			return c.lost
		}
		req.Challenge = r.Challenge
	}
}

// hasLost ends this node, for good: the next start is refused as well.
func (s *Store) hasLost(l *proto.LostEntries) error {
	why := fmt.Errorf("node %s knows of entries up to %d that this node had acknowledged in term %d or before; "+
		"it has started in term %d with a log that ends at %d: %w", l.ToNodeId, l.Acknowledged, l.AcknowledgedTerm, l.Term, l.LastLogIndex, ErrEntriesLost)
	c := &s.comparison
	c.mu.Lock()
	first := c.lost == nil
	if first {
		c.lost = why
	}
	c.mu.Unlock()
	if first {
		if err := s.log.SetUint64([]byte(lostKey), max(l.Acknowledged, 1)); err != nil {
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
	return p.store.acknowledged(from, req), nil
}

func (s *Store) acknowledged(from proto.NodeID, req *proto.AcknowledgedRequest) *proto.AcknowledgedResponse {
	c, id := &s.comparison, raft.ServerID(from)
	s.transport.promises()
	c.known.add(req.Known, req.Lost, s.isKnownMember)
	if own := c.known.before(s.cfg.Node, c.start); own.broken(c.term, c.last) {
		_ = s.hasLost(s.lostEntries(s.cfg.Node, c.term, c.last, own, from))
	}
	before := c.known.before(from, req.Start)
	r := &proto.AcknowledgedResponse{Start: c.start}
	if before.broken(req.Term, req.LastLogIndex) {
		r.Lost = s.lostEntries(from, req.Term, req.LastLogIndex, before, s.cfg.Node)
		if c.known.lose(r.Lost) {
			s.cfg.Logger.Error("a member has lost entries that it had acknowledged: it does not count any more. See 'quorate member list'",
				"node_id", from, "acknowledged", r.Lost.Acknowledged, "log_ends_at", r.Lost.LastLogIndex)
		}
		return r
	}
	_, r.Others, _ = c.known.all()
	r.Others = slices.DeleteFunc(r.Others, func(l *proto.LostEntries) bool { return l.NodeId == string(from) })
	c.mu.Lock()
	defer c.mu.Unlock()
	switch p := c.peers[id]; {
	case p.start == req.Start:
	case req.Challenge != 0 && p.asking == req.Start && p.challenge == req.Challenge:
		c.peers[id] = peerStart{start: req.Start}
	default:
		p.asking, p.challenge = req.Start, rand.Uint64()|1
		c.peers[id], r.Challenge = p, p.challenge
	}
	return r
}

func (s *Store) lostEntries(id proto.NodeID, term, last uint64, before promise, to proto.NodeID) *proto.LostEntries {
	return &proto.LostEntries{
		NodeId: string(id), Term: term, LastLogIndex: last, AcknowledgedTerm: before.term,
		Acknowledged: max(before.index, before.committed), ToNodeId: string(to), FoundUnix: time.Now().Unix(),
	}
}

// isKnownMember reports whether a node is in the newest configuration, or there is none yet.
func (s *Store) isKnownMember(id proto.NodeID) bool {
	_, servers, err := s.Members()
	return err != nil || len(servers) == 0 || slices.ContainsFunc(servers, func(m Server) bool { return m.ID == id })
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
	c.known.keep(func(id proto.NodeID) bool {
		return slices.ContainsFunc(servers, func(m Server) bool { return m.ID == id })
	})
	s.transport.promises()
	known, lost, changes := c.known.all()
	var tasks sync.WaitGroup
	for _, m := range servers {
		id := raft.ServerID(m.ID)
		c.mu.Lock()
		with, told := c.with[id], c.told[id]
		c.mu.Unlock()
		switch {
		case m.ID == s.cfg.Node:
		case !with:
			tasks.Go(func() { _ = s.compareWith(s.ctx, id, raft.ServerAddress(m.Address)) }) // it is tried again
		case s.leader.ready() && told != changes:
			tasks.Go(func() { s.tell(m, known, lost, changes) })
		}
	}
	tasks.Wait()
	s.writeAcknowledged()
}

// tell tells a member what this node knows of others.
func (s *Store) tell(m Server, known []*proto.Acknowledgement, lost []*proto.LostEntries, changes uint64) {
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
		c.known.add(nil, r.Others, s.isKnownMember)
		c.mu.Lock()
		c.told[raft.ServerID(m.ID)] = changes
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
	if err := s.writeNote(acknowledgedFile, &proto.AcknowledgedFile{
		Format: noteFormat, ClusterId: string(s.Cluster()), Known: known, Lost: lost,
	}); err != nil {
		s.cfg.Logger.Warn("cannot write what other nodes have acknowledged", "err", err)
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
