package replication

import "github.com/hashicorp/raft"

// Progress is what a peer has been told, for tests.
type Progress struct {
	Address              raft.ServerAddress
	Term                 uint64
	Acked, Commit, Waits uint64 // indexes: see peerProgress
	Busy                 bool
}

// Progress returns what a peer has been told. For tests.
func (t *Transport) Progress(id raft.ServerID) Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[id]
	if p == nil {
		return Progress{}
	}
	return Progress{Address: p.addr, Term: p.term, Acked: p.acked, Commit: p.commit, Waits: p.waits, Busy: p.busy}
}

// SetProgress has the transport believe that a peer has been told this. For tests.
func (t *Transport) SetProgress(id raft.ServerID, p Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.peers[id] = &peerProgress{addr: p.Address, term: p.Term, acked: p.Acked, commit: p.Commit, waits: p.Waits}
}
