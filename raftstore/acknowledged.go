package raftstore

import (
	"maps"
	"slices"
	"sync"

	"github.com/quorate/quorate/proto"
)

// promise is what a node has acknowledged since one of its starts: the highest term in which it has
// acknowledged entries or given a vote, the last entry that it has acknowledged to the leader of that term,
// and the last one, in any term, that was known to be committed when it had acknowledged it.
//
// In one term a log does not get shorter: only the term's leader could cut it, and that has the entries
// itself. In later terms another leader may cut what was not committed.
type promise struct {
	start                  uint64
	term, index, committed uint64
}

// and returns what was promised by two starts of a node, or twice by one.
func (p promise) and(q promise) promise {
	switch {
	case q.term > p.term:
		p.term, p.index = q.term, q.index
	case q.term == p.term:
		p.index = max(p.index, q.index)
	}
	p.committed = max(p.committed, q.committed)
	return p
}

// broken reports whether a node that starts with a term and the end of its log there has lost something.
func (p promise) broken(term, last uint64) bool {
	return term < p.term || term == p.term && last < p.index || last < p.committed
}

// keptStarts is how many starts of a node are remembered: of more, the one that was heard of first is forgotten. They
// cannot be summed: in which order this node has heard of them says nothing, and one may be alive.
const keptStarts = 8

// acknowledged is what this node knows of the promises of others. The promises of a node's own process are no evidence
// against it, and may come here before it asks, by way of the leader: so starts are told apart. Methods are
// safe for concurrent use.
type acknowledged struct {
	mu      sync.Mutex
	starts  map[proto.NodeID]promises // the oldest first
	lost    map[proto.NodeID]*proto.LostEntries
	refuted map[proto.NodeID]*proto.LostEntries // see found
	changes uint64                              // since this process started
}

// note adds a promise.
func (a *acknowledged) note(id proto.NodeID, p promise) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.starts == nil {
		a.starts = map[proto.NodeID]promises{}
	}
	list := a.starts[id]
	at := slices.IndexFunc(list, func(q promise) bool { return q.start == p.start })
	switch {
	case at >= 0:
		sum := list[at].and(p)
		if sum == list[at] {
			return
		}
		list[at] = sum
	case p.start == 0:
		return // of nobody
	default:
		list = append(list, p)
	}
	a.starts[id] = list[max(0, len(list)-keptStarts):]
	a.changes++
}

// promises is what the starts of one node have promised.
type promises []promise

// before is what was promised before a start. The one that it is of must have been alive after these promises became
// known: otherwise some may be of a later one.
func (list promises) before(start uint64) (p promise) {
	for _, q := range list {
		if q.start != start {
			p = p.and(q)
		}
	}
	return p
}

// of is what a node has promised.
func (a *acknowledged) of(id proto.NodeID) promises {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.starts[id])
}

// found forgets that a node has lost entries: it has come back with them. What others then go on saying of that loss
// is not taken over again: two nodes would pass it to and fro, each a moment before it finds the node itself.
func (a *acknowledged) found(id proto.NodeID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.lost[id]; l != nil {
		delete(a.lost, id)
		if a.refuted == nil {
			a.refuted = map[proto.NodeID]*proto.LostEntries{}
		}
		a.refuted[id] = l
		a.changes++
	}
}

// lose notes that a node has lost entries; it reports whether that is news.
func (a *acknowledged) lose(l *proto.LostEntries) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if id := proto.NodeID(l.NodeId); a.lost[id] == nil {
		if a.lost == nil {
			a.lost = map[proto.NodeID]*proto.LostEntries{}
		}
		a.lost[id] = l
		a.changes++
		return true
	}
	return false
}

// keep forgets all nodes but some.
func (a *acknowledged) keep(member func(proto.NodeID) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	gone := func(id proto.NodeID) bool {
		if member(id) {
			return false
		}
		a.changes++
		return true
	}
	maps.DeleteFunc(a.starts, func(id proto.NodeID, _ promises) bool { return gone(id) })
	maps.DeleteFunc(a.lost, func(id proto.NodeID, _ *proto.LostEntries) bool { return gone(id) })
	maps.DeleteFunc(a.refuted, func(id proto.NodeID, _ *proto.LostEntries) bool { return !member(id) })
}

// all returns everything in the order of ids, and a number that grows with each change.
func (a *acknowledged) all() (known []*proto.Acknowledgement, lost []*proto.LostEntries, changes uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(a.starts)) {
		for _, p := range a.starts[id] {
			known = append(known, &proto.Acknowledgement{
				NodeId: string(id), Start: p.start, Term: p.term, Index: p.index, Committed: p.committed,
			})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(a.lost)) {
		lost = append(lost, a.lost[id])
	}
	return known, lost, a.changes
}

// add takes over what another node, or the file, says; of members only, if they are known.
func (a *acknowledged) add(known []*proto.Acknowledgement, lost []*proto.LostEntries, member func(proto.NodeID) bool) {
	for _, k := range known {
		if id := proto.NodeID(k.NodeId); member(id) {
			a.note(id, promise{k.Start, k.Term, k.Index, k.Committed})
		}
	}
	for _, l := range lost {
		if id := proto.NodeID(l.NodeId); member(id) && !a.isRefuted(id, l) {
			a.lose(l)
		}
	}
}

func (a *acknowledged) isRefuted(id proto.NodeID, l *proto.LostEntries) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.refuted[id]
	return was != nil && was.FoundUnix == l.FoundUnix && was.ToNodeId == l.ToNodeId && was.Term == l.Term && was.LastLogIndex == l.LastLogIndex
}

// acknowledgedFile is beside the log. It is evidence against others: without it, after a loss of power, there is less of
// that.
const acknowledgedFile = "acknowledged"
