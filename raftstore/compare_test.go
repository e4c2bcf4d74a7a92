package raftstore

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/watch"
)

// saveDirectory returns a copy of the directory of a node that is closed.
func saveDirectory(t *testing.T, m *testNode) string {
	t.Helper()
	saved := filepath.Join(t.TempDir(), "saved")
	must.OK(t, os.CopyFS(saved, os.DirFS(m.dir)))
	return saved
}

func (c *cluster) putBack(m *testNode, saved string) {
	c.t.Helper()
	must.OK(c.t, os.RemoveAll(m.dir))
	must.OK(c.t, os.CopyFS(m.dir, os.DirFS(saved)))
}

func (c *cluster) writes(m *testNode, n int) {
	c.t.Helper()
	for i := range n {
		_, err := m.Propose(c.ctx(), write(fmt.Sprint("k", i), "v"))
		must.OK(c.t, err)
	}
}

func (c *cluster) level(nodes ...*testNode) {
	c.t.Helper()
	at := c.leader().Applied()
	for _, m := range nodes {
		must.OK(c.t, m.WaitApplied(c.ctx(), at))
	}
}

// knows waits until a node has evidence of what another one has acknowledged.
func (c *cluster) knows(m, of *testNode) {
	c.t.Helper()
	want := uint64(of.Applied())
	c.eventually(fmt.Sprintf("%s knows what %s has acknowledged", m.id, of.id), func() error {
		if p := m.comparison.known.of(of.id).before(1); p.committed < want {
			return fmt.Errorf("up to %d of %d", p.committed, want)
		}
		return nil
	})
}

// TestOldCopyOfADirectory: a node comes back with an older copy of its directory. b is put back, l has led, o is
// the other one.
func TestOldCopyOfADirectory(t *testing.T) {
	// In the tests that say so, b leads when it acknowledges what it loses.
	const leads = ", which it led"
	for name, there := range map[string]func(c *cluster, l, o *testNode){
		"to a follower" + leads:      func(c *cluster, l, o *testNode) { c.close(o) },
		"to all followers" + leads:   func(c *cluster, l, o *testNode) {},
		"to a restarted one" + leads: func(c *cluster, l, o *testNode) { c.close(l); c.close(o); c.open(l) },
		"to its leader":              func(c *cluster, l, o *testNode) { c.close(o) },
		"to a leader that was restarted": func(c *cluster, l, o *testNode) {
			c.close(l)
			c.open(l)
			c.leader()
		},
		"when all were restarted": func(c *cluster, l, o *testNode) {
			c.close(l)
			c.close(o)
			c.open(l)
			c.open(o)
		},
		"to one that never led, without the leader": func(c *cluster, l, o *testNode) { c.close(l) },
		"to one that never led, restarted, without the leader": func(c *cluster, l, o *testNode) {
			c.close(l)
			c.close(o)
			c.open(o)
		},
		"behind a change of leader, without the new one": func(c *cluster, l, o *testNode) {
			c.makeLeader(o.id)
			c.close(o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 3, silent)
			l := c.leader()
			b := c.other(l)
			var o *testNode
			for _, m := range c.nodes {
				if m != l && m != b {
					o = m
				}
			}
			c.writes(l, 20)
			c.level(b, o)
			c.close(b)
			saved := saveDirectory(t, b)
			c.open(b)
			if strings.HasSuffix(name, leads) {
				c.makeLeader(b.id)
			}
			c.writes(c.leader(), 40)
			c.level(l, b, o)
			c.knows(l, b)
			c.knows(o, b)
			c.close(b)
			there(c, l, o)
			c.putBack(b, saved)
			c.open(b)
			var found error
			c.eventually("it is found", func() error {
				select {
				case found = <-b.fatal:
					return nil
				default:
					return fmt.Errorf("b has applied %d", b.Applied())
				}
			})
			if !errors.Is(found, ErrEntriesLost) {
				t.Fatal(found)
			}
			for _, m := range []*testNode{l, o} {
				if m.Store == nil {
					continue
				}
				if lost := m.Status().Lost; len(lost) == 1 && lost[0].NodeId == string(b.id) {
					found = nil
				}
			}
			if found != nil {
				t.Error("no status names the node that has lost entries")
			}
			for _, m := range []*testNode{l, o} {
				if m.Store != nil && m.comparison.sound(c.ctx(), b.id, 0) {
					t.Errorf("%s finds that b has what it had", m.id)
				}
			}
			if err := b.comparison.Must("a", "nowhere"); !errors.Is(err, ErrEntriesLost) {
				t.Errorf("it answers another node: %v", err)
			}
			cfg := b.cfg
			b.dead = true
			c.close(b)
			// The next start needs nobody who knows.
			if _, err := Open(cfg); !errors.Is(err, ErrEntriesLost) {
				t.Errorf("the next start: %v", err)
			}
		})
	}
}

