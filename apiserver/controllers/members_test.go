package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/quoratev1"
	"github.com/quorate/quorate/internal/must"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fakeCluster are Members of a test.
type fakeCluster struct {
	mu      sync.Mutex
	members []MemberSeen
	refuse  string
	removed []string
}

func (c *fakeCluster) list() ([]MemberSeen, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.members), nil
}

func (c *fakeCluster) remove(_ context.Context, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse != "" {
		return &RemovalRefused{c.refuse}
	}
	c.removed = append(c.removed, id)
	c.members = slices.DeleteFunc(c.members, func(m MemberSeen) bool { return m.ID == id })
	return nil
}

func (c *fakeCluster) change(f func(c *fakeCluster)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c)
}

// membersEnv is an env whose cluster has three voters, of which n1 leads. Its time is virtual.
type membersEnv struct {
	*env
	c *fakeCluster
}

func withMembers(t *testing.T, f func(e membersEnv)) {
	synctest.Test(t, func(t *testing.T) {
		c := &fakeCluster{}
		for i := range 3 {
			id := fmt.Sprint(i + 1)
			c.members = append(c.members, MemberSeen{ID: "id" + id, Name: "n" + id, PeerAddress: "192.0.2." + id + ":7443", APIAddress: "https://n" + id, Voter: true, Leader: i == 0, Version: "v1"})
		}
		list := func(context.Context) ([]MemberSeen, error) { return c.list() }
		e := membersEnv{newEnv(t, Config{Controllers: []Name{MemberController}, Members: Members{List: c.list, Ask: list, Remove: c.remove}}), c}
		e.run()
		e.shows("n1 leader True, n2 voter True, n3 voter True")
		f(e)
		e.stop()
	})
}

// shows waits until the objects are these: name, role, whether it is ready, and whether it is being deleted or blocked.
func (e membersEnv) shows(want string) {
	e.t.Helper()
	e.awaitFor(time.Minute, want, func() string {
		var all []string
		for _, name := range e.keys(membersTable) {
			var m quoratev1.Member
			if err := e.client.Get(e.t.Context(), quoratev1.Resource, "", name, &m); err != nil {
				return err.Error() // it went just now
			}
			text := fmt.Sprintf("%s %s", name, m.Status.Role)
			if c := meta.FindStatusCondition(m.Status.Conditions, quoratev1.Ready); c != nil {
				text += " " + string(c.Status)
			}
			if m.DeletionTimestamp != nil {
				text += " deleted"
			}
			if c := meta.FindStatusCondition(m.Status.Conditions, quoratev1.RemovalBlocked); c != nil {
				text += " " + c.Reason
			}
			all = append(all, text)
		}
		if got := strings.Join(all, ", "); got != want {
			return fmt.Sprintf("%q", got)
		}
		return ""
	})
}

func (e membersEnv) member(name string) (m quoratev1.Member) {
	e.t.Helper()
	must.OK(e.t, e.client.Get(e.t.Context(), quoratev1.Resource, "", name, &m))
	return m
}

func (e membersEnv) delete(names ...string) {
	e.t.Helper()
	for _, name := range names {
		must.OK(e.t, e.client.Delete(e.t.Context(), quoratev1.Resource, "", name, e.member(name).UID))
	}
}

