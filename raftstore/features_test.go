package raftstore

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"

	"github.com/quorate/quorate/raftstore/exchange"
)

// nextFeature is what the release supports that comes after this one.
const nextFeature = mvcc.FeatureVersion + 1

// newRelease is a release that supports the next feature version, with which a second guard
// came. Those that are not named run this release.
func newRelease(cfg *Config, nodes ...proto.NodeID) {
	if !slices.Contains(nodes, cfg.Node) {
		return
	}
	cfg.TestHooks.Supports = nextFeature
	cfg.TestHooks.Needs = func(kind proto.Kind, m proto.Message) uint32 {
		if w, ok := m.(*proto.Write); ok && w.SecondGuard != nil {
			return nextFeature
		}
		return mvcc.Needs(kind, m)
	}
}

func newWrite() *proto.Write {
	w := write("k", "v")
	w.SecondGuard = &proto.Guard{Table: "t", Key: "k"}
	return w
}

// TestFeatureVersion upgrades a cluster node by node. What the newer release would
// write is not proposed before the cluster speaks it; when it does, a node that does not
// stops and stays out until it is upgraded.
func TestFeatureVersion(t *testing.T) {
	upgraded := []proto.NodeID{"a", "b"}
	c := newCluster(t, 3, func(cfg *Config) { newRelease(cfg, upgraded...) })
	if _, err := c.leader().Propose(c.ctx(), write("k", "v")); err != nil {
		t.Fatal(err)
	}
	c.makeLeader("a")
	for _, id := range upgraded {
		if _, err := c.nodes[id].Propose(c.ctx(), newWrite()); !errors.Is(err, ErrFeature) {
			t.Errorf("%s proposes what the cluster does not speak: %v", id, err)
		}
		if st := c.nodes[id].Status(); st.FeatureVersion != nextFeature || st.ClusterFeatureVersion != mvcc.FeatureVersion {
			t.Errorf("%s says %v", id, st)
		}
	}
	// An upgraded leader refuses it as well, no matter who sends it.
	w := newWrite()
	if r := c.send("b", "a", proto.KindWrite, w); r.Error != proto.ProposeError_PROPOSE_INVALID {
		t.Errorf("the leader answers %v", r)
	}

	a, old := c.nodes["a"], c.nodes["c"]
	index, _ := a.Members()
	for want, f := range map[error]func() error{
		ErrConfigurationChanged: func() error { return a.RaiseFeature(c.ctx(), nextFeature, index+1) },
		ErrTooOld:               func() error { return a.RaiseFeature(c.ctx(), nextFeature+1, index) },
		ErrNotLeader:            func() error { return c.nodes["b"].RaiseFeature(c.ctx(), nextFeature, index) },
	} {
		if err := f(); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	// Nothing but the members' word guards this: see package membership.
	must.OK(t, a.RaiseFeature(c.ctx(), nextFeature, index))
	if err := a.RaiseFeature(c.ctx(), nextFeature, index); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := c.ended(old); !errors.Is(err, ErrTooOld) {
		t.Fatalf("the old release ends with %v", err)
	}
	for _, id := range upgraded {
		c.eventually(string(id)+" may use it", func() error {
			_, err := c.nodes[id].Propose(c.ctx(), newWrite())
			return err
		})
	}

	// The same release again comes to the same entry. The newer one goes on from there.
	c.close(old)
	c.open(old)
	if err := c.ended(old); !errors.Is(err, ErrTooOld) {
		t.Fatalf("the old release, started again, ends with %v", err)
	}
	c.close(old)
	upgraded = append(upgraded, "c")
	c.open(old)
	must.OK(t, old.WaitApplied(c.ctx(), a.Applied()))
	if _, err := old.Propose(c.ctx(), newWrite()); err != nil {
		t.Error(err)
	}

	// There is no way back: a state of the newer version is not opened by the old release.
	c.close(old)
	cfg := Config{Dir: old.dir, Node: old.id, Transport: a.cfg.Transport, Peers: a.cfg.Peers, Fatal: func(error) {}}
	if s, err := Open(cfg); !errors.Is(err, ErrTooOld) {
		t.Errorf("a downgraded node opens: %v, %v", s, err)
	}
}

// TestRaisedJustNow: what was proposed behind the entry that raises the version comes to a leader
// that has not applied that entry yet: it waits.
func TestRaisedJustNow(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { newRelease(cfg, "a", "b", "c") })
	c.makeLeader("a")
	a := c.nodes["a"]
	index, _ := a.Members()
	early := newWrite()
	frame, err := proto.Encode(proto.KindWrite, early)
	must.OK(t, err)
	if err := a.features.checkEntry(frame); !errors.Is(err, ErrFeature) {
		t.Errorf("the leader takes what nobody says that the cluster speaks: %v", err)
	}
	early.Since = uint64(a.Applied()) + 1
	if frame, err = proto.Encode(proto.KindWrite, early); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() { answered <- a.features.checkEntry(frame) }()
	must.OK(t, a.RaiseFeature(c.ctx(), nextFeature, index))
	if err := <-answered; err != nil {
		t.Errorf("the leader refuses what it will soon allow: %v", err)
	}
}