// TestCopyBesideTheMember: a process with an older copy of the directory of a member that runs is refused, and nobody says of
// the member that it has lost entries. Where that is said nevertheless it is taken back, and the member does not repeat it.
func TestCopyBesideTheMember(t *testing.T) {
	for _, role := range []string{"follower", "leader"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 3, silent)
			b := c.other(c.leader())
			c.writes(c.leader(), 20)
			c.level(b)
			c.close(b)
			copied := &testNode{id: b.id, dir: saveDirectory(t, b), fatal: make(chan error, 16)}
			c.open(b)
			if role == "leader" {
				c.makeLeader(b.id)
			}
			c.writes(c.leader(), 40)
			all := []*testNode{c.nodes["a"], c.nodes["b"], c.nodes["c"]}
			c.level(all...)
			for _, m := range all {
				if m != b {
					c.knows(m, b)
				}
			}
			c.open(copied)
			defer c.close(copied)
			copied.dead = true
			select {
			case err := <-copied.fatal:
				if !errors.Is(err, ErrEntriesLost) {
					t.Fatal(err)
				}
			case <-c.ctx().Done():
				t.Fatal("the copy is not refused")
			}
			said := &proto.LostEntries{NodeId: string(b.id), ToNodeId: "x", Committed: uint64(b.Applied()), FoundUnix: time.Now().Add(time.Hour).Unix()}
			for _, m := range all {
				if lost := m.Lost(); len(lost) > 0 {
					t.Errorf("%s says: %v", m.id, lost)
				}
				_, _, before := m.comparison.known.all()
				m.comparison.hear(nil, []*proto.LostEntries{said})
				if _, _, after := m.comparison.known.all(); m != b && after == before {
					t.Errorf("%s did not take it over", m.id)
				}
				if lost := b.Lost(); len(lost) > 0 {
					t.Errorf("the member says of itself: %v", lost)
				}
			}
			for _, m := range all {
				c.eventually("it is taken back", func() error {
					if lost := m.Lost(); len(lost) > 0 {
						return fmt.Errorf("%s says: %v", m.id, lost)
					}
					return nil
				})
			}
			c.writes(c.leader(), 1)
			c.level(b)
		})
	}
}

// TestNothingLost: nodes that are restarted in any order, again and again, and one that gets back a copy of what it
// had when it stopped, have lost nothing.
func TestNothingLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, silent)
	for round := range 4 {
		l := c.leader()
		c.writes(l, 10)
		for _, m := range c.nodes {
			if (round+int(m.id[0]))%2 == 0 {
				c.close(m)
				if round == 2 {
					c.putBack(m, saveDirectory(t, m))
				}
				c.open(m)
				c.leader()
			}
		}
	}
	all := []*testNode{c.nodes["a"], c.nodes["b"], c.nodes["c"]}
	c.writes(c.leader(), 10)
	c.level(all...)
	for _, m := range all {
		if len(m.fatal) > 0 {
			t.Error(<-m.fatal)
		}
		for _, o := range all {
			if o != m {
				c.eventually("all have compared", func() error {
					if !m.comparison.compared(raft.ServerID(o.id)) {
						return errors.New("not yet")
					}
					return nil
				})
			}
		}
		if lost := m.Lost(); len(lost) > 0 {
			t.Error(lost)
		}
	}
}

