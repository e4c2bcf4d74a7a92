package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/types/quoratev1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestMemberNames: members are id:name, objects id:name. What is wanted is the names of the objects, by id.
func TestMemberNames(t *testing.T) {
	for _, c := range []struct{ title, members, objects, want string }{
		{"by their names", "1:n1 2:n2", "", "1:n1 2:n2"},
		{"a name that somebody holds", "1:held 2:n2", "", "1:1 2:n2"},
		{"capitals are none of an object's name", "1:Host-A.example", "", "1:host-a.example"},
		{"what is no name of an object", "1:a_b 2:" + strings.Repeat("x", 254), "", "1:1 2:2"},
		{"without a name", "1:", "", "1:1"},
		{"one name twice", "2:n 1:n", "", "1:n 2:2"},
		{"who has it keeps it", "1:n 2:n", "2:n", "1:1 2:n"},
		{"and the other gets it when it is free", "1:n", "1:1", "1:n"},
		{"a new name", "1:new", "1:old", "1:new"},
		{"an exchange goes by the ids", "1:b 2:a", "1:a 2:b", "1:b 2:a"},
		{"a name that is another's id", "1:2 2:n", "", "1:1 2:n"},
		{"a name that is the own id", "1:1", "", "1:1"},
	} {
		var seen []MemberSeen
		has := map[string]*storedMember{}
		for text := range strings.FieldsSeq(c.members) {
			id, name, _ := strings.Cut(text, ":")
			seen = append(seen, MemberSeen{ID: id, Name: name})
		}
		for text := range strings.FieldsSeq(c.objects) {
			id, name, _ := strings.Cut(text, ":")
			has[id] = &storedMember{}
			has[id].Name = name
		}
		var got []string
		for id, name := range memberNames(seen, has, map[string]bool{"held": true, "n1": false}) {
			got = append(got, id+":"+name)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", c.title, got, c.want)
		}
	}
}

// TestNextRemovals: members are ids; v has a vote, l leads, and - does not answer. Which of them that are declared gone
// may be removed, in which order, and which not.
func TestNextRemovals(t *testing.T) {
	for _, c := range []struct{ title, members, gone, want string }{
		{"nobody", "1l 2v 3v", "", "[] []"},
		{"one", "1l 2v 3v", "3", "[3] []"},
		{"two", "1l 2v 3v", "2 3", "[2 3] []"},
		{"all voters: one command has deleted them all", "1l 2v 3v", "1 2 3", "[] [1 2 3]"},
		{"all, and one has no vote", "1l 2v 3v 4", "1 2 3 4", "[4] [1 2 3]"},
		{"without a vote first, then who does not answer, the leader last", "1l 2v 3v- 4 5v", "1 2 3 4", "[4 3 2 1] []"},
		{"the only one", "1l", "1", "[] [1]"},
		{"the only voter, beside others", "1l 2", "1", "[] [1]"},
	} {
		var seen, gone []MemberSeen
		for text := range strings.FieldsSeq(c.members) {
			m := MemberSeen{ID: text[:1], Voter: strings.ContainsAny(text, "vl"), Leader: strings.Contains(text, "l")}
			if strings.Contains(text, "-") {
				m.Down = "NotAnswering"
			}
			seen = append(seen, m)
			if slices.Contains(strings.Fields(c.gone), m.ID) {
				gone = append(gone, m)
			}
		}
		ids := func(members []MemberSeen) []string {
			out := []string{}
			for _, m := range members {
				out = append(out, m.ID)
			}
			return out
		}
		remove, blocked := nextRemovals(seen, gone)
		if got := fmt.Sprint(ids(remove), " ", ids(blocked)); got != c.want {
			t.Errorf("%s: %s, want %s", c.title, got, c.want)
		}
	}
}

// TestMemberReadiness plays looks, a second apart: + is ready, other letters are reasons why not. The object begins with
// the first and shows what is below.
func TestMemberReadiness(t *testing.T) {
	for _, c := range []struct{ looks, shows string }{
		{"++++++++", "++++++++"},
		{"+a++++++", "++++++++"}, // it passes
		{"+aaaaaaaa", "++++++aaa"},
		{"+aaaa+aaaaaaa", "+++++++++++aa"},   // it begins again
		{"+abababab", "++++++bbb"},           // that one reason follows another makes it no readier
		{"a++++++++", "aaaaaa+++"},           // and as long for the way back
		{"a+a+a+a+a+a+a+", "aaaaaaaaaaaaaa"}, // who flaps is not ready
		{"+a+a+a+a+a+a+a", "++++++++++++++"}, // or is, and nothing is written
		{"abbbbbbbb", "aaaaaabbb"},           // another reason
		{"abababababab", "aaaaaaaaaaaa"},     // which changes all the time
	} {
		at := time.Unix(1_800_000_000, 0)
		var p pendingReady
		var status *quoratev1.MemberStatus
		got := ""
		for _, look := range c.looks {
			m := MemberSeen{ID: "1", Down: string(look), Why: "because"}
			if look == '+' {
				m.Down, m.Why = "", ""
			}
			if status != nil {
				m, _ = p.held(status.Conditions, m, at)
			}
			next := nextMember(status, m, at)
			status = &next
			ready := meta.FindStatusCondition(status.Conditions, quoratev1.Ready)
			if shows := ready.Reason; ready.Status == metav1.ConditionTrue {
				got += "+"
			} else {
				got += shows
			}
			at = at.Add(time.Second)
		}
		if got != c.shows {
			t.Errorf("%s: %s, want %s", c.looks, got, c.shows)
		}
	}
}