// TestLateNodeLearnsTheVersion: a node whose state does not know yet what the cluster speaks
// proposes what it speaks nevertheless: it asks a quorum before it refuses.
func TestLateNodeLearnsTheVersion(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { newRelease(cfg, "a", "b", "c", "d") })
	leader := c.leader()
	index, _ := leader.Members()
	must.OK(t, leader.RaiseFeature(c.ctx(), nextFeature, index))
	late := c.add("d")
	must.OK(t, leader.AddNonvoter(c.ctx(), "d", late.addr, 0))
	c.eventually("it is told of the cluster", func() error {
		if id, _ := late.Leader(); id == "" {
			return errors.New("it knows no leader")
		}
		return nil
	})
	if _, err := late.Propose(c.ctx(), newWrite()); err != nil {
		t.Error(err)
	}
}

// TestUnknownField: a write with a field of a later release is not proposed, not taken by
// the leader from anybody, and ends every node if it comes into the log nevertheless.
func TestUnknownField(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.makeLeader("a")
	later := func() *proto.Write {
		w := write("k", "v")
		w.Guard = &proto.Guard{Table: "t", Key: "k"}
		w.Guard.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1))
		return w
	}
	for id, m := range c.nodes {
		if _, err := m.Propose(c.ctx(), later()); !errors.Is(err, mvcc.ErrInvalid) {
			t.Errorf("%s proposes it: %v", id, err)
		}
	}
	if r := c.send("b", "a", proto.KindWrite, later()); r.Error != proto.ProposeError_PROPOSE_INVALID {
		t.Errorf("the leader answers %v", r)
	}
	compact := &proto.Compact{Floor: 1}
	compact.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1))
	if r := c.send("b", "a", proto.KindCompact, compact); r.Error != proto.ProposeError_PROPOSE_INVALID {
		t.Errorf("the leader answers %v to a Compact", r)
	}
	if _, err := c.nodes["b"].Propose(c.ctx(), write("k", "w")); err != nil {
		t.Fatalf("the cluster goes on: %v", err)
	}

	frame, err := proto.Encode(proto.KindWrite, later())
	must.OK(t, err)
	c.nodes["a"].node.Raft().Apply(frame, time.Second)
	for id, m := range c.nodes {
		if err := c.ended(m); !errors.Is(err, proto.ErrUnknownKind) {
			t.Errorf("%s ends with %v", id, err)
		}
	}
}

// send has a node forward an entry to the leader, without a look at it.
func (c *cluster) send(from, to proto.NodeID, kind proto.Kind, m proto.Message) *proto.ProposeResponse {
	c.t.Helper()
	frame, err := proto.Encode(kind, m)
	must.OK(c.t, err)
	s, leader := c.nodes[from], c.nodes[to]
	call := exchange.Call{Request: proto.PeerRequest{Term: leader.node.Raft().CurrentTerm(), Request: &proto.PeerRequest_Propose{Propose: frame}}}
	must.OK(c.t, s.streams.Ask(c.ctx(), to, leader.addr, &call))
	return call.Response.GetPropose()
}

// ended is what a node would have ended its process with.
func (c *cluster) ended(m *testNode) error {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx(), 20*time.Second)
	defer cancel()
	select {
	case err := <-m.fatal:
		m.dead = true
		return err
	case <-ctx.Done():
		return errors.New("it goes on")
	}
}
