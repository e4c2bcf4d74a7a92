package membership

import (
	"context"

	"google.golang.org/grpc"

	"github.com/quorate/quorate/proto"
)

// Server is one line of the Raft configuration.
type Server struct {
	ID      proto.NodeID
	Address string // of the peer port, host:port
	Voter   bool
}

// Configuration is a Raft configuration and the index of the entry that set it.
type Configuration struct {
	Index   uint64
	Servers []Server
}

// Find returns the server with an id.
func (c Configuration) Find(id proto.NodeID) (Server, bool) {
	for _, s := range c.Servers {
		if s.ID == id {
			return s, true
		}
	}
	return Server{}, false
}

// Consensus is this node's Raft. The mutations work on the leader only; on any
// other node they fail with an error that wraps ErrNotLeader. They return when
// the change is committed, or with an error; an error other than ErrNotLeader
// and ErrConflict leaves open whether the change takes effect. All methods may
// be called concurrently, and before Bootstrap.
type Consensus interface {
	// Members returns the latest configuration, committed or not; an empty one
	// before there is any. It answers from memory.
	Members() Configuration
	// Committed returns the newest configuration that this node's state knows to be
	// committed, without its index; an empty one before there is any.
	Committed() Configuration
	// Leader returns the leader that this node knows of, or "".
	Leader() (id proto.NodeID, address string)
	// IsLeader says whether this node leads and an entry of its own term has
	// been committed.
	IsLeader() bool
	// HasState says whether there is a Raft log or a snapshot on disk.
	HasState() (bool, error)
	// Bootstrap writes the first configuration and makes this node start with
	// it. All servers must be given identical arguments. It fails when there is
	// state already. Durable when it returns nil. The cluster id becomes part of
	// the replicated state (the first leader proposes proto.Cluster); until it
	// is, Cluster reports the id given here.
	Bootstrap(servers []Server, cluster proto.ClusterID) error
	// AddNonvoter adds a server without a vote. For a server that is there
	// already, it changes the address and nothing else. prevIndex is the Index
	// of the configuration that the caller decided on: if another change came
	// first, the call fails with an error that wraps ErrConflict.
	AddNonvoter(ctx context.Context, id proto.NodeID, address string, prevIndex uint64) error
	// AddVoter adds a server with a vote, or gives a non-voter its vote, or
	// changes a voter's address. prevIndex as above.
	AddVoter(ctx context.Context, id proto.NodeID, address string, prevIndex uint64) error
	// DemoteVoter takes the vote away. prevIndex as above.
	DemoteVoter(ctx context.Context, id proto.NodeID, prevIndex uint64) error
	// RemoveServer takes a server out. prevIndex as above.
	RemoveServer(ctx context.Context, id proto.NodeID, prevIndex uint64) error
	// TransferLeadership makes the voter to the leader, or fails. membership
	// always names one. A transfer to a follower whose replication hangs can
	// wedge the leader for good, so every caller goes through Manager.Transfer.
	TransferLeadership(ctx context.Context, to proto.NodeID) error
	// Features returns the feature version that the cluster speaks, as this node's state
	// says, and the one that this node supports. It answers from memory.
	Features() (cluster, supported uint32)
	// RaiseFeature makes the cluster speak a feature version. prevIndex as above.
	RaiseFeature(ctx context.Context, version uint32, prevIndex uint64) error
	// StorageLimit is what the live keys may take in this node's state, in bytes; 0 if that is not bounded.
	// It answers from memory.
	StorageLimit() int64
	// LimitStorage bounds what the live keys take. prevIndex as above.
	LimitStorage(ctx context.Context, bytes int64, prevIndex uint64) error
	// Cluster returns the id of the cluster, "" before it is known.
	Cluster() proto.ClusterID
	// Status returns what this node knows of itself, without a quorum. It may
	// leave out name, addresses and members: Manager.LocalStatus fills them in.
	Status(ctx context.Context) *proto.NodeStatus
}

// KV is a set of small replicated tables of opaque bytes. Names of tables:
// see tables.go. All methods may be called concurrently.
type KV interface {
	// Put stores a value. With ifAbsent, it fails with an error that wraps
	// ErrExists when the key has one. When it returns nil the value is
	// committed and visible to this node's Get, and so is all that was
	// committed before it.
	Put(ctx context.Context, table, key string, value []byte, ifAbsent bool) error
	// Get returns the value in this node's state; it never waits. The result
	// must not be modified.
	Get(table, key string) ([]byte, bool)
	// Delete removes a key; deleting an absent one is not an error.
	Delete(ctx context.Context, table, key string) error
	// List returns a whole table of this node's state.
	List(table string) (map[string][]byte, error)
	// Changes returns a channel that is sent to after a table has changed in this
	// node's state, and once at the beginning, and a function that ends it. One wake-up
	// may stand for many changes.
	Changes(table string) (<-chan struct{}, func(), error)
}

// Peers gives connections to other nodes' peer ports (raftstore/peer.Host).
type Peers interface {
	// Conn returns the connection to a node, made on demand, shared, and owned
	// by Peers: the caller must not close it. With an id, no other node is
	// accepted at the address. With an empty id, any node is that has a peer
	// certificate, and the connection is kept per address.
	Conn(id proto.NodeID, address string) (*grpc.ClientConn, error)
	// Found notes that the member which the configuration has at configured was
	// found at address: Conn and Raft dial it there from then on, as long as the
	// configuration says the same. Equal addresses take the note back.
	Found(id proto.NodeID, configured, address string)
	// ForgetAddress closes the connection that was made to an address with an
	// empty id.
	ForgetAddress(address string)
	// Expel ends the connections of a node that was removed from the cluster.
	Expel(id proto.NodeID)
}
