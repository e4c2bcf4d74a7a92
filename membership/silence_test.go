package membership

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/proto"
)

// TestSilences plays looks of a leader a, ten seconds apart. A look is the term, the members, of which those with a vote are in
// capitals, and who was heard of. It says for how many seconds those without a vote have been silent.
func TestSilences(t *testing.T) {
	for _, c := range []struct{ name, looks, want string }{
		{"it counts from the first look", "1 ABCx abc", "x0"},
		{"it adds up", "1 ABCx abc, 1 ABCx abc, 1 ABCx ab", "x20"},
		{"an answer ends it", "1 ABCx abc, 1 ABCx abc, 1 ABCx abcx", "x0"},
		{"and it begins again", "1 ABCx abc, 1 ABCx abc, 1 ABCx abcx, 1 ABCx abc", "x10"},
		{"a new term begins it", "1 ABCx abc, 1 ABCx abc, 2 ABCx abc", "x0"},
		{"a leader without a majority begins it", "1 ABCx abc, 1 ABCx abc, 1 ABCx a", "x0"},
		{"and does not count", "1 ABCx abc, 1 ABCx a, 1 ABCx abc", "x10"},
		{"one that was just added begins", "1 ABCx abc, 1 ABCx abc, 1 ABCxy abc", "x20 y0"},
		{"one that has lost its vote begins", "1 ABCD abc, 1 ABCD abc, 1 ABCd abc, 1 ABCd abc", "d10"},
		{"one that has a vote has none", "1 ABCx abc, 1 ABCx abc, 1 ABCX abc", ""},
		{"one that was removed is forgotten", "1 ABCx abc, 1 ABCx abc, 1 ABC abc, 1 ABCx abc", "x0"},
		{"a leader that hears of nobody may be cut off", "1 Ax a, 1 Ax a", "x0"},
		{"one vote and another member will do", "1 Axy ay, 1 Axy ay", "x10 y0"},
	} {
		var s silences
		for text := range strings.SplitSeq(c.looks, ", ") {
			var term uint64
			var members, heard string
			if _, err := fmt.Sscan(text, &term, &members, &heard); err != nil {
				t.Fatal(err)
			}
			l := look{term: term, self: "a", heard: map[proto.NodeID]bool{}}
			for _, m := range members {
				l.conf.Servers = append(l.conf.Servers, Server{ID: proto.NodeID(strings.ToLower(string(m))), Voter: m < 'a'})
			}
			for _, m := range heard {
				l.heard[proto.NodeID(m)] = true
			}
			s.note(l, 10*time.Second)
		}
		var got []string
		for _, id := range []proto.NodeID{"d", "x", "y"} {
			if silent, ok := s.of[id]; ok {
				got = append(got, fmt.Sprint(id, silent.Seconds()))
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", c.name, got, c.want)
		}
	}
}

// TestDead: who has a vote is never dead, and who has none is when the time has come.
func TestDead(t *testing.T) {
	s := silences{of: map[proto.NodeID]time.Duration{"x": time.Hour, "y": time.Hour - 1, "A": 2 * time.Hour}}
	conf := Configuration{Servers: []Server{{ID: "A", Voter: true}, {ID: "x"}, {ID: "y"}, {ID: "z"}}}
	if got := s.dead(conf, time.Hour); len(got) != 1 || got[0] != "x" {
		t.Errorf("%v", got)
	}
}

// TestSilentNonvoterIsRemoved: a non-voter that is gone is removed, one that answers and a voter that is gone stay.
func TestSilentNonvoterIsRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := []*machine{w.machine("a"), w.machine("b"), w.machine("c"), w.machine("x"), w.machine("y")}
	for _, mc := range all {
		w.start(mc, func(o *Options) {
			o.RemoveNonvoterAfter = time.Second
			for _, other := range all[:3] {
				o.Join = append(o.Join, other.address)
			}
			if o.BootstrapExpect = 3; mc.name == "x" || mc.name == "y" {
				o.BootstrapExpect, o.NonVoter = 0, true
			}
		})
	}
	for _, mc := range all {
		w.await(mc.name+" is in the cluster", func() bool {
			select {
			case <-mc.node.Formed():
				return mc.node.Announced()
			default:
				return false
			}
		})
	}
	leader := func() *machine {
		for _, mc := range all {
			if mc.up && (fakeRaft{mc}).IsLeader() {
				return mc
			}
		}
		return all[0]
	}
	gone := all[0]
	if leader() == gone {
		gone = all[1]
	}
	w.stop(gone)
	w.stop(all[3])
	w.await("x is removed", func() bool { _, member := leader().now().Find(all[3].id); return !member })
	w.await("its record is there", func() bool { return IsRemoved(fakeKV{leader()}, all[3].id) })
	conf := leader().now()
	for _, mc := range []*machine{gone, all[4]} {
		if _, member := conf.Find(mc.id); !member {
			t.Errorf("%s was removed", mc.name)
		}
	}
	if !leader().said("a non-voter has not answered for too long and is removed") {
		t.Error("the leader does not say it")
	}
}
