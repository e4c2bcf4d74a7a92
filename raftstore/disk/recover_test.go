package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

var recoveryTime = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

func recoverOptions() RecoverOptions {
	return RecoverOptions{
		Cluster: "new", Now: recoveryTime, Configuration: testServers,
		Stage: func(dir string) error { return writeFile(dir, "node.json", []byte("new")) },
	}
}

// survivorDir makes the directory of a node that was killed: the state at applied,
// and the log from first to last. A snapshot at index snapshot of a term is beside
// them if term is not zero.
func survivorDir(t testing.TB, dir string, applied, first, last int, snapshot, term uint64) {
	t.Helper()
	db := mustOpen(t, dir, Options{})
	m := newModel()
	db.Record(m.apply(applied))
	must.OK(t, errors.Join(db.Sync(), db.Close()))
	log, err := OpenLog(dir, shortSegments)
	must.OK(t, err)
	var entries []*raft.Log
	for i := uint64(first); i <= uint64(last); i++ {
		entries = append(entries, &raft.Log{Index: i, Term: uint64(modelTerm(i)), Type: raft.LogCommand, Data: entry(i)})
	}
	// What a node has taken from a term, it has written the term down for.
	must.OK(t, log.SetUint64(raftTerm, max(term, uint64(modelTerm(uint64(max(applied, last)))))))
	if len(entries) > 0 {
		must.OK(t, log.StoreLogs(entries))
	}
	must.OK(t, log.Close())
	if term != 0 {
		meta := newMeta(snapshot, term, testServers, 1)
		meta.DataIndex = min(snapshot, uint64(applied))
		must.OK(t, meta.write(dir))
	}
	must.OK(t, os.WriteFile(filepath.Join(dir, "node.json"), []byte("old"), fileMode))
}

// liveIn writes down the live keys of a state.
func liveIn(s *mvcc.State) string {
	live, err := liveVersions(s)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, a := range live {
		fmt.Fprintf(&b, "%s %s %d %d %s\n", a.Table, a.Version.Key, a.Version.Revision, a.Version.CreateRevision, a.Version.Value())
	}
	return b.String()
}

// TestRecover recovers survivors of several kinds and compares what is there with
// the history up to the last entry of it that the log has.
func TestRecover(t *testing.T) {
	for _, c := range []struct {
		name                 string
		applied, first, last int
		snapshot, term       uint64
		upTo                 int // what is kept
		dead                 uint64
		lost                 bool
		err                  error
	}{
		{name: "nothing behind the state", applied: 700, first: 1, last: 700, upTo: 700},
		{name: "a tail", applied: 700, first: 1, last: 1234, upTo: 1234},
		{name: "a tail behind a snapshot", applied: 700, first: 600, last: 800, snapshot: 650, term: 2, upTo: 800},
		{name: "a tail right behind a snapshot", applied: 700, first: 701, last: 800, snapshot: 700, term: 2, upTo: 800},
		{name: "a received snapshot and no log", applied: 700, first: 1, last: 0, snapshot: 700, term: 2, upTo: 700},
		{name: "dead entries behind a snapshot", applied: 700, first: 600, last: 800, snapshot: 700, term: 9, upTo: 700, dead: 100},
		{name: "nothing applied yet", applied: 0, first: 1, last: 50, upTo: 50},
		{name: "an old log", applied: 700, first: 1, last: 300, upTo: 700, lost: true},
		{name: "no log", applied: 700, first: 1, last: 0, upTo: 700, lost: true},
		{name: "a hole", applied: 700, first: 702, last: 800, snapshot: 650, term: 2, err: ErrDamaged},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			survivorDir(t, dir, c.applied, c.first, c.last, c.snapshot, c.term)
			s, err := InspectSurvivor(dir)
			if !errors.Is(err, c.err) {
				t.Fatalf("inspect: %v, want %v", err, c.err)
			}
			if c.err != nil {
				return
			}
			if s.Applied != proto.Revision(c.applied) || s.Dead != c.dead || s.LogLost != c.lost || s.Tail != c.upTo-c.applied || s.LastIndex != uint64(c.upTo) {
				t.Errorf("inspected: %+v", s)
			}
			done, err := Recover(dir, recoverOptions())
			must.OK(t, err)
			checkRecovered(t, dir, c.upTo)
			if b, err := os.ReadFile(filepath.Join(done.Aside, "node.json")); err != nil || string(b) != "old" {
				t.Errorf("what was there before: %q %v", b, err)
			}
		})
	}
}