// told are the events that there are: name, reason and count, sorted.
func (e membersEnv) told() string {
	e.t.Helper()
	versions, err := e.objects.Range(kinds.BuiltinTable(eventsGVR.GroupResource()), metav1.NamespaceDefault+"/")
	must.OK(e.t, err)
	var all []string
	for _, v := range versions {
		var ev corev1.Event
		must.OK(e.t, json.Unmarshal(v.Value(), &ev))
		if ev.InvolvedObject.Kind != "Member" || ev.InvolvedObject.UID == "" || ev.Message == "" {
			e.t.Errorf("an event: %+v", ev)
		}
		all = append(all, fmt.Sprintf("%s %s %d", ev.InvolvedObject.Name, ev.Reason, ev.Count))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// tells waits until there are these events: one is written behind what it tells of.
func (e membersEnv) tells(want string) {
	e.t.Helper()
	e.await("events "+want, func() string {
		if got := e.told(); got != want {
			return fmt.Sprintf("%q", got)
		}
		return ""
	})
}

// TestMembersAreShown: an idle cluster writes nothing, what changes is written, and events tell of it.
func TestMembersAreShown(t *testing.T) {
	withMembers(t, func(e membersEnv) {
		m := e.member("n2")
		if !slices.Equal(m.Finalizers, []string{quoratev1.Finalizer}) || m.Status.ID != "id2" || m.Status.Version != "v1" || !meta.IsStatusConditionTrue(m.Status.Conditions, quoratev1.VoterCondition) {
			t.Errorf("%+v", m)
		}
		time.Sleep(10 * time.Second) //sleep: virtual; what is written at the start is
		before := e.store.State().Applied()
		time.Sleep(time.Hour) //sleep: virtual; nothing may happen
		if after := e.store.State().Applied(); after != before || e.told() != "" {
			t.Errorf("an idle cluster has written %d entries, and tells %q", after-before, e.told())
		}
		e.c.change(func(c *fakeCluster) {
			c.members[2].Down, c.members[2].Why = "NotAnswering", "connection refused"
			c.members = append(c.members, MemberSeen{ID: "id4", Name: "n4", PeerAddress: "192.0.2.4:7443"})
		})
		e.shows("n1 leader True, n2 voter True, n3 voter False, n4 nonvoter True")
		e.c.change(func(c *fakeCluster) {
			c.members[0].Leader, c.members[1].Leader, c.members[3].Voter = false, true, true
		})
		e.shows("n1 voter True, n2 leader True, n3 voter False, n4 voter True")
		e.c.change(func(c *fakeCluster) { c.members = slices.Delete(c.members, 3, 4) })
		e.shows("n1 voter True, n2 leader True, n3 voter False")
		e.tells("n2 LeadershipMoved 1, n3 NotReady 1, n4 Joined 1, n4 Promoted 1, n4 Removed 1")
	})
}

// TestFlappingMember: one that comes and goes all the time makes few events, and no more writes than a few a minute.
func TestFlappingMember(t *testing.T) {
	withMembers(t, func(e membersEnv) {
		before := e.store.State().Applied()
		const minutes = 60
		for range minutes * 4 {
			e.c.change(func(c *fakeCluster) { c.members[2].Down, c.members[2].Why = "NotAnswering", "connection refused" })
			time.Sleep(7500 * time.Millisecond) //sleep: virtual
			e.c.change(func(c *fakeCluster) { c.members[2].Down, c.members[2].Why = "", "" })
			time.Sleep(7500 * time.Millisecond) //sleep: virtual
		}
		if n := e.store.State().Applied() - before; n == 0 || n > 13*minutes {
			t.Errorf("%d entries in %d minutes", n, minutes)
		}
		for _, reason := range []string{"NotReady", "Ready"} {
			if got := strings.Count(e.told(), " "+reason+" "); got > 1 {
				t.Errorf("%d events %s: %s", got, reason, e.told())
			}
		}
	})
}

// TestLaggingMember: one that lacks entries and takes none is not ready, however few they are, and one that takes some is.
func TestLaggingMember(t *testing.T) {
	withMembers(t, func(e membersEnv) {
		for i := range 24 { // it is behind each time, as under load, and follows
			e.c.change(func(c *fakeCluster) { c.members[2].Applied, c.members[2].Lag = uint64(100+i), 7 })
			time.Sleep(5 * time.Second) //sleep: virtual
		}
		e.shows("n1 leader True, n2 voter True, n3 voter True")
		time.Sleep(10 * time.Second) //sleep: virtual; nothing is written that soon
		if c := meta.FindStatusCondition(e.member("n3").Status.Conditions, quoratev1.Ready); c.Status != metav1.ConditionTrue {
			t.Errorf("not ready after 10 s: %+v", c)
		}
		e.shows("n1 leader True, n2 voter True, n3 voter False")
		if c := meta.FindStatusCondition(e.member("n3").Status.Conditions, quoratev1.Ready); c.Reason != "Lagging" || c.Message != "it lacks 7 entries, and takes none" {
			t.Errorf("%+v", c)
		}
		e.c.change(func(c *fakeCluster) { c.members[2].Applied, c.members[2].Lag = 130, 0 })
		e.shows("n1 leader True, n2 voter True, n3 voter True")
	})
}

// TestMemberIsDeclaredGone: whose object is deleted is removed from the cluster, as soon as that is safe.
func TestMemberIsDeclaredGone(t *testing.T) {
	withMembers(t, func(e membersEnv) {
		e.c.change(func(c *fakeCluster) { c.refuse = "too few would be left" })
		e.delete("n3")
		e.shows("n1 leader True, n2 voter True, n3 voter True deleted Refused")
		time.Sleep(10 * time.Second) //sleep: virtual; the event is written by then
		blocked := e.store.State().Applied()
		time.Sleep(time.Hour) //sleep: virtual; it tries again, and writes nothing
		if n := e.store.State().Applied() - blocked; n != 0 {
			t.Errorf("a removal that is blocked writes %d entries in an hour", n)
		}
		e.c.change(func(c *fakeCluster) { c.refuse = "" })
		e.shows("n1 leader True, n2 voter True")
		e.tells("n3 RemovalBlocked 1, n3 Removed 1")
		if !slices.Equal(e.c.removed, []string{"id3"}) {
			t.Errorf("removed: %v", e.c.removed)
		}
		// The node comes back with an empty disk under the same name: that is another member.
		e.c.change(func(c *fakeCluster) {
			c.members = append(c.members, MemberSeen{ID: "id9", Name: "n3", Voter: true})
		})
		e.shows("n1 leader True, n2 voter True, n3 voter True")
		if m := e.member("n3"); m.Status.ID != "id9" || m.DeletionTimestamp != nil {
			t.Errorf("%+v", m)
		}
	})
}

// TestDeletionIsTakenBack: without the finalizer the object goes, the member stays, and gets another object.
func TestDeletionIsTakenBack(t *testing.T) {
	withMembers(t, func(e membersEnv) {
		e.c.change(func(c *fakeCluster) { c.refuse = "too few would be left" })
		e.delete("n3")
		e.shows("n1 leader True, n2 voter True, n3 voter True deleted Refused")
		m := e.member("n3")
		m.Finalizers = nil
		must.OK(t, e.client.Update(t.Context(), quoratev1.Resource, "", "n3", &m))
		e.shows("n1 leader True, n2 voter True, n3 voter True")
		e.c.change(func(c *fakeCluster) { c.refuse = "" })
		time.Sleep(time.Minute) //sleep: virtual; nothing may be removed
		if len(e.c.removed) > 0 || strings.Contains(e.told(), "Joined") {
			t.Errorf("removed: %v, events: %s", e.c.removed, e.told())
		}
		// Who takes the finalizer off one that is not deleted changes nothing: it comes back.
		m = e.member("n3")
		m.Finalizers = nil
		must.OK(t, e.client.Update(t.Context(), quoratev1.Resource, "", "n3", &m))
		e.await("the finalizer", func() string {
			if len(e.member("n3").Finalizers) == 0 {
				return "it is not there"
			}
			return ""
		})
	})
}

// TestHeldObject: an object that somebody else holds stays, and a node that comes back under the name of its member has another one
// until it is gone.
func TestHeldObject(t *testing.T) {
	withMembers(t, func(e membersEnv) {
		m := e.member("n3")
		m.Finalizers = append(m.Finalizers, "example.com/held")
		must.OK(t, e.client.Update(t.Context(), quoratev1.Resource, "", "n3", &m))
		e.delete("n3")
		e.shows("n1 leader True, n2 voter True, n3 voter True deleted")
		e.await("n3 is removed, and let go", func() string {
			if m = e.member("n3"); !slices.Equal(m.Finalizers, []string{"example.com/held"}) {
				return fmt.Sprint(m.Finalizers)
			}
			return ""
		})
		e.c.change(func(c *fakeCluster) { c.members = append(c.members, MemberSeen{ID: "id9", Name: "n3", Voter: true}) })
		e.shows("id9 voter True, n1 leader True, n2 voter True, n3 voter True deleted")
		m.Finalizers = nil
		must.OK(t, e.client.Update(t.Context(), quoratev1.Resource, "", "n3", &m))
		e.shows("n1 leader True, n2 voter True, n3 voter True")
		if got := e.member("n3").Status.ID; got != "id9" {
			t.Errorf("n3 is %s", got)
		}
	})
}

// TestAllMembersAreDeleted: one command that deletes all objects removes nobody, however slowly it goes from one to the next.
func TestAllMembersAreDeleted(t *testing.T) {
	withMembers(t, func(e membersEnv) {
		for _, name := range []string{"n1", "n2", "n3"} {
			e.delete(name)
			time.Sleep(settleDelayReady * 3 / 4) //sleep: virtual
		}
		e.shows("n1 leader True deleted AllVoters, n2 voter True deleted AllVoters, n3 voter True deleted AllVoters")
		time.Sleep(time.Minute) //sleep: virtual; nothing may be removed
		if len(e.c.removed) > 0 {
			t.Errorf("removed: %v", e.c.removed)
		}
		for _, name := range []string{"n1", "n2"} {
			m := e.member(name)
			m.Finalizers = nil
			must.OK(t, e.client.Update(t.Context(), quoratev1.Resource, "", name, &m))
			time.Sleep(settleDelayReady * 3 / 4) //sleep: virtual
			if len(e.c.removed) > 0 {
				t.Errorf("removed when the deletion of %s was taken back: %v", name, e.c.removed)
			}
		}
		e.shows("n1 leader True, n2 voter True")
		if !slices.Equal(e.c.removed, []string{"id3"}) {
			t.Errorf("removed: %v, want the one whose deletion was not taken back", e.c.removed)
		}
	})
}

// TestObjectsOfOneMember: an object that two leaders have made twice goes, as does one of another name, and neither is taken for
// a deletion that somebody has asked for.
func TestObjectsOfOneMember(t *testing.T) {
	withMembers(t, func(e membersEnv) {
		twice := &quoratev1.Member{Status: quoratev1.MemberStatus{ID: "id3"}}
		twice.Name, twice.Finalizers = "n9", []string{quoratev1.Finalizer}
		must.OK(t, e.client.Create(t.Context(), quoratev1.Resource, "", twice))
		e.shows("n1 leader True, n2 voter True, n3 voter True")
		e.c.change(func(c *fakeCluster) { c.members[2].Name = "renamed" })
		e.shows("n1 leader True, n2 voter True, renamed voter True")
		if len(e.c.removed) > 0 || e.told() != "" {
			t.Errorf("removed: %v, events: %s", e.c.removed, e.told())
		}
	})
}

// TestNamelessMember: a member that says no name for a while is shown by its id, and by its name as soon as it has one.
func TestNamelessMember(t *testing.T) {
	withMembers(t, func(e membersEnv) {
		e.c.change(func(c *fakeCluster) { c.members = append(c.members, MemberSeen{ID: "id4"}) })
		time.Sleep(nameDelay / 2) //sleep: virtual; nothing may be shown yet
		if got := e.keys(membersTable); len(got) != 3 {
			t.Errorf("%v", got)
		}
		e.shows("id4 nonvoter True, n1 leader True, n2 voter True, n3 voter True")
		e.c.change(func(c *fakeCluster) { c.members[3].Name = "n4" })
		e.shows("n1 leader True, n2 voter True, n3 voter True, n4 nonvoter True")
		e.tells("id4 Joined 1")
	})
}
