package disk

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/memdir"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

var crashTime = flag.Duration("crash", 3*time.Second, "how long to kill processes")

// Variables of a child process.
const (
	childMode = "QUORATE_DISK_CHILD" // which program to run
	childDir  = "QUORATE_DISK_DIR"
	childKill = "QUORATE_DISK_KILL" // at which failpoint to end, counted from 1
	childSeed = "QUORATE_DISK_SEED"
)

func TestMain(m *testing.M) {
	program, ok := map[string]func(string) error{
		"random": childRandom, "script": childScript, "backup": childBackup, "recover": childRecover, "full": childFull, "open": childOpen,
		"cut": childCut, "shrink": childShrink,
	}[os.Getenv(childMode)]
	if !ok {
		os.Exit(memdir.Main(m))
	}
	passed := 0
	kill, _ := strconv.Atoi(os.Getenv(childKill))
	failpoint = func(name string) {
		if passed++; passed == kill {
			dieNow()
		}
		if kill < 0 {
			fmt.Println("failpoint", name)
		}
	}
	if err := program(os.Getenv(childDir)); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// dieNow is kill -9 on ourselves.
func dieNow() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func child(t testing.TB, mode, dir string, env ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	must.OK(t, err)
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), childMode+"="+mode, childDir+"="+dir)
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// node is a data directory in use, as raft uses it.
type node struct {
	db    *DB
	snaps *SnapshotStore
	m     *model
}

// openNode is the start of a node: open, restore if a snapshot waits, load,
// and verify everything against the model.
func openNode(dir string) (*node, error) {
	db, err := Open(dir, Options{FlushEvery: 3 * time.Millisecond, Reserve: smallReserve})
	if err != nil {
		return nil, err
	}
	n := &node{db: db}
	if err := n.start(dir); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return n, nil
}

func (n *node) start(dir string) (err error) {
	if n.snaps, err = NewSnapshotStore(n.db, dir); err != nil {
		return err
	}
	restore, err := n.snaps.NeedsRestore()
	if err != nil {
		return err
	}
	if restore {
		list, err := n.snaps.List()
		if err != nil {
			return err
		}
		if err := n.restore(list[0].ID); err != nil {
			return err
		}
	}
	state, err := n.db.Load()
	if err != nil {
		return err
	}
	n.m = &model{state: state, next: uint64(state.Applied()) + 1}
	return checkState(state)
}

// restore is what raft does with a snapshot: Open, and FSM.Restore.
func (n *node) restore(id string) error {
	_, rc, err := n.snaps.Open(id)
	if err != nil {
		return err
	}
	defer rc.Close()
	state, err := n.db.Restore(rc)
	if err != nil {
		return err
	}
	n.m = &model{state: state, next: uint64(state.Applied()) + 1}
	return nil
}

func (n *node) create(index uint64) (raft.SnapshotSink, error) {
	return n.snaps.Create(1, index, uint64(modelTerm(index)), testServers, 1, nil)
}

// local takes a local snapshot.
func (n *node) local() error {
	if err := n.db.Sync(); err != nil {
		return err
	}
	sink, err := n.create(n.m.next - 1)
	if err != nil {
		return err
	}
	return LocalSnapshot{}.Persist(sink)
}

// install is what raft does with a snapshot from the leader. The data of it is
// newer than index by ahead.
func (n *node) install(path string, index uint64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	sink, err := n.create(index)
	if err != nil {
		return err
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{sink}, struct{ io.Reader }{f}, make([]byte, 5000)); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return err
	}
	return n.restore(sink.ID())
}

const streamStep = 400

func streamName(dir string, index uint64) string {
	return filepath.Join(filepath.Dir(dir), fmt.Sprintf("stream-%d", index))
}

