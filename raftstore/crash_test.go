package raftstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/mvcc"
)

var (
	crashSeed  = flag.Uint64("crashseed", 1, "seed of the first run of TestCrashAtEveryOperation")
	crashSeeds = flag.Uint64("crashseeds", 0, "how many runs it makes, with crashes after all operations; 0: some, with crashes after some")
)

// refusals are the errors by which a start may refuse what a crash has left, each with the crashes that
// leave it. A refusal that is not here fails the test: after a crash of the process or of the machine
// a node starts.
var refusals = []struct {
	name  string
	is    error
	text  string // in the error
	after []crash
	why   string
}{
	{
		name: "a torn sector of the log", is: disk.ErrDamaged, text: "frame at", after: []crash{inSector},
		why: "A disk writes a sector as a whole. What is half written is taken for damage, which is refused; it could be of an entry that was acknowledged.",
	},
	{
		name: "a torn header of a segment", is: disk.ErrDamaged, text: "wrong header", after: []crash{inSector},
		why: "As above. A header whose sector was not written at all is no header yet, and the segment is made again.",
	},
	{
		name: "a torn meta page of bbolt", is: disk.ErrDamaged, text: "meta page", after: []crash{inSector},
		why: "A meta page lies in one sector. If it does not hold, the vote in the other one may be an older one.",
	},
}

// TestCrashAtEveryOperation records what a process does with a node's directory: appends, truncations, votes,
// applied entries, snapshots of its own and of leaders, restarts. After each operation it makes directories as a kill or a
// power loss would leave them, and starts a node on each, up to Raft. Whatever was acknowledged has to be there.
func TestCrashAtEveryOperation(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is needed to record file operations: apt-get install strace")
	}
	if out, err := exec.CommandContext(t.Context(), strace, "-f", "--seccomp-bpf", "-qq", "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		t.Skipf("strace may not trace here: %v: %s", err, out)
	}
	seeds, steps, c := uint64(2), 60, crashes{strace: strace, points: 250, restarts: 10}
	switch {
	case *crashSeeds > 0:
		seeds, c.points, c.restarts = *crashSeeds, math.MaxInt, 30
	case testing.Short():
		seeds, steps, c.points, c.restarts = 1, 40, 60, 1
	}
	for seed := *crashSeed; seed < *crashSeed+seeds; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { c.run(t, seed, steps) })
	}
}

// crashes are those of one run.
type crashes struct {
	strace           string
	points, restarts int // how many operations to crash after, and renames and writes to start after
	t                *testing.T
	dir              string // in which a node is started
	rng              *rand.Rand
	seen             map[uint64]bool // directories since the last report
	count            int
	refused          map[string]int
}

// run makes all crashes of a seed.
func (c crashes) run(t *testing.T, seed uint64, steps int) {
	c.t, c.dir, c.rng, c.refused = t, filepath.Join(t.TempDir(), "n"), rand.New(rand.NewPCG(seed, 2)), map[string]int{}
	root := filepath.Join(t.TempDir(), "n")
	must.OK(t, os.Mkdir(root, 0o700))
	d, k := newModelDisk(), known{log: map[uint64]uint64{}, going: map[uint64]uint64{}, states: &historyStates{newest: mvcc.New()}}
	operations := c.record(root, d, fmt.Sprintf("%s=%d", crashWorkSeed, seed), fmt.Sprintf("%s=%d", crashWorkSteps, steps))
	var renames, writes []int // behind which a power loss may take something away
	for i, o := range operations {
		d.do(o)
		switch {
		case (o.kind == opRename || o.kind == opExchange) && filepath.Dir(o.path) == ".":
			renames = append(renames, i)
		case o.kind == opWrite:
			writes = append(writes, i)
		}
	}
	// What was recorded is what was done.
	for path, content := range d.after(killed, c.rng) {
		if content == nil {
			continue
		}
		if b, err := os.ReadFile(filepath.Join(root, path)); err != nil || !content.equal(b) {
			t.Fatalf("%s is not as it was recorded (%v)", path, err)
		}
	}
	restarts := map[int]bool{}
	for _, list := range [][]int{renames, writes} {
		for _, i := range c.rng.Perm(len(list))[:min(c.restarts, len(list))] {
			restarts[list[i]] = true
		}
	}
	d = newModelDisk()
	c.after(d, &k, operations, c.points, "", func(i int) {
		if restarts[i] {
			c.restart(d, &k, operations[i])
		}
	})
	t.Logf("%d operations, %d crashes, the log begins at %d, committed %d; refused: %v", len(operations), c.count, k.first(), k.commit, c.refused)
}

