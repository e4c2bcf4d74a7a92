package membership

import (
	"errors"
	"testing"

	"github.com/quorate/quorate/proto"
)

func TestDiverged(t *testing.T) {
	node := func(name string, hashes ...uint64) statusAnswer {
		st := &proto.NodeStatus{NodeId: name, Name: name}
		for i := 0; i < len(hashes); i += 2 {
			st.Hashes = append(st.Hashes, &proto.StateHash{Applied: hashes[i], Hash: hashes[i+1]})
		}
		return statusAnswer{status: st}
	}
	for _, c := range []struct {
		name    string
		answers []statusAnswer
		want    int
	}{
		{"equal where they meet", []statusAnswer{node("a", 16, 1, 32, 2), node("b", 32, 2, 48, 3), node("c", 48, 3)}, 0},
		{"never at the same index", []statusAnswer{node("a", 16, 1), node("b", 32, 2)}, 0},
		{"one differs", []statusAnswer{node("a", 16, 1, 32, 2), node("b", 16, 1, 32, 9)}, 1},
		{"one difference per pair", []statusAnswer{node("a", 16, 1, 32, 2), node("b", 16, 8, 32, 9)}, 1},
		{"no answer is no difference", []statusAnswer{node("a", 16, 1), {err: errors.New("gone")}}, 0},
	} {
		answers := map[proto.NodeID]statusAnswer{}
		for i, a := range c.answers {
			answers[proto.NodeID(rune('a'+i))] = a
		}
		if got := diverged(answers); len(got) != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}