// childRandom works at random, for ever, and says what has become durable.
func childRandom(dir string) error {
	n, err := openNode(dir)
	if err != nil {
		return err
	}
	seed, _ := strconv.ParseUint(os.Getenv(childSeed), 10, 64)
	rng := rand.New(rand.NewPCG(seed, 1))
	for {
		n.db.Record(n.m.apply(1 + rng.IntN(20)))
		switch rng.IntN(12) {
		case 0:
			err = n.db.Sync()
			fmt.Println("durable", n.m.next-1)
		case 1:
			err = n.local()
			fmt.Println("durable", n.m.next-1)
		case 2:
			next := (n.m.next/streamStep + 1) * streamStep
			if _, missing := os.Stat(streamName(dir, next)); missing != nil {
				return nil
			}
			// Not below a snapshot of its own: that would be late.
			err = n.install(streamName(dir, next), max(next-rng.Uint64N(20), n.snaps.Written()))
			fmt.Println("durable", n.m.next-1)
		}
		if err != nil {
			return err
		}
	}
}

func TestKillAtRandom(t *testing.T) {
	root := t.TempDir()
	for i := uint64(1); i <= 4; i++ {
		must.OK(t, os.WriteFile(streamName(filepath.Join(root, "x"), i*streamStep), backup(t, int(i*streamStep)), fileMode))
	}
	seed := rand.Uint64()
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := filepath.Join(root, "0")
	var kills, restored, floor int
	long := *crashTime
	if testing.Short() {
		long /= 2
	}
	for end := time.Now().Add(long); time.Now().Before(end); {
		cmd := child(t, "random", dir, childSeed+"="+strconv.FormatUint(rng.Uint64(), 10))
		var out bytes.Buffer
		cmd.Stdout = &out
		must.OK(t, cmd.Start())
		timer := time.AfterFunc(time.Duration(5+rng.IntN(120))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		timer.Stop()
		finished := err == nil
		if !finished && !strings.Contains(err.Error(), "killed") {
			t.Fatalf("child: %v\n%s", err, out.String())
		}
		kills++
		scanner := bufio.NewScanner(&out)
		for scanner.Scan() {
			if s, ok := strings.CutPrefix(scanner.Text(), "durable "); ok {
				if n, err := strconv.Atoi(s); err == nil {
					floor = max(floor, n)
				}
			}
		}
		if there, _ := exists(dir, incomingFile); there {
			restored++
		}
		n, err := openNode(dir)
		if err != nil {
			t.Fatalf("after %d kills: %v", kills, err)
		}
		if got := int(n.m.next) - 1; got < floor {
			t.Fatalf("after %d kills: state at %d, %d was durable", kills, got, floor)
		}
		must.OK(t, n.db.Close())
		if finished {
			floor = 0
			dir = filepath.Join(root, strconv.Itoa(kills))
		}
	}
	t.Logf("%d kills, %d of them with a received snapshot on disk", kills, restored)
	if kills < 3 {
		t.Fatal("too few kills to mean anything")
	}
}

// childScript passes every failpoint but those of backups, always in the same
// order.
func childScript(dir string) error {
	log, err := OpenLog(dir, shortSegments)
	if err != nil {
		return err
	}
	if err := log.Close(); err != nil {
		return err
	}
	n, err := openNode(dir)
	if err != nil {
		return err
	}
	stop := Options{FlushEvery: time.Hour, Reserve: smallReserve}
	if err := n.db.Close(); err != nil {
		return err
	}
	if n.db, err = Open(dir, stop); err != nil { // flushes only where the script says so
		return err
	}
	if n.snaps, err = NewSnapshotStore(n.db, dir); err != nil {
		return err
	}
	step := func(f func() error) {
		if err == nil {
			err = f()
		}
	}
	work := func() error {
		n.db.Record(n.m.apply(70))
		return nil
	}
	install := func(index uint64) func() error {
		return func() error { return n.install(streamName(dir, index), index-3) }
	}
	step(work)
	step(n.local)
	step(work)
	step(install(streamStep))
	step(work)
	step(install(2 * streamStep))
	step(n.local)
	step(work)
	step(n.db.Close)
	return err
}

func childBackup(dir string) error {
	f, err := os.Open(streamName(dir, streamStep))
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = RestoreBackup(dir, f, RestoreOptions{Cluster: "new", Configuration: testServers})
	return err
}

// failpoints lists what a program passes.
func failpoints(t *testing.T, mode, dir string) (names []string) {
	t.Helper()
	out, err := child(t, mode, dir, childKill+"=-1").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "failpoint "); ok {
			names = append(names, name)
		}
	}
	return names
}