// record runs the process that works on a directory with the files of a disk, and returns its operations.
func (c *crashes) record(root string, d *modelDisk, env ...string) []operation {
	c.t.Helper()
	exe, err := os.Executable()
	must.OK(c.t, err)
	trace := filepath.Join(c.t.TempDir(), "trace")
	cmd := exec.CommandContext(c.t.Context(), c.strace, "-f", "--seccomp-bpf", "-qq", "-xx", "-s", "16777216", "-e", "signal=none", "-e", traced, "-o", trace, exe)
	cmd.Env = append(append(os.Environ(), crashWorkDir+"="+root), env...)
	var complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &complaints
	if err := cmd.Run(); err != nil {
		c.t.Fatalf("%v\n%s", err, complaints.String())
	}
	f, err := os.Open(trace)
	must.OK(c.t, err)
	defer f.Close()
	operations, err := readTrace(f, root, d)
	must.OK(c.t, err)
	return operations
}

// after crashes after all of some operations, or after some number of them. before says what was before them.
func (c *crashes) after(d *modelDisk, k *known, operations []operation, points int, before string, also func(i int)) {
	c.seen = map[uint64]bool{}
	for i, o := range operations {
		d.do(o)
		if o.kind == opSaid {
			for line := range bytes.Lines(o.data) {
				var s report
				must.OK(c.t, json.Unmarshal(line, &s))
				k.learn(s)
			}
			clear(c.seen)
			continue
		}
		if c.rng.IntN(len(operations)) < points {
			for _, how := range allCrashes {
				c.crash(d.after(how, c.rng), k, how, fmt.Sprintf("%soperation %d (%s), %s", before, i, o, how))
			}
		}
		also(i)
	}
}

// restart kills the process, starts another one on what is left, most of which only the page cache may have, and crashes that.
func (c *crashes) restart(d *modelDisk, k *known, o operation) {
	seen := c.seen
	defer func() { c.seen = seen }()
	d = d.clone()
	root := filepath.Join(c.t.TempDir(), "n")
	must.OK(c.t, d.after(killed, c.rng).put(root))
	text, err := json.Marshal(before{k.history, k.commit})
	must.OK(c.t, err)
	operations := c.record(root, d, fmt.Sprintf("%s=%d", crashWorkSeed, c.rng.Uint64()), crashWorkSteps+"=4", fmt.Sprintf("%s=%s", crashWorkBefore, text))
	c.after(d, k.clone(), operations, len(operations), fmt.Sprintf("a kill behind %s, a start, ", o), func(int) {})
}

func (c *crashes) crash(image directoryImage, k *known, how crash, where string) {
	sum := image.sum()
	if c.seen[sum] {
		return
	}
	c.seen[sum] = true
	c.count++
	must.OK(c.t, image.put(c.dir))
	refused, wrong := k.check(c.dir)
	if refused != nil {
		name := nameOfRefusal(refused, how)
		if c.refused[name]++; name == "" {
			wrong = fmt.Errorf("refused: %w", refused)
		}
	}
	if wrong != nil {
		kept := filepath.Join(c.t.ArtifactDir(), fmt.Sprint("crash", c.count))
		must.OK(c.t, image.put(kept))
		c.t.Errorf("%s: %v\nWith -artifacts the directory is kept: %s", where, wrong, kept)
	}
}

// nameOfRefusal returns the name of a refusal, or "" if it is not one of the table.
func nameOfRefusal(err error, after crash) string {
	for _, r := range refusals {
		if errors.Is(err, r.is) && strings.Contains(err.Error(), r.text) && slices.Contains(r.after, after) {
			return r.name
		}
	}
	return ""
}