// checkRecovered opens a recovered directory as a node does.
func checkRecovered(t *testing.T, dir string, upTo int) {
	t.Helper()
	for _, name := range fileNames(t, dir) {
		if !slices.Contains(recovered, name) && !strings.HasPrefix(name, RecoverAside) {
			t.Errorf("%s is left", name)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "node.json")); err != nil || string(b) != "new" {
		t.Errorf("node.json: %q %v", b, err)
	}
	db := mustOpen(t, dir, Options{})
	defer db.Close()
	state, err := db.Load()
	must.OK(t, err)
	first := proto.Revision(recoveryTime.Unix() * ticksPerSecond)
	if m := state.Mark(); m.Applied != first || state.Floor() != first || m.Cluster != "new" {
		t.Errorf("it begins at %+v, floor %d, want %d", m, state.Floor(), first)
	}
	if got, want := liveIn(state), liveIn(modelAt(proto.Revision(upTo))); got != want {
		t.Errorf("the objects are not those at %d", upTo)
	}
	snapshots, err := NewSnapshotStore(db, dir)
	must.OK(t, err)
	if list, err := snapshots.List(); err != nil || len(list) != 1 || list[0].Index != uint64(first) || len(list[0].Configuration.Servers) != len(testServers.Servers) {
		t.Errorf("snapshots: %+v %v", list, err)
	}
}

// TestRecoverDivided: a log of another history is not applied.
func TestRecoverDivided(t *testing.T) {
	dir := t.TempDir()
	survivorDir(t, dir, 700, 1, 650, 0, 0)
	log, err := OpenLog(dir, shortSegments)
	must.OK(t, err)
	must.OK(t, log.StoreLogs(logs(9, 651, 800, 10)))
	must.OK(t, log.Close())
	if _, err := Recover(dir, recoverOptions()); !errors.Is(err, ErrDivided) {
		t.Errorf("recovered: %v", err)
	}
	if _, err := InspectSurvivor(t.TempDir()); !errors.Is(err, ErrNoState) {
		t.Errorf("an empty directory: %v", err)
	}
}

// TestSurvivorLogLost: whose raft.db is reported as lost. The state that came with a
// snapshot may be ahead of the snapshot's index; a raft.db that was emptied is lost also
// where the snapshot covers all of the state.
func TestSurvivorLogLost(t *testing.T) {
	const applied = 700
	for _, c := range []struct {
		name        string
		first, last int
		index, data uint64 // of the snapshot
		local       bool   // it is of this node itself
		forget      bool   // raft.db is emptied
		lost        bool
		upTo        int // what is kept
	}{
		{name: "just installed, the data is ahead of the index", first: 1, last: 0, index: 650, data: applied, upTo: applied},
		{name: "installed, and the log has not reached the data", first: 651, last: 680, index: 650, data: applied, upTo: applied},
		{name: "installed, and the log has passed the data", first: 651, last: 720, index: 650, data: applied, upTo: 720},
		{name: "the state has gone on from the data, the log has not", first: 651, last: 680, index: 650, data: 690, lost: true, upTo: applied},
		{name: "emptied right after a local snapshot", first: 600, last: applied, index: applied, data: applied, forget: true, lost: true, upTo: applied},
		{name: "emptied behind a local snapshot", first: 600, last: 800, index: 650, data: 650, forget: true, lost: true, upTo: applied},
		{name: "of this node itself, with data ahead of its index, and an old copy of the log", first: 600, last: applied - 1, index: 650, data: applied, local: true, lost: true, upTo: applied},
		{name: "of this node itself, with data ahead of its index", first: 600, last: applied, index: 650, data: applied, local: true, upTo: applied},
		{name: "entries without a command behind the state", first: 600, last: 720, index: 710, data: applied, upTo: 720},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			survivorDir(t, dir, applied, c.first, c.last, c.index, uint64(modelTerm(c.index)))
			meta, err := readMeta(dir)
			must.OK(t, err)
			meta.DataIndex = c.data
			if c.local {
				meta.Received = new(uint64)
			}
			must.OK(t, meta.write(dir))
			if c.forget {
				must.OK(t, os.Truncate(filepath.Join(dir, stableFile), 0))
			}
			s, err := InspectSurvivor(dir)
			must.OK(t, err)
			if s.LogLost != c.lost || s.LastIndex != uint64(c.upTo) {
				t.Errorf("lost %v, ends at %d, want %v, %d: %+v", s.LogLost, s.LastIndex, c.lost, c.upTo, s)
			}
		})
	}
}