// TestKillAtEveryFailpoint ends a process between any two steps. The script does most of them more than
// once: the short form does so between the first and the last ones of each kind.
func TestKillAtEveryFailpoint(t *testing.T) {
	root := t.TempDir()
	for i := uint64(1); i <= 2; i++ {
		must.OK(t, os.WriteFile(streamName(filepath.Join(root, "x"), i*streamStep), backup(t, int(i*streamStep)), fileMode))
	}
	names := failpoints(t, "script", filepath.Join(root, "all"))
	for _, want := range []string{
		"create", "rename." + stateFile, "flushed", "write." + spareFile, "synced." + spareFile, "exchanged." + metaFile, "allocated",
		"meta.written", "receive.records", "receive.synced", "rename." + incomingFile, "install.received",
		"replace.loaded", "replace.renamed", "wal.prepared", "log.segments", "log.created", "rename." + stableFile,
	} {
		if !strings.Contains(strings.Join(names, " ")+" ", want+" ") {
			t.Errorf("the script does not pass %s", want)
		}
	}
	var last int
	for i, name := range names {
		if testing.Short() && slices.Contains(names[:i], name) && slices.Contains(names[i+1:], name) {
			continue
		}
		dir := filepath.Join(root, strconv.Itoa(i))
		if out, err := child(t, "script", dir, childKill+"="+strconv.Itoa(i+1)).CombinedOutput(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		n, err := openNode(dir)
		if err != nil {
			t.Fatalf("killed at %s (%d): %v", name, i, err)
		}
		at := int(n.m.next) - 1
		if at < last {
			t.Errorf("killed at %s (%d): state at %d, a kill before that left %d", name, i, at, last)
		}
		last = at
		must.OK(t, n.local()) // it works on
		must.OK(t, n.db.Close())
		log, err := OpenLog(dir, shortSegments)
		if err != nil {
			t.Fatalf("killed at %s (%d): %v", name, i, err)
		}
		must.OK(t, log.Close())
		for _, f := range fileNames(t, dir) {
			if f != stateFile && f != metaFile && f != spareFile && f != firstFile && f != stableFile && f != segmentDir {
				t.Errorf("killed at %s (%d): %s is left", name, i, f)
			}
		}
	}
	if last < 2*streamStep {
		t.Fatalf("the script ended at %d", last)
	}
}

// TestKillBackupAtEveryFailpoint: a restore of a backup is whole, or refused.
func TestKillBackupAtEveryFailpoint(t *testing.T) {
	root := t.TempDir()
	stream := backup(t, streamStep)
	must.OK(t, os.WriteFile(streamName(filepath.Join(root, "x"), streamStep), stream, fileMode))
	names := failpoints(t, "backup", filepath.Join(root, "all"))
	refused := 0
	for i, name := range names {
		dir := filepath.Join(root, strconv.Itoa(i))
		if out, err := child(t, "backup", dir, childKill+"="+strconv.Itoa(i+1)).CombinedOutput(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		db, err := Open(dir, Options{})
		switch {
		case errors.Is(err, ErrUnfinished):
			refused++
		case err != nil:
			t.Fatalf("killed at %s: %v", name, err)
		default:
			// Before the mark: an empty directory, that a start makes a blank node of.
			if db.Durable() != 0 {
				t.Fatalf("killed at %s: state at %d without a mark", name, db.Durable())
			}
			must.OK(t, db.Close())
		}
		if _, err := RestoreBackup(dir, bytes.NewReader(stream), RestoreOptions{Cluster: "new", Configuration: testServers}); !errors.Is(err, ErrNotEmpty) {
			t.Fatalf("killed at %s: restored once more: %v", name, err)
		}
	}
	if refused < len(names)-2 {
		t.Fatalf("refused %d of %d", refused, len(names))
	}
}

// childOpen opens a directory and dumps the state, or says why not.
func childOpen(dir string) error {
	n, err := openNode(dir)
	if err != nil {
		return err
	}
	fmt.Println("applied", proto.Revision(n.m.next-1))
	return n.db.Close()
}
