package apiserver

import (
	"time"

	"github.com/quorate/quorate/apiserver/objects/storage"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/watch"
)

// Store is what requests need of the replicated store: what objects are decided on and
// written to, and what the door and watches ask besides. *raftstore.Store and
// *memstore.Store satisfy it. All methods are safe for concurrent use.
type Store interface {
	storage.Interface
	// Watch returns a watcher of what concerns an interest in a table, behind revision
	// after; other changes do not wake it. The table need not exist. Errors:
	// mvcc.ErrCompacted.
	Watch(table string, after proto.Revision, interest mvcc.Interest) (*watch.Watcher, error)
	// Staleness is how long ago this node last knew that it was current: zero on
	// a confirmed leader.
	Staleness() time.Duration
	// Role is leader, follower, candidate, nonvoter or shutdown.
	Role() string
	// NodeName is that of this node.
	NodeName() string
}
