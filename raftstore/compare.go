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
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/local"
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

// comparison is what a process compares, and with whom it has. All methods are safe for concurrent use.
type comparison struct {
	node       *local.Node
	log        *disk.Log
	notes      *notes
	fatal      func(error)
	start      uint64 // random
	term, last uint64 // of the log when the process started, or of its newest snapshot
	collect    func() // has Promised called with what this leader knows

	known acknowledged

	ready chan struct{} // closed when the node has its Raft

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

// newComparison notes where the log ends, before Raft is there, and reads the file. It refuses a directory that
// was found to be an older copy.
func newComparison(node *local.Node, log *disk.Log, snapshot uint64, notes *notes, fatal func(error)) (*comparison, error) {
	if at, err := log.GetUint64([]byte(lostKey)); err == nil && at > 0 {
		return nil, fmt.Errorf("entries up to %d were acknowledged: %w", at, ErrEntriesLost)
	}
	c := &comparison{
		node: node, log: log, notes: notes, fatal: fatal, start: rand.Uint64() | 1, ready: make(chan struct{}),
		with: map[raft.ServerID]bool{}, peers: map[raft.ServerID]peerStart{}, told: map[raft.ServerID]toldStart{},
	}
	// The error of a key that is absent is Raft's to judge; then the term is zero.
	c.term, _ = log.GetUint64(raftTerm)
	_, last, err := bounds(log)
	if err != nil {
		return nil, err
	}
	c.last = max(last, snapshot)
	var f proto.AcknowledgedFile
	notes.read(acknowledgedFile, &f)
	c.known.add(f.Known, c.ofOthers(f.Lost), func(proto.NodeID) bool { return true })
	_, _, c.written = c.known.all()
	return c, nil
}

// begin lets who waits in Must compare: the node has its Raft. collect has Promised called with what this node knows as a leader.
func (c *comparison) begin(collect func()) {
	c.collect = collect
	close(c.ready)
}

// Promised notes what a node has promised, if it is known which process of it that is.
func (c *comparison) Promised(id raft.ServerID, term, index, committed uint64) {
	// A start of zero is not noted.
	c.known.note(proto.NodeID(id), promise{start: c.startOf(id), term: term, index: index, committed: committed})
}

// compared reports whether what this node says to another counts.
func (c *comparison) compared(id raft.ServerID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.with[id] && c.lost == nil
}

// Counts returns an error unless compared.
func (c *comparison) Counts(id raft.ServerID) error {
	if !c.compared(id) {
		return local.ErrNotCompared
	}
	return nil
}

// Again has this node compare with another one again.
func (c *comparison) Again(id raft.ServerID) {
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

// Must waits until this node has compared with another one. The address that a message names counts only for a
// node that is not in the configuration here: there is one connection to a node, and others use it.
func (c *comparison) Must(id raft.ServerID, addr raft.ServerAddress) error {
	if c.compared(id) {
		return nil
	}
	select {
	case <-c.ready:
		if known, ok := c.node.Address(id); ok {
			addr = known
		}
		return c.compareWith(c.node.Context(), id, addr)
	case <-c.node.Context().Done():
		return ErrClosed
	}
}

// compareWith compares with one node, unless that has been done, and has it compare with this one: each of them says where it
// was when it started, and the other, what it knows. An error means that this node must not answer it.
func (c *comparison) compareWith(ctx context.Context, id raft.ServerID, addr raft.ServerAddress) error {
	conn, err := c.node.Peers.Conn(proto.NodeID(id), string(addr))
	if err != nil {
		return fmt.Errorf("%w: %w", local.ErrNotCompared, err)
	}
	ctx, cancel := context.WithTimeout(ctx, compareWithin)
	defer cancel()
	req := &proto.AcknowledgedRequest{Start: c.start, Term: c.term, LastLogIndex: c.last}
	for range comparedAfter {
		evidence := c.evidence(proto.NodeID(id)) // before the call: who answers it is alive then
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
			return fmt.Errorf("%w: %w", local.ErrNotCompared, err)
		}
		if r.Lost != nil {
			return c.hasLost(r.Lost)
		}
		c.hear(nil, r.Others)
		lostThere := c.judge(proto.NodeID(id), r.Start, r.Term, r.LastLogIndex, evidence)
		if !c.answered(id, was, r.Start) {
			req.Challenge, req.Compared, req.CalleeLost = 0, 0, nil
			continue
		}
		switch {
		case r.Start == 0:
		case lostThere == nil:
			c.known.found(proto.NodeID(id))
		default:
			c.lose(lostThere)
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
	return fmt.Errorf("%w: it takes no answer to its challenge", local.ErrNotCompared)
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
func (c *comparison) evidence(id proto.NodeID) promises {
	c.collect()
	return c.known.of(id)
}

// judge returns what a process of a node has lost, nil: nothing that is known here. It must have been alive since there
// was the evidence.
func (c *comparison) judge(id proto.NodeID, start, term, last uint64, evidence promises) *proto.LostEntries {
	before := evidence.before(start)
	if start == 0 || !before.broken(term, last) {
		return nil
	}
	return c.lostEntries(id, term, last, before, c.node.ID)
}

// lose notes that a member has lost entries.
func (c *comparison) lose(l *proto.LostEntries) {
	if c.known.lose(l) {
		c.node.Logger.Error("a member has lost entries that it had acknowledged: it does not count any more. See 'quorate member list'",
			"node_id", l.NodeId, "acknowledged", max(l.Acknowledged, l.Committed), "log_ends_at", l.LastLogIndex)
	}
}

// sound asks a member, where it is, and reports whether a process answers that has what the member had, and did not start as
// start.
func (c *comparison) sound(ctx context.Context, id proto.NodeID, start uint64) bool {
	addr, ok := c.node.Address(raft.ServerID(id))
	if !ok {
		return false
	}
	conn, err := c.node.Peers.Conn(id, string(addr))
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, soundWithin)
	defer cancel()
	evidence := c.evidence(id) // before the call: who answers it is alive then
	r, err := proto.NewPeerClient(conn).Acknowledged(ctx, &proto.AcknowledgedRequest{Start: c.start, Term: c.term, LastLogIndex: c.last}, grpc.WaitForReady(true))
	return err == nil && r.Start != 0 && r.Start != start && c.judge(id, r.Start, r.Term, r.LastLogIndex, evidence) == nil
}

// hasLost ends this node, for good, if it is so: the next start is refused as well.
func (c *comparison) hasLost(l *proto.LostEntries) error {
	if p := (promise{term: l.AcknowledgedTerm, index: l.Acknowledged, committed: l.Committed}); !p.broken(c.term, c.last) {
		return fmt.Errorf("%w: node %s says that entries were lost that are here", local.ErrNotCompared, l.ToNodeId)
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
		if err := c.log.SetUint64([]byte(lostKey), max(l.Acknowledged, l.Committed, 1)); err != nil {
			why = errors.Join(why, err)
		}
		c.fatal(why)
	}
	return why
}

// acknowledged answers another node: it compares what that has with what this node knows of it.
func (c *comparison) acknowledged(ctx context.Context, from proto.NodeID, req *proto.AcknowledgedRequest) *proto.AcknowledgedResponse {
	id := raft.ServerID(from)
	r := &proto.AcknowledgedResponse{Start: c.start, Term: c.term, LastLogIndex: c.last}
	// What others have acknowledged counts from members only.
	if r.Unheard = !c.node.IsMember(from); !r.Unheard {
		c.hear(req.Known, req.Lost)
	}
	if own := c.known.of(c.node.ID).before(c.start); own.broken(c.term, c.last) {
		_ = c.hasLost(c.lostEntries(c.node.ID, c.term, c.last, own, from))
	}
	evidence := c.evidence(from)
	proven := c.proves(id, req.Start, req.Challenge)
	if proven != nil {
		if r.Lost = c.judge(from, req.Start, req.Term, req.LastLogIndex, proven.evidence); r.Lost != nil {
			// It is refused in any case. The member has lost nothing if it runs beside it, with the directory that this is a copy of.
			if c.sound(ctx, from, req.Start) {
				c.node.Logger.Warn("a process was refused that has an older copy of the directory of a member, which runs: end it, and delete the copy",
					"node_id", from, "acknowledged", max(r.Lost.Acknowledged, r.Lost.Committed), "log_ends_at", req.LastLogIndex)
			} else {
				c.lose(r.Lost)
			}
			return r
		}
	}
	_, r.Others, _ = c.known.all()
	r.Others = slices.DeleteFunc(r.Others, func(l *proto.LostEntries) bool { return l.NodeId == string(from) })
	if req.Compared == c.start && req.CalleeLost != nil {
		_ = c.hasLost(req.CalleeLost)
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
func (c *comparison) hear(known []*proto.Acknowledgement, lost []*proto.LostEntries) {
	lost = slices.DeleteFunc(c.ofOthers(lost), func(l *proto.LostEntries) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return l.FoundUnix < c.peers[raft.ServerID(l.NodeId)].since
	})
	c.known.add(known, lost, c.node.IsMember)
}

// ofOthers leaves out what is said of this node. If it has lost something it is told so when it compares, and ends; what it
// hears besides is about a process that had a copy of its directory.
func (c *comparison) ofOthers(lost []*proto.LostEntries) []*proto.LostEntries {
	return slices.DeleteFunc(slices.Clone(lost), func(l *proto.LostEntries) bool { return l.NodeId == string(c.node.ID) })
}

func (c *comparison) lostEntries(id proto.NodeID, term, last uint64, before promise, to proto.NodeID) *proto.LostEntries {
	return &proto.LostEntries{
		NodeId: string(id), Term: term, LastLogIndex: last, AcknowledgedTerm: before.term,
		Acknowledged: before.index, Committed: before.committed, ToNodeId: string(to), FoundUnix: time.Now().Unix(),
	}
}

// lostMembers are the members that are known here to have lost entries.
func (c *comparison) lostMembers() []*proto.LostEntries {
	_, lost, _ := c.known.all()
	return lost
}

// keptOf is the index up to which this node remembers, also behind a restart, that another one has acknowledged
// entries, some of which may not be committed.
func (c *comparison) keptOf(id proto.NodeID) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept[id]
}

// run has this node compare with all others, and spreads and keeps what is known.
func (c *comparison) run() {
	tick := time.NewTicker(compareEvery)
	defer tick.Stop()
	for {
		c.once()
		select {
		case <-c.node.Context().Done():
			c.collect()
			c.writeAcknowledged()
			return
		case <-tick.C:
		}
	}
}

func (c *comparison) once() {
	servers := c.node.Servers()
	if len(servers) == 0 {
		return
	}
	c.collect()
	c.known.keep(func(id proto.NodeID) bool {
		return slices.ContainsFunc(servers, func(m raft.Server) bool { return m.ID == raft.ServerID(id) })
	})
	known, lost, changes := c.known.all()
	c.writeAcknowledged() // before what may wait for a node that is down
	var tasks sync.WaitGroup
	for _, l := range lost {
		tasks.Go(func() {
			if id := proto.NodeID(l.NodeId); c.sound(c.node.Context(), id, 0) {
				c.known.found(id)
			}
		})
	}
	for _, m := range servers {
		id := m.ID
		c.mu.Lock()
		with, told := c.with[id], toldStart{c.peers[id].start, changes}
		old := c.told[id]
		c.mu.Unlock()
		switch {
		case m.ID == raft.ServerID(c.node.ID):
		case !with:
			tasks.Go(func() { _ = c.compareWith(c.node.Context(), id, m.Address) }) // it is tried again
		case c.node.Ready() && told != old:
			tasks.Go(func() { c.tell(m, known, lost, told) })
		}
	}
	tasks.Wait()
}

// tell tells a member what this node knows of others.
func (c *comparison) tell(m raft.Server, known []*proto.Acknowledgement, lost []*proto.LostEntries, told toldStart) {
	conn, err := c.node.Peers.Conn(proto.NodeID(m.ID), string(m.Address))
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.node.Context(), compareWithin)
	defer cancel()
	r, err := proto.NewPeerClient(conn).Acknowledged(ctx, &proto.AcknowledgedRequest{
		Start: c.start, Term: c.term, LastLogIndex: c.last, Known: known, Lost: lost,
	})
	switch {
	case err != nil:
	case r.Lost != nil:
		_ = c.hasLost(r.Lost)
	default:
		c.hear(nil, r.Others)
		if r.Challenge != 0 {
			c.Again(m.ID) // it doubts this process, or its own
		}
		if r.Challenge != 0 || r.Unheard {
			return // it is told again
		}
		c.mu.Lock()
		c.told[m.ID] = told
		c.mu.Unlock()
	}
}

// writeAcknowledged writes the file if something has changed.
func (c *comparison) writeAcknowledged() {
	known, lost, changes := c.known.all()
	if changes == c.written {
		return
	}
	if !c.notes.write(acknowledgedFile, "what other nodes have acknowledged", &proto.AcknowledgedFile{
		Format: noteFormat, ClusterId: c.notes.cluster(), Known: known, Lost: lost,
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
