package membership

import (
	"slices"
	"testing"

	"github.com/quorate/quorate/proto"
)

// expelledBy says whether a machine has ended the connections of a node.
func (mc *machine) hasExpelled(id proto.NodeID) bool {
	mc.w.mu.Lock()
	defer mc.w.mu.Unlock()
	return slices.Contains(mc.expelled, id)
}

func (w *world) refuse(tables ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refusing = tables
}

// TestRemovalIsFollowed: what a removed member has open ends on all members, and on one
// that was away, as soon as it knows.
func TestRemovalIsFollowed(t *testing.T) {
	t.Parallel()
	w, all := three(t)
	leader, follower, third := all[0], all[1], all[2]
	if _, err := client(t, leader).Remove(t.Context(), third.name, false); err != nil {
		t.Fatal(err)
	}
	for _, mc := range []*machine{leader, follower} {
		w.await(mc.name+" ends the connections of the removed node", func() bool { return mc.hasExpelled(third.id) })
		if mc.hasExpelled(leader.id) || mc.hasExpelled(follower.id) {
			t.Errorf("%s has ended the connections of a member", mc.name)
		}
	}
	w.stop(follower)
	w.mu.Lock()
	follower.expelled = nil
	w.mu.Unlock()
	w.start(follower, nil)
	w.await("after a restart too", func() bool { return follower.hasExpelled(third.id) })
}

// TestInterruptedRemoval: a removal whose record was lost on the way is completed by the
// leader.
func TestInterruptedRemoval(t *testing.T) {
	t.Parallel()
	w, all := three(t)
	leader, follower, third := all[0], all[1], all[2]
	w.refuse(TableRemoved)
	if _, err := client(t, leader).Remove(t.Context(), third.name, false); err == nil {
		t.Fatal("the removal was reported as complete")
	}
	if _, in := leader.now().Find(third.id); in || IsRemoved(leader.node.kv, third.id) {
		t.Fatal("that is not what is tested here")
	}
	w.stop(third)
	w.refuse()
	w.await("the leader writes the record", func() bool { return IsRemoved(leader.node.kv, third.id) })
	w.await("the follower follows it", func() bool { return follower.hasExpelled(third.id) })
	w.await("nothing is left of the member", func() bool {
		_, there := leader.node.kv.Get(TableMembers, string(third.id))
		return !there
	})
}
