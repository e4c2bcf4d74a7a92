package membership

import (
	"errors"
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
