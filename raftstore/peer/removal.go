package peer

import (
	"errors"
	"fmt"

	"github.com/quorate/quorate/proto"
)

// ErrRemoved is returned for a stream or a call of a node that was removed from the
// cluster. Its certificate is still signed by a peer CA, and nothing but this takes
// back what that lets it do.
//
// Only ids that are known to be removed are refused, not all that are unknown: a node
// whose configuration lags must take the messages of a leader that was added since.
var ErrRemoved = errors.New("the caller was removed from the cluster")

func (h *Host) checkRemoved(id proto.NodeID) error {
	if h.cfg.Removed(id) {
		return fmt.Errorf("%w: node %s; stop it, and destroy or wipe its data directory", ErrRemoved, id)
	}
	return nil
}

// Expel closes the connections on which a node can ask this one something: its Raft
// streams, its calls, and what was offered to it; and those for calls to it. It is for
// when the node's removal is known here, after Config.Removed has become true for it;
// from then on the node can say Hello, ask to Join, and be refused.
//
// Raft streams that this node has dialled stay: nothing comes on them but answers, and
// the last thing that they carry is the configuration without the node, by which it
// learns of its removal.
func (h *Host) Expel(id proto.NodeID) {
	h.forget(id)
	h.mu.Lock()
	var offered []*inbound
	for c := range h.offered {
		if c.node == id {
			offered = append(offered, c)
		}
	}
	h.mu.Unlock()
	h.conns.expel(id)
	for _, c := range offered {
		c.Close()
	}
}

// expel closes the established connections of a node. Their goroutines see the error
// and release the tickets.
func (l *connLimiter) expel(id proto.NodeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for t := range l.established {
		if t.node == id {
			t.conn.Close()
		}
	}
}
