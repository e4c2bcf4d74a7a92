package membership

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
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

// TestJudge: a node gives itself up only when more than half of all voters say so,
// whether they answer or not.
func TestJudge(t *testing.T) {
	// Each column is a member, the first one is the node that judges; "-" did not answer,
	// "." has noted no hash at that index. "(1)" says a member without a vote.
	for _, c := range []struct {
		name  string
		rows  []string // one per index
		wrong bool
	}{
		{"three that agree", []string{"1 1 1"}, false},
		{"this one differs", []string{"2 1 1"}, true},
		{"another one differs", []string{"1 2 1"}, false},
		{"all differ", []string{"1 2 3"}, false},
		{"one of the two others does not answer", []string{"2 1 -"}, false},
		{"one of the two others has not noted it", []string{"2 1 ."}, false},
		{"two nodes", []string{"2 1"}, false},
		{"alone", []string{"2"}, false},
		{"four, three agree", []string{"2 1 1 1"}, true},
		{"four, and two are no majority", []string{"2 1 1 ."}, false},
		{"four, two and two", []string{"2 2 1 1"}, false},
		{"five, this one differs", []string{"2 1 1 1 1"}, true},
		{"five, two are wrong: one of them", []string{"2 2 1 1 1"}, true},
		{"five, two are wrong: one of the others", []string{"1 1 1 2 2"}, false},
		{"five, two are wrong, and two others are away", []string{"1 2 2 - -"}, false},
		{"at an older index", []string{"2 1 1", "2 . ."}, true},
		{"two others, at different indexes", []string{"2 1 .", "2 . 1"}, false},
		{"this one has noted nothing", []string{". 1 1"}, false},
		{"more without a vote than voters", []string{"1 1 1 (2) (2) (2) (2)"}, false},
		{"those without a vote do not help another voter", []string{"1 2 . (2) (2) (2) (2)"}, false},
		{"those without a vote do not save this one", []string{"2 1 1 (2) (2) (2) (2)"}, true},
		{"this one has no vote, and the voters differ from it", []string{"(2) 1 1 ."}, true},
		{"this one has no vote, and two of four voters are no majority", []string{"(2) 1 1 . -"}, false},
		{"this one has no vote, and a single voter differs from it", []string{"(2) 1"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			answers := map[proto.NodeID]statusAnswer{}
			var conf Configuration
			for row, line := range c.rows {
				for i, word := range strings.Fields(line) {
					id := proto.NodeID(rune('a' + i))
					inner, noVote := strings.CutPrefix(word, "(")
					word = strings.TrimSuffix(inner, ")")
					if row == 0 {
						conf.Servers = append(conf.Servers, Server{ID: id, Voter: !noVote})
						// A member cannot speak for another: what it says of its id is not looked at.
						answers[id] = statusAnswer{status: &proto.NodeStatus{NodeId: "b"}}
					}
					switch word {
					case "-":
						answers[id] = statusAnswer{err: errors.New("no answer")}
					case ".":
					default:
						st := answers[id].status
						st.Hashes = append(st.Hashes, &proto.StateHash{Applied: uint64(16 * (row + 1)), Hash: uint64(word[0])})
					}
				}
			}
			if e, wrong := judge("a", conf, answers); wrong != c.wrong {
				t.Errorf("%v %v, want %v", wrong, e, c.wrong)
			}
		})
	}
}

// TestOneWordEach: a member that says the wrong thing twice has said it once.
func TestOneWordEach(t *testing.T) {
	say := func(hashes ...uint64) statusAnswer {
		st := &proto.NodeStatus{}
		for _, h := range hashes {
			st.Hashes = append(st.Hashes, &proto.StateHash{Applied: 16, Hash: h})
		}
		return statusAnswer{status: st}
	}
	conf := Configuration{Servers: []Server{{ID: "a", Voter: true}, {ID: "b", Voter: true}, {ID: "c", Voter: true}}}
	answers := map[proto.NodeID]statusAnswer{"a": say(1), "b": say(2, 2, 2), "c": say(1), "x": say(2), "y": say(2)}
	if e, wrong := judge("a", conf, answers); wrong {
		t.Error(e)
	}
}