// TestPromisesAreNotOfAnEarlierProcess: what a node acknowledges is never taken for what it had acknowledged before it
// started, however the two have compared: here the one that dials is not the one that has started.
func TestPromisesAreNotOfAnEarlierProcess(t *testing.T) {
	t.Parallel()
	f := newFaults()
	c := newCluster(t, 3, func(cfg *Config) {
		f.install(cfg)
		silent(cfg)
	})
	l := c.leader()
	b := c.other(l)
	c.writes(l, 10)
	c.level(b)
	c.knows(l, b)
	for range 3 {
		c.close(b)
		f.mu.Lock()
		for _, m := range c.nodes {
			if m != b {
				f.calls[[2]proto.NodeID{b.id, m.id}] = true // b calls nobody
			}
		}
		f.mu.Unlock()
		c.writes(c.leader(), 10)
		c.open(b)
		c.makeLeader(l.id)
		c.writes(l, 10)
		c.level(b)
		if got, want := l.comparison.startOf(raft.ServerID(b.id)), b.comparison.start; got != want {
			t.Errorf("%s takes b for process %x, it is %x", l.id, got, want)
		}
		c.eventually("what b has acknowledged is known as its own", func() error {
			for _, p := range l.comparison.evidence(b.id) {
				if at := uint64(b.Applied()); p.start == b.comparison.start && p.committed >= at {
					return nil
				} else if p.start != b.comparison.start && p.committed >= at {
					t.Fatalf("%+v is noted as an earlier process's: b is %x", p, b.comparison.start)
				}
			}
			return errors.New("not yet")
		})
	}
}

// TestLateAnswers: an answer of a process that has ended neither passes for that of the next one, nor lets what that one
// has acknowledged count against it.
func TestLateAnswers(t *testing.T) {
	var c comparison
	c.peers = map[raft.ServerID]peerStart{"n": {start: 1}}
	for _, x := range []struct {
		name       string
		was, start uint64
		now        uint64
		counts     bool
	}{
		{"the same process", 1, 1, 1, true},
		{"the next one", 1, 2, 2, true},
		{"late, of the one before", 1, 1, 2, false},
		{"a release that says no start", 2, 0, 2, true},
		{"the one after it", 2, 3, 3, true},
	} {
		if got := c.answered("n", x.was, x.start); got != x.counts || c.peers["n"].start != x.now {
			t.Errorf("%s: %v, it is %d", x.name, got, c.peers["n"].start)
		}
	}
	c.peers["n"] = peerStart{start: 1, asking: 2, challenge: 7}
	if !c.answered("n", 1, 3) || c.proves("n", 2, 7) != nil {
		t.Errorf("process 2 passes with its challenge, and 3 has answered: %+v", c.peers["n"])
	}
	evidence := promises{{start: 1, term: 1, index: 10}}
	c.peers["n"] = peerStart{start: 1, asking: 2, challenge: 7, evidence: evidence}
	for _, x := range [][2]uint64{{1, 7}, {2, 8}, {2, 0}, {3, 7}} {
		if c.proves("n", x[0], x[1]) != nil {
			t.Errorf("process %d passes with challenge %d", x[0], x[1])
		}
	}
	if p := c.proves("n", 2, 7); p == nil || len(p.evidence) != 1 {
		t.Errorf("the process that was asked does not pass: %+v", p)
	}
}

// TestOneDialsForBoth: nodes of which only one can dial compare, also where they know each other's processes already; and a node
// that comes back with what it has is not listed as one that has lost entries.
func TestOneDialsForBoth(t *testing.T) {
	t.Parallel()
	f := newFaults()
	c := newCluster(t, 3, func(cfg *Config) { f.install(cfg) })
	l := c.leader()
	b := c.other(l)
	c.writes(l, 10)
	c.level(b)
	c.knows(l, b)
	f.mu.Lock()
	f.calls[[2]proto.NodeID{b.id, l.id}] = true
	f.mu.Unlock()
	b.comparison.Again(raft.ServerID(l.id))
	l.comparison.known.lose(&proto.LostEntries{NodeId: string(b.id)})
	l.comparison.Again(raft.ServerID(b.id))
	c.eventually("both have compared", func() error {
		if !b.Compared(l.id) || !l.Compared(b.id) {
			l.comparison.Again(raft.ServerID(b.id))
			return fmt.Errorf("b: %v, l: %v", b.Compared(l.id), l.Compared(b.id))
		}
		return nil
	})
	c.eventually("nothing is lost", func() error {
		if lost := l.Lost(); len(lost) > 0 {
			return fmt.Errorf("%v", lost)
		}
		return nil
	})
}