// TestMemberChanges: what is written of a member that changes, and which events tell of it.
func TestMemberChanges(t *testing.T) {
	voter := MemberSeen{ID: "1", Name: "n1", Voter: true, Version: "v1", FeatureVersion: 2, APIAddress: "https://n1"}
	with := func(change func(*MemberSeen)) MemberSeen { m := voter; change(&m); return m }
	for _, c := range []struct {
		title    string
		was, now MemberSeen
		same     bool
		events   string
	}{
		{"nothing", voter, voter, true, ""},
		{"it does not answer, and what it has said holds", voter, with(func(m *MemberSeen) { m.Down, m.Why, m.Version, m.FeatureVersion = "NotAnswering", "refused", "", 0 }), false,
			"Warning NotReady: NotAnswering: refused"},
		{"the same in other words", with(func(m *MemberSeen) { m.Down, m.Why = "Behind", "5001 entries" }), with(func(m *MemberSeen) { m.Down, m.Why = "Behind", "7000 entries" }), true, ""},
		{"it is back", with(func(m *MemberSeen) { m.Down, m.Why = "Behind", "5001 entries" }), voter, false, "Normal Ready: it answers, follows the leader and is not far behind"},
		{"it leads", voter, with(func(m *MemberSeen) { m.Leader = true }), false, "Normal LeadershipMoved: It leads the cluster"},
		{"another one leads", with(func(m *MemberSeen) { m.Leader = true }), voter, false, ""},
		{"it has lost its vote", voter, with(func(m *MemberSeen) { m.Voter = false }), false, "Normal Demoted: It has no vote any more"},
		{"it has got one", with(func(m *MemberSeen) { m.Voter = false }), voter, false, "Normal Promoted: It has a vote"},
		{"it has lost entries", voter, with(func(m *MemberSeen) { m.LostEntries, m.Down, m.Why = "up to 7", "LostEntries", "up to 7" }), false,
			"Warning LostEntries: up to 7, Warning NotReady: LostEntries: up to 7"},
		{"its state is wrong", voter, with(func(m *MemberSeen) { m.WrongState = "at 9" }), false, "Warning WrongState: at 9"},
		{"its disk is full", voter, with(func(m *MemberSeen) { m.DiskSpace = "full" }), false, "Warning DiskSpaceLow: its disk is full: make room there"},
		{"its file system is full", voter, with(func(m *MemberSeen) { m.DiskSpace = "reserve" }), false,
			"Warning DiskSpaceLow: its file system has no room beside what the node has reserved for itself: make room there"},
		{"its files are full, too", with(func(m *MemberSeen) { m.DiskSpace = "reserve" }), with(func(m *MemberSeen) { m.DiskSpace = "full" }), false,
			"Warning DiskSpaceLow: its disk is full: make room there"},
		{"a snapshot finds no room", voter, with(func(m *MemberSeen) { m.DiskSpace = "snapshot" }), false,
			"Warning DiskSpaceLow: its disk has no room for the snapshot that it needs to follow: make room there"},
		{"it is read-only", voter, with(func(m *MemberSeen) { m.DiskSpace = "read-only" }), false,
			"Warning DiskSpaceLow: its file system takes no writes: mend it, and start the node again"},
		{"there is room again", with(func(m *MemberSeen) { m.DiskSpace = "low" }), voter, false, ""},
		{"nobody knows", with(func(m *MemberSeen) { m.DiskSpace, m.Down, m.Why = "low", "NotAnswering", "no" }),
			with(func(m *MemberSeen) { m.Version, m.Down, m.Why = "", "NotAnswering", "no" }), true, ""},
		{"another release", voter, with(func(m *MemberSeen) { m.Version = "v2" }), false, ""},
		{"another address", voter, with(func(m *MemberSeen) { m.PeerAddress = "192.0.2.9:7443" }), false, ""},
	} {
		at := time.Unix(1_800_000_000, 0)
		was := nextMember(nil, c.was, at)
		now := nextMember(&was, c.now, at.Add(time.Hour))
		if same := sameMember(&was, &now); same != c.same {
			t.Errorf("%s: same: %t", c.title, same)
		}
		if now.Version == "" || now.FeatureVersion == 0 || now.APIAddress == "" {
			t.Errorf("%s: what it had said is gone: %+v", c.title, now)
		}
		var got []string
		for _, e := range changesOf(&was, &quoratev1.Member{Status: now}) {
			got = append(got, e.kind+" "+e.reason+": "+e.message)
		}
		if strings.Join(got, ", ") != c.events {
			t.Errorf("%s: %v, want %s", c.title, got, c.events)
		}
		for _, cond := range now.Conditions {
			before := meta.FindStatusCondition(was.Conditions, cond.Type)
			if before != nil && (before.Status == cond.Status) != before.LastTransitionTime.Equal(&cond.LastTransitionTime) {
				t.Errorf("%s: %s was %s since %v, is %s since %v", c.title, cond.Type, before.Status, before.LastTransitionTime, cond.Status, cond.LastTransitionTime)
			}
		}
	}
}
