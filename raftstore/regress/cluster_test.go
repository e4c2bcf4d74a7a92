package regress

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/must"
)

// virtual runs f in a bubble with a virtual clock. The sleep at the end gives
// the goroutines of stopped nodes time to run into their last timers: time in a
// bubble stands still once f has returned.
func virtual(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute)
		f(t)
	})
}

// pitfall reports that the library no longer behaves as a pitfall test expects.
func pitfall(t *testing.T, stillThere bool, format string, args ...any) {
	t.Helper()
	if !stillThere {
		t.Errorf("hashicorp/raft no longer shows this pitfall: "+format, args...)
	}
}

// recorder is a state machine that remembers every command by its log index,
// so that two nodes can be compared entry by entry.
type recorder struct {
	mu       sync.Mutex
	entries  map[uint64]string
	restores int
	// everApplied is what Apply was given, also what a snapshot has replaced since.
	everApplied map[uint64]string
	// restored, if set, is called after each Restore with their number so far.
	restored func(n int)
}

func (r *recorder) Apply(l *raft.Log) any {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries[l.Index] = string(l.Data)
	if r.everApplied == nil {
		r.everApplied = map[uint64]string{}
	}
	r.everApplied[l.Index] = string(l.Data)
	return nil
}

func (r *recorder) Snapshot() (raft.FSMSnapshot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	data, err := json.Marshal(r.entries)
	return snapshot(data), err
}

func (r *recorder) Restore(in io.ReadCloser) error {
	entries := map[uint64]string{}
	if err := json.NewDecoder(in).Decode(&entries); err != nil {
		return err
	}
	r.mu.Lock()
	r.entries = entries
	r.restores++
	n, hook := r.restores, r.restored
	r.mu.Unlock()
	if hook != nil {
		hook(n)
	}
	return nil
}

// String prints the commands in index order (encoding/json and fmt sort keys).
func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprint(r.entries)
}

type snapshot []byte

func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(s); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

func (s snapshot) Release() {}

// transport is all that raft looks for in a Transport, optional parts included.
// A wrapper that forgets RequestPreVote turns pre-vote off with one log line.
type transport interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
}

// faultyNet is the sending side of one node, with faults per peer.
type faultyNet struct {
	transport
	mu    sync.Mutex
	links map[raft.ServerID]*link
}

// link is what happens on the way to one peer. The zero value is a good link.
type link struct {
	cut bool // everything sent fails at once
	// lateEntries delays AppendEntries that carry entries until it is closed;
	// heartbeats pass. Stands for a slow follower or a lost segment.
	lateEntries chan struct{}
	// lateAnswer delivers an AppendEntries but keeps its answer back until it
	// is closed, and loses what is sent meanwhile. Stands for answers that lie
	// in the socket buffer of a paused process.
	lateAnswer chan struct{}
	kept       chan struct{} // closed when an answer is being kept back
}

var errCut = errors.New("link is cut")

func (n *faultyNet) link(peer raft.ServerID) link {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.links[peer]; l != nil {
		return *l
	}
	return link{}
}

func (n *faultyNet) change(peer raft.ServerID, f func(*link)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.links[peer] == nil {
		n.links[peer] = &link{}
	}
	f(n.links[peer])
}

// AppendEntriesPipeline is refused, so that every RPC passes through
// AppendEntries, where the faults are.
func (n *faultyNet) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (n *faultyNet) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	l := n.link(id)
	if l.cut {
		return errCut
	}
	if l.lateEntries != nil && len(req.Entries) > 0 {
		<-l.lateEntries
	}
	err := n.transport.AppendEntries(id, to, req, resp)
	if l.lateAnswer != nil {
		n.change(id, func(l *link) {
			if !l.cut {
				l.cut = true
				close(l.kept)
			}
		})
		<-l.lateAnswer
	}
	return err
}

