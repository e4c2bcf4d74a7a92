package disk

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"
)

// The keys under which raft keeps its vote.
var (
	voteTerm      = []byte("LastVoteTerm")
	voteCandidate = []byte("LastVoteCand")
)

// heldTerm is the first half of a vote that raft is about to store.
//
// Raft sets the term of its vote, then the candidate, and answers after both. With
// the power gone in between, the term would be on disk with the candidate of the vote
// before: that one would be answered with yes, as if it asked again, without a look
// at its log. So the term waits in memory for its candidate, and both go to disk in
// one transaction. A process that ends before has not voted, and has told nobody that
// it has. A term whose candidate never comes is not stored at all.
//
// CurrentTerm is not part of it: raft sets that on its own, and it is durable when
// SetUint64 returns.
type heldTerm struct {
	mu    sync.Mutex
	value []byte // nil if none is held
}

func (h *heldTerm) get() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.value
}

func (h *heldTerm) set(value []byte) {
	h.mu.Lock()
	h.value = value
	h.mu.Unlock()
}

// Set implements raft.StableStore, but LastVoteTerm becomes durable with LastVoteCand
// only, which must be set next: see heldTerm. What was set is read at once.
func (l *Log) Set(key, value []byte) error {
	switch {
	case bytes.Equal(key, voteTerm):
		l.vote.set(bytes.Clone(value))
		return nil
	case bytes.Equal(key, voteCandidate):
		return l.setVote(value)
	}
	return l.set("set "+string(key), func() error { return l.backend.Set(key, value) })
}

func (l *Log) setVote(candidate []byte) error {
	pairs := []keyValue{{voteCandidate, candidate}}
	term := l.vote.get()
	if term != nil {
		pairs = append(pairs, keyValue{voteTerm, term})
	}
	if err := l.set("set the vote", func() error { return l.backend.SetAll(pairs...) }); err != nil {
		return err
	}
	l.vote.set(nil)
	return nil
}

// SetUint64 implements raft.StableStore; see Set.
func (l *Log) SetUint64(key []byte, value uint64) error {
	if bytes.Equal(key, voteTerm) {
		return l.Set(key, binary.BigEndian.AppendUint64(nil, value))
	}
	return l.set("set "+string(key), func() error { return l.backend.SetUint64(key, value) })
}

// Get implements raft.StableStore.
func (l *Log) Get(key []byte) ([]byte, error) {
	if bytes.Equal(key, voteTerm) {
		if held := l.vote.get(); held != nil {
			return bytes.Clone(held), nil
		}
	}
	b, err := l.backend.Get(key)
	return b, l.checked(err)
}

// GetUint64 implements raft.StableStore.
func (l *Log) GetUint64(key []byte) (uint64, error) {
	if bytes.Equal(key, voteTerm) {
		if held := l.vote.get(); len(held) == 8 {
			return binary.BigEndian.Uint64(held), nil
		} else if held != nil {
			return 0, fmt.Errorf("%s has %d bytes", key, len(held))
		}
	}
	v, err := l.backend.GetUint64(key)
	return v, l.checked(err)
}