// known is what is known of a node at some time. Terms are by index; those of the history by index, less one.
type known struct {
	term         uint64
	vote, voting string
	log          map[uint64]uint64 // entries that were acknowledged
	coming       map[uint64]uint64 // that are being stored: they may be there
	going        map[uint64]uint64 // that are being cut: they may be gone
	history      []uint64          // what the cluster has committed
	commit       uint64            // up to here the node has to have it
	installing   report

	states *historyStates
}

// historyStates are the states behind the entries of the history.
type historyStates struct {
	newest *mvcc.State
	sums   []uint64 // of all, by index less one
}

// clone is what is known when another process begins, whose history is another one from here on.
func (k *known) clone() *known {
	c := *k
	c.states = &historyStates{newest: mvcc.New()}
	c.log, c.coming, c.going, c.history = maps.Clone(k.log), maps.Clone(k.coming), maps.Clone(k.going), slices.Clip(k.history)
	return &c
}

// remembered is the id of its cluster that the node has outside the store.
func (k *known) remembered() proto.ClusterID {
	if k.commit >= clusterEntry {
		return crashCluster
	}
	return ""
}

func (k *known) learn(s report) {
	switch s.What {
	case "term":
		k.term = s.Term
	case "voting":
		k.voting = fmt.Sprint(s.Voted, s.Candidate)
	case "voted":
		k.vote = k.voting
	case "has": // after a start
		k.term, k.coming, k.log = s.Term, nil, map[uint64]uint64{}
		if s.Voted > 0 {
			k.vote = fmt.Sprint(s.Voted, s.Candidate)
		}
		for i, term := range s.Terms {
			k.log[s.Index+uint64(i)] = term
		}
	case "storing":
		k.coming = map[uint64]uint64{}
		for i, term := range s.Terms {
			k.coming[s.Index+uint64(i)] = term
		}
	case "stored":
		maps.Copy(k.log, k.coming)
		k.coming = nil
	case "truncating":
		k.leave(func(index uint64) bool { return index >= s.Index })
	case "cutting":
		k.leave(func(index uint64) bool { return index <= s.Index })
	case "truncated":
		maps.DeleteFunc(k.going, func(index, _ uint64) bool { return index >= s.Index })
	case "history":
		k.history = append(k.history, s.Terms...)
	case "committed":
		k.commit = s.Index
	case "installing":
		k.installing = s
		k.leave(func(index uint64) bool { return !s.Agrees || index <= s.Index })
	case "installed":
		k.commit = s.Index
		if !k.installing.Agrees {
			clear(k.going)
		}
	}
}

// leave notes that entries are being cut.
func (k *known) leave(some func(index uint64) bool) {
	for index, term := range k.log {
		if some(index) {
			k.going[index] = term
			delete(k.log, index)
		}
	}
}

func (k *known) first() uint64 {
	if len(k.log) == 0 {
		return 0
	}
	return slices.Min(slices.Collect(maps.Keys(k.log)))
}

// check starts a node on a directory. It returns why that was refused, or else what of the node is wrong.
func (k *known) check(dir string) (refused, wrong error) {
	n, err := openCrashNode(dir, k.remembered())
	if err != nil {
		return errors.Join(err, n.Close()), nil
	}
	wrong = k.checkNode(n)
	return nil, errors.Join(wrong, n.fatal(), n.Close())
}

func (k *known) checkNode(n *crashNode) error {
	first, last, err := bounds(n.log)
	if err != nil {
		return err
	}
	found := map[uint64]uint64{}
	for i := max(first, 1); i <= last; i++ {
		var l raft.Log
		if err := n.log.GetLog(i, &l); err != nil {
			return fmt.Errorf("a hole in entries %d to %d: entry %d: %w", first, last, i, err)
		}
		if want := crashEntry(i, l.Term); !bytes.Equal(l.Data, want.Data) || l.Type != want.Type || !l.AppendedAt.Equal(want.AppendedAt) {
			return fmt.Errorf("entry %d of term %d has other bytes", i, l.Term)
		}
		found[i] = l.Term
	}
	return errors.Join(k.checkVote(n), k.checkLog(found), k.checkState(n, found))
}