func (n *faultyNet) RequestVote(id raft.ServerID, to raft.ServerAddress, req *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if n.link(id).cut {
		return errCut
	}
	return n.transport.RequestVote(id, to, req, resp)
}

func (n *faultyNet) RequestPreVote(id raft.ServerID, to raft.ServerAddress, req *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if n.link(id).cut {
		return errCut
	}
	return n.transport.RequestPreVote(id, to, req, resp)
}

func (n *faultyNet) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if n.link(id).cut {
		return errCut
	}
	return n.transport.InstallSnapshot(id, to, req, resp, data)
}

func (n *faultyNet) TimeoutNow(id raft.ServerID, to raft.ServerAddress, req *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	if n.link(id).cut {
		return errCut
	}
	return n.transport.TimeoutNow(id, to, req, resp)
}

type node struct {
	id    raft.ServerID
	addr  raft.ServerAddress
	raft  *raft.Raft
	net   *faultyNet
	fsm   *recorder
	logs  *raft.InmemStore // the log and the stable store
	snaps *memorySnapshots
	// open starts raft on what the stores hold.
	open func() (*raft.Raft, error)
}

// lastEntry returns the newest entry of the node's log.
func (n *node) lastEntry(t *testing.T) raft.Log {
	t.Helper()
	last, err := n.logs.LastIndex()
	must.OK(t, err)
	return n.entry(t, last)
}

func (n *node) entry(t *testing.T, index uint64) raft.Log {
	t.Helper()
	var l raft.Log
	if err := n.logs.GetLog(index, &l); err != nil {
		t.Fatalf("entry %d of %s: %v", index, n.id, err)
	}
	return l
}

type cluster struct {
	t     *testing.T
	nodes map[raft.ServerID]*node
	// connect joins the in-memory transports; a node's shutdown parts its own.
	connect func()
}

// setup says how a cluster differs from three voters with the library's
// default configuration on an in-memory network.
type setup struct {
	nonvoter raft.ServerID
	// late is no member, and has no state, until the test adds it.
	late      raft.ServerID
	configure func(id raft.ServerID, c *raft.Config)
	// logStore wraps the node's log.
	logStore func(id raft.ServerID, s *raft.InmemStore) raft.LogStore
	// network replaces the in-memory transport.
	network func(id raft.ServerID) transport
	// wrap goes around the transport, whichever it is.
	wrap func(id raft.ServerID, t transport) transport
}

