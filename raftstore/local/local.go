// Package local is a node as the parts of its store see it: its Raft, who leads, the members
// and how to reach them, and how long the store is open.
package local

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"

	"github.com/quorate/quorate/proto"
	storeerrors "github.com/quorate/quorate/raftstore/errors"
)

// Peers is what a store needs of the peer port.
type Peers interface {
	// Conn returns the shared connection to a node. It does not wait.
	Conn(id proto.NodeID, addr string) (*grpc.ClientConn, error)
	// Refused makes a new dial and reports whether nothing listens there.
	Refused(ctx context.Context, addr string) bool
	// WatchConn keeps a connection to a node until ctx ends, and calls lost each
	// time it breaks after it was up, and if it does not come up in the first place.
	WatchConn(ctx context.Context, id proto.NodeID, addr string, lost func())
	// Offer gives a node, until ctx ends, a way to ask this one without a dial of its
	// own; Conn on that node takes it when its dial fails. It returns when ctx ends.
	Offer(ctx context.Context, id proto.NodeID, addr string)
}

// ErrNotCompared refuses what Raft relies on: see raftstore's DESIGN.md, "Restored directories".
var ErrNotCompared = errors.New("this node has not yet compared with that one what it has acknowledged")

// RetryEvery bounds how long a change of leader can go unnoticed.
const RetryEvery = 20 * time.Millisecond

// NoRetry keeps gRPC from moving a stream to another connection by itself, with
// everything that was sent on it: what to send again, and to whom, is decided by
// who asked. gRPC gives up retries when what it would have to send again is more
// than this, so from the first message on.
var NoRetry = grpc.MaxRetryRPCBufferSize(0)

// Deliverer hands a request to this node's own Raft as long as it is wanted: see
// peer.Transport. A store on a transport without it has no fast failover.
type Deliverer interface {
	Deliver(ctx context.Context, req any, wanted func() bool) bool
	DeliverAtOnce(req any) bool
}

// Server is a member of the Raft configuration.
type Server struct {
	ID      proto.NodeID
	Address string
	Voter   bool
}

// Members are the servers of a configuration.
func Members(servers []raft.Server) (all []Server) {
	for _, m := range servers {
		all = append(all, Server{ID: proto.NodeID(m.ID), Address: string(m.Address), Voter: m.Suffrage == raft.Voter})
	}
	return all
}

// Node is this node. All methods are safe for concurrent use.
type Node struct {
	ID     proto.NodeID
	Peers  Peers
	Logger *slog.Logger
	Leadership

	raft   atomic.Pointer[raft.Raft]
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{}
	tasks  sync.WaitGroup
}

// New returns a node without a Raft.
func New(id proto.NodeID, peers Peers, logger *slog.Logger) *Node {
	n := &Node{ID: id, Peers: peers, Logger: logger, Leadership: Leadership{changed: make(chan struct{})}, ended: make(chan struct{})}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n
}

// SetRaft is called once, when Raft has been made. Raft may have called what it was given before.
func (n *Node) SetRaft(r *raft.Raft) { n.raft.Store(r) }

// Raft is nil until it has been made.
func (n *Node) Raft() *raft.Raft { return n.raft.Load() }

// Context ends when the store begins to close.
func (n *Node) Context() context.Context { return n.ctx }

// Close ends the context. It does not wait.
func (n *Node) Close() { n.cancel() }

// Ended is closed when Raft has ended.
func (n *Node) Ended() chan struct{} { return n.ended }

// Start runs a task that ends with the context; Wait waits for it.
func (n *Node) Start(task func()) { n.tasks.Go(task) }

// Wait waits for all tasks.
func (n *Node) Wait() { n.tasks.Wait() }

// Await waits for a future of Raft, but not longer than Raft lives: when it
// shuts down it drops the committed batches that wait for the state machine,
// and never answers their futures.
func (n *Node) Await(f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-n.ended:
		return raft.ErrRaftShutdown
	}
}

// Do runs f, which cannot be cancelled, in a goroutine of its own. Raft may
// end without an answer to it (see Await).
func (n *Node) Do(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errors.Join(storeerrors.ErrUnknownOutcome, context.Cause(ctx))
	case <-n.ended:
		return errors.Join(storeerrors.ErrUnknownOutcome, storeerrors.ErrClosed)
	}
}

// Servers are those of the newest configuration that this node knows; it may not be committed.
func (n *Node) Servers() []raft.Server { return n.Raft().GetConfiguration().Configuration().Servers }

// Members are the servers of the newest configuration that this node knows; it may not be committed.
func (n *Node) Members() []Server { return Members(n.Servers()) }

// Address returns the address of a member in the configuration.
func (n *Node) Address(id raft.ServerID) (addr raft.ServerAddress, ok bool) {
	for _, m := range n.Servers() {
		if m.ID == id {
			return m.Address, true
		}
	}
	return "", false
}

// IsMember reports whether a node is in the configuration.
func (n *Node) IsMember(id proto.NodeID) bool {
	return slices.ContainsFunc(n.Servers(), func(m raft.Server) bool { return m.ID == raft.ServerID(id) })
}

// Leads reports whether Raft leads in a term, as far as it knows now.
func (n *Node) Leads(term uint64) bool {
	r := n.Raft()
	return r.State() == raft.Leader && r.CurrentTerm() == term
}

// IsRaftsLeader reports whether Raft leads, also while it is being made.
func (n *Node) IsRaftsLeader() bool {
	r := n.Raft()
	return r != nil && r.State() == raft.Leader
}

// OtherLeader is the leader that this node follows; it is empty while there is none, or this node leads.
func (n *Node) OtherLeader() (raft.ServerAddress, raft.ServerID) {
	addr, id := n.Raft().LeaderWithID()
	if id == raft.ServerID(n.ID) {
		return "", ""
	}
	return addr, id
}

// Wake sends to a channel of capacity one if nothing is in it.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
