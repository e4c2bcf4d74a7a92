package membership

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/proto"
)

// compareEvery is how often a leader compares the members' state hashes.
const compareEvery = 30 * time.Second

// compare checks, while this node leads, that the members' states are equal: for
// every index at which two of them have noted their rolling hash, the hashes are
// the same. A difference means that a state machine or a disk is broken; nothing
// can tell here which one is right, so it is reported, loudly, each time it is
// seen, and counted for the metrics.
func (m *Manager) compare(ctx context.Context) {
	for sleep(ctx, compareEvery, nil) == nil {
		if !m.raft.IsLeader() {
			continue
		}
		conf, err := m.raft.Members()
		if err != nil {
			continue
		}
		for _, d := range diverged(m.askAll(ctx, conf.Servers)) {
			m.divergences.Add(1)
			m.log.Error("STATE HASHES DIFFER: take a backup, then wipe the node that is wrong and let it join again", "difference", d)
		}
	}
}

// Divergences counts the differences between members' states that this node has
// seen as a leader. Anything but zero needs a person.
func (m *Manager) Divergences() int64 { return m.divergences.Load() }

// diverged returns a sentence for each index at which two members' hashes differ,
// at most one per pair of members.
func diverged(answers map[proto.NodeID]statusAnswer) []string {
	type note struct {
		node *proto.NodeStatus
		hash uint64
	}
	first := map[uint64]note{} // by index
	pairs := map[[2]string]bool{}
	var out []string
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		for _, h := range a.status.Hashes {
			other, ok := first[h.Applied]
			if !ok {
				first[h.Applied] = note{a.status, h.Hash}
				continue
			}
			if pair := [2]string{other.node.NodeId, a.status.NodeId}; other.hash != h.Hash && !pairs[pair] {
				pairs[pair] = true
				out = append(out, fmt.Sprintf("at index %d %s has %016x and %s has %016x", h.Applied, other.node.Name, other.hash, a.status.Name, h.Hash))
			}
		}
	}
	return out
}