// TestPromises: what is broken by which start.
func TestPromises(t *testing.T) {
	var a acknowledged
	a.note("n", promise{start: 1, term: 3, index: 50, committed: 40})
	a.note("n", promise{start: 2, term: 5, index: 0, committed: 45}) // a vote, and what others have said
	for _, tt := range []struct {
		start, term, last uint64
		broken            bool
	}{
		{3, 5, 45, false}, // entries behind what is committed may have been cut in term 5
		{3, 6, 45, false},
		{3, 5, 44, true},
		{3, 9, 44, true},
		{3, 4, 90, true}, // the vote is gone
		{2, 3, 50, false},
		{2, 3, 49, true},
		{2, 4, 40, false},
		{1, 5, 45, false},
		{1, 4, 50, true},
	} {
		if got := a.of("n").before(tt.start).broken(tt.term, tt.last); got != tt.broken {
			t.Errorf("start %d in term %d at %d: %v", tt.start, tt.term, tt.last, got)
		}
	}
	if p := a.of("m").before(3); p.broken(0, 0) {
		t.Errorf("of a node that is not known: %+v", p)
	}
}

// TestStartsAreBounded: only so many are kept, and a start that is heard of again, late, by way of others, is never counted with
// one that may be alive.
func TestStartsAreBounded(t *testing.T) {
	var a acknowledged
	a.note("n", promise{start: 100, term: 9, index: 900})
	for range 3 {
		for start := range uint64(3 * keptStarts) {
			a.note("n", promise{start: start + 1, term: start%8 + 1, index: 10 * (start + 1)})
			if p := a.of("n").before(100); p.term >= 9 {
				t.Fatalf("what start 100 has acknowledged counts against it: %+v", p)
			}
		}
	}
	if n := len(a.starts["n"]); n != keptStarts {
		t.Errorf("%d starts are kept", n)
	}
	a.note("n", promise{term: 10, index: 1})
	if p := a.of("n").before(3); p.term == 10 {
		t.Error("what nobody has acknowledged counts")
	}
	a.keep(func(proto.NodeID) bool { return false })
	if known, lost, _ := a.all(); len(known)+len(lost) > 0 {
		t.Error(known, lost)
	}
}

func FuzzNotes(f *testing.F) {
	b, err := encodeNote(&proto.AcknowledgedFile{
		Format: noteFormat, ClusterId: "c", Known: []*proto.Acknowledgement{{NodeId: "n", Start: 1, Term: 2, Index: 3}}, Lost: []*proto.LostEntries{{NodeId: "m"}},
	})
	must.OK(f, err)
	f.Add(b)
	f.Add(b[:9])
	f.Fuzz(func(t *testing.T, b []byte) {
		var n proto.AcknowledgedFile
		if decodeNote(b, &n) != nil {
			return
		}
		again, err := encodeNote(&n)
		must.OK(t, err)
		if err := decodeNote(again, &n); err != nil {
			t.Error(err)
		}
	})
}

// TestReadOnlyShowsInNotes: a node with nothing to write in its log notices a read-only file system by its notes.
func TestReadOnlyShowsInNotes(t *testing.T) {
	for options, want := range map[string]bool{"size=1m,ro": true, "size=0,nr_inodes=1": false, "size=1m": false} {
		s := newStore(Config{Dir: mounted(t, options), Logger: slog.New(slog.DiscardHandler)})
		s.notes.write(marksFile, "how old the history is", &proto.HistoryMarksFile{Format: noteFormat})
		if got := s.disks.readOnly.Load(); got != want {
			t.Errorf("%s: %v", options, got)
		}
		s.node.Close()
	}
}

// TestAcknowledgedIsNotWritten: that the file cannot be written is said once, and that it is written again, however often it is tried.
func TestAcknowledgedIsNotWritten(t *testing.T) {
	var lines strings.Builder
	dir := filepath.Join(t.TempDir(), "later")
	s := newStore(Config{Dir: dir, Cluster: func() proto.ClusterID { return "c" }, Logger: slog.New(slog.NewTextHandler(&lines, nil))})
	defer s.node.Close()
	s.hub = watch.New(mvcc.New())
	defer s.hub.Close()
	c := comparison{node: s.node, notes: s.notes}
	for i := range uint64(200) {
		if i == 100 {
			must.OK(t, os.Mkdir(dir, 0o700))
		}
		c.known.note("n2", promise{start: 1, term: i + 1})
		c.writeAcknowledged()
	}
	for text, want := range map[string]int{"cannot write what other nodes have acknowledged": 1, "is written again": 1, "\n": 2} {
		if got := strings.Count(lines.String(), text); got != want {
			t.Errorf("%q %d times, want %d:\n%s", text, got, want, &lines)
		}
	}
}