func start(t *testing.T, s setup, ids ...raft.ServerID) *cluster {
	t.Helper()
	c := &cluster{t: t, nodes: map[raft.ServerID]*node{}}
	memory := map[raft.ServerID]*raft.InmemTransport{}
	var members raft.Configuration
	for _, id := range ids {
		n := &node{
			id:   id,
			net:  &faultyNet{links: map[raft.ServerID]*link{}},
			fsm:  &recorder{entries: map[uint64]string{}},
			logs: raft.NewInmemStore(),
			// Not FileSnapshotStore: it names snapshots by the millisecond,
			// and virtual time can stand still while several are installed.
			snaps: &memorySnapshots{},
		}
		if s.network != nil {
			n.net.transport = s.network(id)
		} else {
			_, tr := raft.NewInmemTransportWithTimeout(raft.ServerAddress(id), 2*time.Second)
			memory[id], n.net.transport = tr, tr
		}
		if s.wrap != nil {
			n.net.transport = s.wrap(id, n.net.transport)
		}
		n.addr = n.net.LocalAddr()
		c.nodes[id] = n
		suffrage := raft.Voter
		if id == s.nonvoter {
			suffrage = raft.Nonvoter
		}
		if id != s.late {
			members.Servers = append(members.Servers, raft.Server{Suffrage: suffrage, ID: id, Address: n.addr})
		}
	}
	c.connect = func() {
		for from, x := range memory {
			for to, y := range memory {
				if from != to {
					x.Connect(raft.ServerAddress(to), y)
				}
			}
		}
	}
	c.connect()
	for _, id := range ids {
		n := c.nodes[id]
		conf := raft.DefaultConfig()
		conf.LocalID = id
		conf.Logger = hclog.NewNullLogger()
		if s.configure != nil {
			s.configure(id, conf)
		}
		var logs raft.LogStore = n.logs
		if s.logStore != nil {
			logs = s.logStore(id, n.logs)
		}
		if id != s.late {
			must.OK(t, raft.BootstrapCluster(conf, logs, n.logs, n.snaps, n.net, members))
		}
		n.open = func() (*raft.Raft, error) {
			return raft.NewRaft(conf, n.fsm, logs, n.logs, n.snaps, n.net)
		}
		var err error
		if n.raft, err = n.open(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *cluster) stop() {
	for _, n := range c.nodes {
		if err := n.raft.Shutdown().Error(); err != nil {
			c.t.Errorf("shutdown of %s: %v", n.id, err)
		}
	}
	for _, n := range c.nodes {
		// raft.NetworkTransport's Close leaves inbound streams open.
		if tr, ok := n.net.transport.(interface{ CloseStreams() }); ok {
			tr.CloseStreams()
		}
	}
}

// leader waits until one of the given nodes (all, if none is named) leads.
func (c *cluster) leader(among ...raft.ServerID) *node {
	c.t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for id, n := range c.nodes {
			if n.raft.State() == raft.Leader && (len(among) == 0 || slices.Contains(among, id)) {
				return n
			}
		}
	}
	c.t.Fatalf("no leader among %v", among)
	return nil
}

// lead makes one node the leader and waits until it has committed an entry in
// its own term.
func (c *cluster) lead(id raft.ServerID) *node {
	c.t.Helper()
	if l := c.leader(); l.id != id {
		must.OK(c.t, l.raft.LeadershipTransferToServer(id, c.nodes[id].addr).Error())
	}
	l := c.leader(id)
	must.OK(c.t, l.raft.Barrier(5*time.Second).Error())
	return l
}

// part cuts (or heals) all links between two sides.
func (c *cluster) part(cut bool, one, other []raft.ServerID) {
	for _, a := range one {
		for _, b := range other {
			c.nodes[a].net.change(b, func(l *link) { l.cut = cut })
			c.nodes[b].net.change(a, func(l *link) { l.cut = cut })
		}
	}
}

func (c *cluster) write(n *node, data string) {
	c.t.Helper()
	if err := n.raft.Apply([]byte(data), time.Second).Error(); err != nil {
		c.t.Fatalf("write %q on %s: %v", data, n.id, err)
	}
}

// confirm is the quorum round of our read path in miniature (cure): ask all other
// voters for their current term NOW; a majority, the leader included, must know
// no newer term. In raftstore the question travels by gRPC; here it is a call
// that a cut link prevents.
func (c *cluster) confirm(n *node) error {
	term := n.raft.CurrentTerm()
	if n.raft.State() != raft.Leader {
		return raft.ErrNotLeader
	}
	members := n.raft.GetConfiguration()
	if err := members.Error(); err != nil {
		return err
	}
	voters, answers := 0, 1 // the leader answers for itself
	for _, s := range members.Configuration().Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		peer := c.nodes[s.ID]
		if s.ID == n.id || n.net.link(s.ID).cut || peer.net.link(n.id).cut {
			continue
		}
		if peer.raft.CurrentTerm() > term {
			return fmt.Errorf("%s knows a newer term: %w", s.ID, raft.ErrNotLeader)
		}
		answers++
	}
	if answers <= voters/2 {
		return fmt.Errorf("%d of %d voters answered: %w", answers, voters, raft.ErrNotLeader)
	}
	if n.raft.State() != raft.Leader || n.raft.CurrentTerm() != term {
		return raft.ErrNotLeader
	}
	return nil
}
