package apiserver

import (
	"context"
	"time"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/watch"
)

// Store is what the API needs of the replicated store. *raftstore.Store and
// *memstore.Store satisfy it. All methods are safe for concurrent use.
type Store interface {
	// Propose replicates one write and returns when this node has applied it. A
	// refused condition is a Result (Outcome), not an error. The Version of the
	// result is set if the write took effect. Errors: raftstore.ErrNoLeader (certainly
	// not written), raftstore.ErrUnknownOutcome, raftstore.ErrOverloaded,
	// raftstore.ErrTooLarge, raftstore.ErrClosed, and the context's.
	Propose(ctx context.Context, w *proto.Write) (mvcc.Result, error)
	// State is the local state: Applied, Floor, Table(name).Get / Range. It may be
	// replaced as a whole by a snapshot; take it once per request.
	State() *mvcc.State
	// Watch returns a watcher of what concerns an interest in a table, behind revision
	// after; other changes do not wake it. The table need not exist. Errors:
	// mvcc.ErrCompacted.
	Watch(table string, after proto.Revision, interest mvcc.Interest) (*watch.Watcher, error)
	// Published returns a channel that is sent to after entries were applied, whatever
	// they changed, and a function that ends it. Capacity one.
	Published() (<-chan struct{}, func())
	// Staleness is how long ago this node last knew that it was current: zero on
	// a confirmed leader.
	Staleness() time.Duration
	// Role is leader, follower, candidate, nonvoter or shutdown.
	Role() string
	// NodeID and NodeName of this node.
	NodeID() proto.NodeID
	NodeName() string
}
