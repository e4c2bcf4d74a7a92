package membership

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// hasExpelled says whether a machine has ended the connections of a node.
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
	if _, err := client(t, leader).Remove(t.Context(), third.name, false, KeepTokens{}); err != nil {
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
	if _, err := client(t, leader).Remove(t.Context(), third.name, false, KeepTokens{}); err == nil {
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

// TestReturnBeforeTheRecord: a member that was removed, and was added again before the
// leader came to write the record that an interrupted removal had left out, is no removed
// one.
func TestReturnBeforeTheRecord(t *testing.T) {
	t.Parallel()
	_, all := three(t)
	leader, third := all[0], all[2]
	must.OK(t, leader.node.finishRemoval(t.Context(), third.id, memberRecord{Name: third.name}))
	if IsRemoved(leader.node.kv, third.id) {
		t.Error("a member is recorded as removed")
	}
}

// refusals makes a node tell what it refuses to serve for.
func refusals() (edit func(*Options), said chan error) {
	said = make(chan error, 1)
	return func(o *Options) { o.Refuse = func(err error) { said <- err } }, said
}

// TestRemovedNodeLearns: a node that was cut off when it was removed is told when it comes
// back, by any member; it ends its part, and does not begin it again.
func TestRemovedNodeLearns(t *testing.T) {
	t.Parallel()
	w, all := three(t)
	leader, third := all[0], all[2]
	w.stop(third)
	if _, err := client(t, leader).Remove(t.Context(), third.name, false, KeepTokens{}); err != nil {
		t.Fatal(err)
	}
	if err := CheckRemoved(third.dir); err != nil {
		t.Errorf("it knows already: %v", err)
	}
	edit, said := refusals()
	w.start(third, edit)
	var err error
	select {
	case err = <-third.done:
		third.done <- err
	case <-time.After(20 * time.Second):
		t.Fatal("it never learns")
	}
	if !errors.Is(err, ErrRemoved) || !errors.Is(<-said, ErrRemoved) {
		t.Errorf("it ends with %v", err)
	}
	w.stop(third)
	if err := CheckRemoved(third.dir); !errors.Is(err, ErrRemoved) || !strings.Contains(err.Error(), string(third.id)) || strings.Count(err.Error(), "was removed from the cluster") != 1 {
		t.Errorf("before the next start: %v", err)
	}
	if err := CheckRemoved(leader.dir); err != nil {
		t.Errorf("a member: %v", err)
	}
	// A recovery makes another node of the directory.
	must.OK(t, os.Remove(filepath.Join(third.dir, identityFile)))
	if _, err := LoadIdentity(third.dir, "again"); err != nil {
		t.Fatal(err)
	}
	if err := CheckRemoved(third.dir); err != nil {
		t.Errorf("with another id: %v", err)
	}
}

// TestAskPlace: what the members say of a node that asks, of which one does not answer.
func TestAskPlace(t *testing.T) {
	t.Parallel()
	w, all := three(t)
	leader, follower, third := all[0], all[1], all[2]
	conf := leader.now()
	if err := (placeWatch{third.node.base}).ask(t.Context(), conf); err != nil {
		t.Errorf("a member: %v", err)
	}
	w.stop(third)
	if _, err := client(t, leader).Remove(t.Context(), third.name, false, KeepTokens{}); err != nil {
		t.Fatal(err)
	}
	if err := (placeWatch{follower.node.base}).ask(t.Context(), conf); err != nil {
		t.Errorf("another member: %v", err)
	}
	edit, _ := refusals()
	w.start(third, edit)
	if err := (placeWatch{third.node.base}).ask(t.Context(), conf); !errors.Is(err, ErrRemoved) || !strings.Contains(err.Error(), "at 20") {
		t.Errorf("the removed node: %v", err)
	}
}

// TestUncommittedRemoval: a leader that has a configuration without a member, and not the
// majority for it, says of nobody that he was removed. When that configuration is
// truncated, the member still counts.
func TestUncommittedRemoval(t *testing.T) {
	t.Parallel()
	w, all := three(t)
	leader, third := all[0], all[2]
	w.mu.Lock()
	before := leader.conf
	leader.committed = &before
	without := Configuration{Index: before.Index + 1}
	for _, s := range before.Servers {
		if s.ID != third.id {
			without.Servers = append(without.Servers, s)
		}
	}
	leader.conf = without
	w.mu.Unlock()
	must.OK(t, leader.node.finishRemovals(t.Context()))
	if IsRemoved(leader.node.kv, third.id) {
		t.Error("a voter is recorded as removed")
	}
	w.mu.Lock()
	leader.conf, leader.committed = before, nil
	w.mu.Unlock()
}
