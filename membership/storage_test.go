package membership

import (
	"testing"
	"time"
)

// TestLimitStorage: the least that a voter wants counts. It falls when one voter says less, and rises only
// when all have said more.
func TestLimitStorage(t *testing.T) {
	w := newWorld(t)
	names := []string{"a", "b", "c", "x"}
	machines := make([]*machine, len(names))
	for i, name := range names {
		machines[i] = w.machine(name)
	}
	start := func(mc *machine, storage uint64) {
		w.stop(mc)
		w.mu.Lock()
		mc.storage, mc.supports = storage, 2
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
	for i, storage := range []uint64{500, 300, 400, 100} {
		start(machines[i], storage)
	}
	for _, mc := range machines {
		select {
		case <-mc.node.Formed():
		case <-time.After(15 * time.Second):
			t.Fatalf("%s is in no cluster", mc.name)
		}
	}
	limit := func() int64 { return fakeRaft{machines[0]}.StorageLimit() }
	leader := func() *machine {
		for _, mc := range machines {
			if mc.up && (fakeRaft{mc}).IsLeader() {
				return mc
			}
		}
		return nil
	}
	w.await("the least of the voters", func() bool { return limit() == 300 })
	// x has no vote: its memory is its own affair.
	start(machines[1], 600)
	w.await("the least of the voters, risen", func() bool { return limit() == 400 })
	w.stop(machines[2])
	w.await("the leader waits for c", func() bool {
		l := leader()
		return l != nil && l.said("does not say how much it stores")
	})
	if got := limit(); got != 400 {
		t.Errorf("it is %d without the word of c", got)
	}
	start(machines[0], 200)
	w.await("one is enough to say less", func() bool { return limit() == 200 })
	start(machines[2], 0)
	start(machines[0], 700)
	w.await("the leader waits for the older release", func() bool {
		l := leader()
		return l != nil && l.said("its release is older")
	})
	if got := limit(); got != 200 {
		t.Errorf("it is %d without the word of an older release", got)
	}
	start(machines[2], 650)
	w.await("all want more", func() bool { return limit() == 600 })
}