func (k *known) checkVote(n *crashNode) error {
	// The error of a key that is absent is as a zero.
	term, _ := n.log.GetUint64(raftTerm)
	if term < k.term {
		return fmt.Errorf("term %d, was %d", term, k.term)
	}
	voted, _ := n.log.GetUint64([]byte("LastVoteTerm"))
	candidate, _ := n.log.Get([]byte("LastVoteCand"))
	if vote := fmt.Sprint(voted, string(candidate)); k.vote != "" && vote != k.vote && vote != k.voting {
		return fmt.Errorf("vote %q, was %q or %q", vote, k.vote, k.voting)
	}
	return nil
}

// checkLog compares the log with what was acknowledged.
func (k *known) checkLog(found map[uint64]uint64) error {
	for index, term := range k.log {
		if found[index] != term {
			return fmt.Errorf("entry %d of term %d was acknowledged, and is of term %d (0: is gone)", index, term, found[index])
		}
	}
	for index, term := range found {
		if k.log[index] != term && k.coming[index] != term && k.going[index] != term {
			return fmt.Errorf("entry %d of term %d was cut, or was never stored", index, term)
		}
	}
	return nil
}

// checkState compares the state, and what of the history is in the log behind it, with the history.
func (k *known) checkState(n *crashNode, found map[uint64]uint64) error {
	state := n.fsm.hub.State()
	applied := uint64(state.Applied())
	if applied > uint64(len(k.history)) {
		return fmt.Errorf("the state is at %d, and the history ends at %d", applied, len(k.history))
	}
	if applied > 0 {
		want, err := k.stateAt(applied)
		if err != nil {
			return err
		}
		got, err := sumOfState(state)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("the state at %d is another one", applied)
		}
	}
	if err := state.Check(); err != nil {
		return err
	}
	snapshot, term, _ := n.snapshots.Newest()
	if snapshot > uint64(len(k.history)) || snapshot > 0 && k.history[snapshot-1] != term {
		return fmt.Errorf("a snapshot at %d of term %d is not of the history", snapshot, term)
	}
	if snapshot > 0 {
		index, members := newestConfiguration(n.snapshots)
		if want := configurationAt(snapshot); index != want || members.Servers[0].ID != membersAt(want).Servers[0].ID {
			return fmt.Errorf("the members of the snapshot at %d are those of %d, want those of %d", snapshot, index, want)
		}
	}
	for i := applied + 1; i <= k.commit; i++ {
		if found[i] != k.history[i-1] && !(i <= snapshot && isNoop(i)) {
			return fmt.Errorf("entry %d is committed, and neither in the state, which is at %d, nor in the log (%d)", i, applied, found[i])
		}
	}
	// It goes on.
	if next := max(snapshot, slices.Max(append(slices.Collect(maps.Keys(found)), 0))) + 1; next > 1 {
		if err := n.asRaft().StoreLogs([]*raft.Log{crashEntry(next, max(k.term, 2))}); err != nil {
			return fmt.Errorf("no entry can be stored: %w", err)
		}
	}
	return nil
}

// stateAt is the sum of the state behind an entry of the history.
func (k *known) stateAt(index uint64) (uint64, error) {
	c := k.states
	for i := uint64(len(c.sums)); i < index; i++ {
		if err := applyTo(c.newest, crashEntry(i+1, k.history[i]), &disk.Batch{}); err != nil {
			return 0, err
		}
		c.newest.Publish()
		sum, err := sumOfState(c.newest)
		if err != nil {
			return 0, err
		}
		c.sums = append(c.sums, sum)
	}
	return c.sums[index-1], nil
}

// sumOfState is of everything that readers see of a state.
func sumOfState(state *mvcc.State) (uint64, error) {
	h := xxhash.New()
	_, _ = fmt.Fprintf(h, "%+v floor %d\n", state.Mark(), state.Floor())
	for i := range 3 {
		table := state.Table(fmt.Sprintf("t%d", i))
		if table == nil {
			continue
		}
		page, err := table.Range(mvcc.Query{At: state.Applied()})
		if err != nil {
			return 0, err
		}
		for _, v := range page.Versions {
			_, _ = fmt.Fprintf(h, "%d %s %d %d %s\n", i, v.Key, v.Revision, v.CreateRevision, v.Value())
		}
	}
	return h.Sum64(), nil
}
