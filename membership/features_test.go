package membership

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/proto"
)

// feature is what a machine's cluster speaks.
func (mc *machine) feature() uint32 {
	cluster, _ := fakeRaft{mc}.Features()
	return cluster
}

// said reports whether a machine has logged something.
func (mc *machine) said(text string) bool {
	mc.w.mu.Lock()
	defer mc.w.mu.Unlock()
	for _, line := range mc.logs {
		if strings.Contains(line, text) {
			return true
		}
	}
	return false
}

// TestRaiseFeatures upgrades a cluster of three and a non-voter, node by node: it speaks
// the newer version when, and only when, all of them support it, and no older node gets
// in after that.
func TestRaiseFeatures(t *testing.T) {
	w := newWorld(t)
	names := []string{"a", "b", "c", "x"}
	machines := make([]*machine, len(names))
	for i, name := range names {
		machines[i] = w.machine(name)
	}
	start := func(mc *machine, supports uint32) {
		w.stop(mc)
		w.mu.Lock()
		mc.supports = supports
		w.mu.Unlock()
		w.start(mc, func(o *Options) {
			for _, other := range machines[:3] {
				o.Join = append(o.Join, other.address)
			}
			if o.BootstrapExpect = 3; mc.name == "x" {
				o.BootstrapExpect, o.NonVoter = 0, true
			}
		})
	}
	for _, mc := range machines {
		start(mc, 1)
	}
	for _, mc := range machines {
		select {
		case <-mc.node.Formed():
		case <-time.After(15 * time.Second):
			t.Fatalf("%s is in no cluster", mc.name)
		}
	}
	leader := func() *machine {
		for _, mc := range machines {
			if mc.up && (fakeRaft{mc}).IsLeader() {
				return mc
			}
		}
		return nil
	}
	// The voters first; the non-voter applies entries too.
	for _, mc := range machines[:3] {
		start(mc, 3)
	}
	w.await("the leader waits for x", func() bool {
		l := leader()
		return l != nil && l.said("supports feature version 1")
	})
	w.stop(machines[3])
	w.await("the leader waits for x, which does not answer", func() bool {
		l := leader()
		return l != nil && l.said("does not say what it supports")
	})
	if got := machines[0].feature(); got != 1 {
		t.Fatalf("the cluster speaks %d before all support it", got)
	}
	// Not what most support, but what all do.
	start(machines[3], 2)
	w.await("the cluster speaks 2", func() bool { return machines[0].feature() == 2 })
	start(machines[3], 3)
	w.await("the cluster speaks 3", func() bool { return machines[0].feature() == 3 })
	st, err := machines[0].node.ClusterStatus(t.Context())
	if err != nil || st.FeatureVersion != 3 {
		t.Errorf("status: %+v, %v", st, err)
	}

	late := w.machine("late")
	machines = append(machines, late)
	start(late, 2)
	err = <-late.done
	late.done <- err
	if !errors.Is(err, ErrTooOld) || !strings.Contains(err.Error(), "it supports feature version 2, the cluster speaks 3") {
		t.Errorf("a node of an older release ends with %v", err)
	}
	if n := len(machines[0].now().Servers); n != 4 {
		t.Errorf("there are %d members", n)
	}
	// An operator does not get it in either.
	if _, err := machines[0].node.change(t.Context(), &proto.ChangeRequest{Kind: proto.ChangeKind_CHANGE_ADD, Member: &proto.Member{NodeId: "older", PeerAddress: "127.0.0.1:1"}}); !errors.Is(err, ErrTooOld) {
		t.Errorf("a node that does not say what it supports: %v", err)
	}
	start(late, 3)
	w.await("late is in", func() bool { return len(machines[0].now().Servers) == 5 })
	select {
	case <-late.node.Formed():
	case <-time.After(15 * time.Second):
		t.Error("late is in no cluster")
	}
}

// TestFirstFeature: nodes that form a cluster know what all of them support, and begin it with
// that; also after one was started with another release meanwhile.
func TestFirstFeature(t *testing.T) {
	for _, c := range []struct {
		name     string
		supports []uint32
		want     uint32
	}{
		{"the same release", []uint32{3, 3, 3}, 3},
		{"one of a release before", []uint32{3, 2, 3}, 2},
		{"one that does not say what it supports", []uint32{3, 0, 3}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			var machines []*machine
			for _, name := range []string{"a", "b", "c"} {
				machines = append(machines, w.machine(name))
			}
			for i, mc := range machines {
				mc.supports = c.supports[i]
				w.start(mc, func(o *Options) {
					o.BootstrapExpect = 3
					for _, other := range machines {
						o.Join = append(o.Join, other.address)
					}
				})
			}
			began := 0
			for _, mc := range machines {
				w.await(mc.name+" is in a cluster", func() bool {
					select {
					case <-mc.node.Formed():
						return true
					default:
						return false
					}
				})
				got := mc.node.id.FirstFeature()
				if got == c.want {
					began++
				} else if got != 0 { // it was told the cluster by its state
					t.Errorf("%s begins the cluster with %d, want %d", mc.name, got, c.want)
				}
				again, err := LoadIdentity(filepath.Dir(mc.node.id.path), "")
				if err != nil || again.FirstFeature() != got {
					t.Errorf("%s, started again: %d, %v, want %d", mc.name, again.FirstFeature(), err, got)
				}
			}
			if began == 0 {
				t.Error("no node knows what to begin the cluster with")
			}
		})
	}
	servers := []Server{{ID: "a"}, {ID: "b"}}
	if got := firstFeature(servers, []*proto.Member{{NodeId: "a", FeatureVersion: 3}}); got != 0 {
		t.Errorf("of a server that it has not met a node knows %d", got)
	}
	d, err := loadDiscoveredPeers(filepath.Join(t.TempDir(), "f"), &proto.Member{NodeId: "a", PeerAddress: "a", FeatureVersion: 3})
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []uint32{2, 3} {
		if _, err := d.add(&proto.Member{NodeId: "b", PeerAddress: "b", FeatureVersion: version}); err != nil {
			t.Fatal(err)
		}
		if got := firstFeature(servers, d.known()); got != version {
			t.Errorf("after the other was started with another release: %d, want %d", got, version)
		}
	}
}