// TestWrongState: the node that differs from the two others refuses, keeps what it found,
// tells the cluster, and is not let start again; the others go on, and forget it when it
// is removed.
func TestWrongState(t *testing.T) {
	w := newWorld(t)
	machines := []*machine{w.machine("a"), w.machine("b"), w.machine("c")}
	refused := make(chan error, 1)
	for _, mc := range machines {
		w.start(mc, func(o *Options) {
			o.BootstrapExpect = 3
			for _, other := range machines {
				o.Join = append(o.Join, other.address)
			}
			if mc.name == "b" {
				o.Refuse = func(err error) { refused <- err }
			}
		})
	}
	for _, mc := range machines {
		<-mc.node.Formed()
		w.await(mc.name+" is known by name", func() bool { r, err := mc.node.records(); return err == nil && len(r) == 3 })
	}
	w.note(machines[0], 16, 1)
	w.note(machines[1], 16, 2)
	// Two that differ, and the third says nothing: nothing can tell who is wrong.
	for _, mc := range machines {
		if st, err := mc.node.ClusterStatus(t.Context()); err != nil || len(st.Diverged) != 1 || len(st.WrongStates) != 0 {
			t.Fatalf("%s: %v, %v", mc.name, st, err)
		}
	}
	w.note(machines[2], 16, 1)
	if _, err := machines[1].node.ClusterStatus(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := <-machines[1].done
	machines[1].done <- err
	if !errors.Is(err, ErrStateDiffers) || !errors.Is(<-refused, ErrStateDiffers) {
		t.Fatalf("b: %v", err)
	}
	err = CheckState(machines[1].dir)
	wrong := machines[1].id
	for _, want := range []string{
		"at log index 16 b has the state hash 0000000000000002, and a, c agree on 0000000000000001",
		"To replace node b: run 'quorate member remove " + string(wrong) + "'",
	} {
		if !errors.Is(err, ErrStateDiffers) || !strings.Contains(err.Error(), want) {
			t.Errorf("b starts again with %v, want %q", err, want)
		}
	}
	for _, mc := range []*machine{machines[0], machines[2]} {
		st, err := mc.node.ClusterStatus(t.Context())
		if err != nil || st.WrongStates[wrong].Name != "b" || !strings.Contains(st.WrongStates[wrong].Found, "agree on") {
			t.Errorf("%s: %v, %v", mc.name, st, err)
		}
		select {
		case err := <-mc.done:
			t.Errorf("%s ended: %v", mc.name, err)
		default:
		}
		if err := CheckState(mc.dir); err != nil {
			t.Errorf("%s: %v", mc.name, err)
		}
	}
	w.stop(machines[1])
	report, _ := fakeKV{machines[0]}.Get(TableDiverged, string(wrong))
	if _, err := machines[0].node.change(t.Context(), &proto.ChangeRequest{Kind: proto.ChangeKind_CHANGE_REMOVE, Member: &proto.Member{Name: "b"}}); err != nil {
		t.Fatal(err)
	}
	if left := machines[2].node.WrongStates(); len(left) != 0 {
		t.Errorf("%v is still told of a node that was removed", left)
	}
	// The report was under way when the node was removed, and lands now.
	must.OK(t, (fakeKV{machines[0]}).Put(t.Context(), TableDiverged, string(wrong), report, false))
	for _, mc := range []*machine{machines[0], machines[2]} {
		if st, err := mc.node.ClusterStatus(t.Context()); err != nil || len(st.WrongStates) != 0 {
			t.Errorf("%s tells of a node that was removed: %v %v", mc.name, st.WrongStates, err)
		}
	}
}

// note has a machine's state note a hash.
func (w *world) note(mc *machine, at, hash uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	mc.hashes = append(mc.hashes, &proto.StateHash{Applied: at, Hash: hash})
}

// TestCheckStateUnreadable: a marker that cannot be read is a marker.
func TestCheckStateUnreadable(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, CheckState(dir))
	newer, _ := json.Marshal(map[string]any{"version": 2})
	for _, content := range [][]byte{nil, []byte("{"), newer} {
		must.OK(t, os.WriteFile(filepath.Join(dir, evidenceFile), content, 0o600))
		if err := CheckState(dir); !errors.Is(err, ErrStateDiffers) {
			t.Errorf("%q: %v", content, err)
		}
	}
}
