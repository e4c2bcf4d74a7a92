package membership

import "errors"

// Returned by implementations of Consensus and KV, possibly wrapped.
var (
	// ErrNotLeader is returned when this node does not lead; nothing was changed.
	ErrNotLeader = errors.New("not the leader")
	// ErrConflict is returned when another configuration change came first;
	// nothing was changed.
	ErrConflict = errors.New("the configuration has changed meanwhile")
	// ErrUnknownOutcome is returned when the change or write may take effect, or has.
	ErrUnknownOutcome = errors.New("the outcome of the write is unknown")
	// ErrExists is returned by KV.Put with ifAbsent when the key has a value.
	ErrExists = errors.New("exists already")
)

// Returned by this package.
var (
	// ErrStateLost is returned by Run when node.json says that the node belongs
	// to a cluster, but its Raft state is gone. A voter that has forgotten its
	// vote must not take part again under the same id.
	ErrStateLost = errors.New("the Raft state of this node is gone; move the whole data directory away, remove the old member, and join again as a new node")
	// ErrIdentityLost is returned by LoadIdentity when a directory has Raft state, but
	// no node.json. Under a new id the node would be a stranger to its own cluster.
	ErrIdentityLost = errors.New("node.json is gone, and the Raft state beside it belongs to the node that it named; " +
		"remove the old member ('quorate member remove'), move the whole data directory away, and let the node join again")
	// ErrOtherCluster is returned when a node belongs to another cluster.
	ErrOtherCluster = errors.New("belongs to another cluster")
	// ErrRemoved is returned to a node that was removed from the cluster and says hello or
	// asks to join under its old id; and by Run and CheckRemoved on that node.
	ErrRemoved = errors.New("this node was removed from the cluster; stop it, and destroy or wipe its data directory (with an empty one it joins as a new node)")
	// ErrTooOld is returned to a node that asks to join and supports less than the cluster
	// speaks.
	ErrTooOld = errors.New("this node's release is too old for the cluster; install the release that the members run, and start it again")
	// ErrNoLeader is returned when no leader was found in time.
	ErrNoLeader = errors.New("the cluster has no leader at the moment")
	// ErrNoQuorum is returned for a change while too few voters answer to elect a leader;
	// the text says which do not.
	ErrNoQuorum = errors.New("the cluster has no quorum")
	// ErrNotMember is returned to a node that asks for a change and is no member: it was
	// removed. Another node can be asked.
	ErrNotMember = errors.New("is not a member of this cluster")
	// ErrNotFound is returned when no member, or no token, has that id or name.
	ErrNotFound = errors.New("not found")
	// ErrAmbiguous is returned when more than one member has that name.
	ErrAmbiguous = errors.New("several members have this name; use the id")
	// ErrRefused is wrapped by every refusal of a guard; the text says which.
	ErrRefused = errors.New("refused")
	// ErrForbidden is wrapped by every refusal of a user who may not do what was asked for.
	ErrForbidden = errors.New("forbidden")
	// ErrToken is returned for a join token that is malformed, unknown, expired,
	// used up or wrong. It does not say which to the one that presents it.
	ErrToken = errors.New("the join token is not valid")
	// ErrPin is returned when a server's CA is not the one that the join token
	// names. The token's secret was not sent.
	ErrPin = errors.New("the server's CA is not the one that the join token names")
)