// TestRecoverWrongState: a state that was found to be wrong is recovered only if that
// is said; then a node starts on it.
func TestRecoverWrongState(t *testing.T) {
	dir := t.TempDir()
	survivorDir(t, dir, 300, 1, 345, 0, 0)
	must.OK(t, writeFile(dir, wrongStateFile, []byte("evidence")))
	if _, err := Recover(dir, recoverOptions()); !errors.Is(err, ErrWrongState) {
		t.Errorf("recovered: %v", err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "node.json")); err != nil || string(b) != "old" {
		t.Errorf("the directory was changed: node.json is %q (%v)", b, err)
	}
	o := recoverOptions()
	o.AcceptWrongState = true
	done, err := Recover(dir, o)
	must.OK(t, err)
	checkRecovered(t, dir, 345)
	if b, err := os.ReadFile(filepath.Join(done.Aside, wrongStateFile)); err != nil || string(b) != "evidence" {
		t.Errorf("the evidence is not kept: %q %v", b, err)
	}
}

func childRecover(dir string) error {
	o := recoverOptions()
	o.AcceptWrongState = true
	_, err := Recover(dir, o)
	return err
}

// TestKillRecoverAtEveryFailpoint: a recovery that was killed has done nothing, or
// is finished by the next run; in between no node starts.
func TestKillRecoverAtEveryFailpoint(t *testing.T) {
	root := t.TempDir()
	survivor := filepath.Join(root, "survivor")
	survivorDir(t, survivor, 300, 1, 345, 0, 0)
	must.OK(t, writeFile(survivor, wrongStateFile, nil))
	for _, name := range []string{stateFile, stableFile} { // they are copied for each kill
		b, err := os.ReadFile(filepath.Join(survivor, name))
		must.OK(t, err)
		must.OK(t, os.WriteFile(filepath.Join(survivor, name), usedPages(t, b), fileMode))
	}
	all := filepath.Join(root, "all")
	must.OK(t, os.CopyFS(all, os.DirFS(survivor)))
	names := failpoints(t, "recover", all)
	halfway := 0
	for i, name := range names {
		dir := filepath.Join(root, strconv.Itoa(i))
		must.OK(t, os.CopyFS(dir, os.DirFS(survivor)))
		if out, err := child(t, "recover", dir, childKill+"="+strconv.Itoa(i+1)).CombinedOutput(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		finished, err := FinishRecovery(dir)
		must.OK(t, err)
		if finished {
			halfway++
		} else if b, err := os.ReadFile(filepath.Join(dir, "node.json")); err != nil || string(b) == "old" {
			must.OK(t, err)
			must.OK(t, childRecover(dir))
		}
		checkRecovered(t, dir, 345)
	}
	if halfway < len(recovered)+3 {
		t.Errorf("%d of %d kills were half way: %v", halfway, len(names), names)
	}
	survivorDir(t, filepath.Join(root, "marked"), 10, 1, 10, 0, 0)
	must.OK(t, writeFile(filepath.Join(root, "marked"), recoveringFile, []byte("elsewhere/x")))
	if _, err := Open(filepath.Join(root, "marked"), Options{}); !errors.Is(err, ErrRecovering) {
		t.Errorf("a node starts half way through a recovery: %v", err)
	}
	if _, err := FinishRecovery(filepath.Join(root, "marked")); !errors.Is(err, ErrDamaged) {
		t.Errorf("a mark that leads out of the directory: %v", err)
	}
}
