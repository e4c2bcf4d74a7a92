package replication

import (
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Entries go ahead to followers while this node, which leads, is still writing them. Raft
// writes first and sends then, so that a lone write waits for two disks, one behind the
// other. Its author's thesis (10.2.1) lets the leader do both at once: it may send what it
// has not written, as long as it does not count itself before that.
//
// And Raft does not count anything here: what goes ahead is an ordinary AppendEntries that
// this node makes itself, as the nudge is, and whose answer Raft is not told of. It sends
// the entries again when they are written. A follower that has them by then, with
// their terms, writes nothing and says so at once. They are of this leader's term, in which
// nobody else gives out entries, and this node neither, should it end before it has
// written them: what has gone ahead is like any entry that was sent and not committed.
//
// That is a message more, with all entries in it. So it is sent only where it helps: to
// voters that have acknowledged everything before, and if a write of the log takes long enough.
const (
	// aheadFrom is how long a write of the log must take.
	aheadFrom = time.Millisecond
	// aheadBytes bounds what is sent twice.
	aheadBytes = 64 << 10
)

// WriteTime is how long a write of the log takes, smoothed over some.
type WriteTime struct{ nanos atomic.Int64 }

// Observe is told of each write, by one goroutine.
func (w *WriteTime) Observe(d time.Duration) {
	was := w.nanos.Load() // Raft's main loop is the only one that writes
	w.nanos.Store(was + (int64(d)-was)/8)
}

// Mean is how long a write takes.
func (w *WriteTime) Mean() time.Duration { return time.Duration(w.nanos.Load()) }

// Long reports whether writes take long.
func (w *WriteTime) Long() bool { return w.Mean() >= aheadFrom }

// Ahead sends entries that are about to be written, if that helps. It is called on Raft's
// main loop, and does not wait.
func (t *Transport) Ahead(log raft.LogStore, logs []*raft.Log) {
	if t.node.Raft() == nil || !t.cfg.WriteTime.Long() {
		return
	}
	// Zero until this node leads and has committed something.
	term := t.node.LeadsIn()
	if term == 0 || logs[0].Term != term || t.node.Raft().State() != raft.Leader || !mayGoAhead(logs) {
		return
	}
	var before raft.Log
	if err := log.GetLog(logs[0].Index-1, &before); err != nil {
		return
	}
	commit := t.node.Raft().CommitIndex()
	servers := t.node.Servers()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range servers {
		id, p := m.ID, t.peers[m.ID]
		if m.Suffrage != raft.Voter || p == nil || p.addr != m.Address || p.term != term || p.acked != before.Index || p.ahead {
			continue
		}
		p.ahead = true
		t.ended.Go(func() {
			t.sendAhead(id, m.Address, p, &raft.AppendEntriesRequest{
				Term: term, PrevLogEntry: before.Index, PrevLogTerm: before.Term, Entries: logs, LeaderCommitIndex: commit,
			})
		})
	}
}

// mayGoAhead reports whether entries are few enough, and commands: a configuration counts
// from where it stands in a log, and changes rarely.
func mayGoAhead(logs []*raft.Log) bool {
	size := 0
	for _, l := range logs {
		if l.Type != raft.LogCommand {
			return false
		}
		size += len(l.Data) + len(l.Extensions)
	}
	return size <= aheadBytes
}

func (t *Transport) sendAhead(id raft.ServerID, addr raft.ServerAddress, p *peerProgress, args *raft.AppendEntriesRequest) {
	args.RPCHeader = t.Header()
	var resp raft.AppendEntriesResponse
	err := t.Transport.AppendEntries(id, addr, args, &resp)
	t.mu.Lock()
	p.ahead = false
	t.mu.Unlock()
	if err == nil && resp.Success {
		t.wentAhead.Add(1)
		t.note(id, addr, args)
	}
}
