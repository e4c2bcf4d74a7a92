//go:build linux

package raftstore

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
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/wal"
	"github.com/quorate/quorate/test/chaos/lazyfs"
)

var noSpaceAll = flag.Bool("nospaceall", false, "have TestNoSpaceAtEveryOperation begin at every operation, not at some")

// TestNoSpaceAtEveryOperation has a process do with a node's directory what Raft does, on a disk that has no room from one of its
// operations on: no space, a quota, or read-only. The process does not end, and loses nothing: it goes on, also through
// starts on the full disk, until there is room again.
func TestNoSpaceAtEveryOperation(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	t.Parallel()
	for _, with := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS} {
		t.Run(with.Error(), func(t *testing.T) {
			for seed := uint64(1); seed <= 2; seed++ {
				all := noSpaceRun(t, seed, 0, with)
				if all < 50 {
					t.Fatalf("seed %d: %d operations", seed, all)
				}
				points := 12
				if testing.Short() {
					points = 4
				}
				step := max(1, all/int64(points))
				if *noSpaceAll {
					step = 1
				}
				for from := int64(1); from <= all && !t.Failed(); from += step {
					noSpaceRun(t, seed, from, with)
				}
				t.Logf("seed %d: %d operations, no space from each %d. on", seed, all, step)
			}
		})
	}
}

// noSpaceRun returns how many operations took room.
func noSpaceRun(t *testing.T, seed uint64, from int64, with syscall.Errno) int64 {
	t.Helper()
	d, dir := lazyfs.New(), t.TempDir()
	unmount, err := d.Mount(dir, func(f func() error) error { return f() })
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unmount(); err != nil {
			t.Error(err)
		}
	}()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), noSpaceDir+"="+dir, fmt.Sprintf("%s=%d", crashWorkSeed, seed))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer hung.Stop()
	lines := bufio.NewScanner(out)
	await := func(what string) bool { return lines.Scan() && lines.Text() == what }
	goOn := func() { _, _ = io.WriteString(in, "\n") }
	operations := int64(0)
	if await("ready") {
		d.Refuse(from, with)
		if with == syscall.EROFS && from > 0 { // a term or a vote waits
			time.AfterFunc(200*time.Millisecond, d.Heal)
		}
		goOn()
		if await("full") {
			operations = d.Operations()
			d.Heal()
			goOn()
			await("done")
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("seed %d, %v from operation %d on: %v\n%s", seed, with, from, err, stderr.String())
	}
	return operations
}

// noSpaceDir is the variable of the process that works.
const noSpaceDir = "QUORATE_NOSPACE_DIR"

func init() { childWork[noSpaceDir] = noSpaceWork }

// fuller works on a directory as Raft does. Terms of entries are by index, less one.
type fuller struct {
	dir     string
	rng     *rand.Rand
	node    *crashNode
	term    uint64
	log     []uint64 // with what was cut off its beginning
	first   uint64
	commit  uint64
	applied uint64
	refused int
}

func noSpaceWork(dir string) {
	w := &fuller{dir: filepath.Join(dir, "n"), first: 1, term: 1}
	var seed uint64
	_, err := fmt.Sscan(os.Getenv(crashWorkSeed), &seed)
	w.must(err)
	w.rng = rand.New(rand.NewPCG(seed, 2))
	stdin := bufio.NewReader(os.Stdin)
	say := func(what string) {
		fmt.Println(what)
		_, err := stdin.ReadString('\n')
		w.must(err)
	}
	w.start()
	w.nextTerm()
	for range 10 {
		w.step()
	}
	w.must(w.node.log.Reserve())
	say("ready")
	for range 120 {
		w.step()
	}
	say("full")
	w.must(w.eventually(w.node.log.Reserve))
	w.must(w.eventually(w.node.db.Sync))
	for range 40 {
		w.step()
	}
	w.refused = 0
	w.store(3)
	w.snapshot()
	if w.refused > 0 {
		w.must(errors.New("with room a change is refused"))
	}
	w.check()
	w.stop()
	w.start()
	w.check()
	w.stop()
	fmt.Println("done")
}

// eventually is for what waits a moment before it tries again.
func (w *fuller) eventually(f func() error) (err error) {
	for range 100 {
		if err = f(); !errors.Is(err, disk.ErrNoRoom) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// must ends the process.
func (w *fuller) must(errs ...error) {
	err := errors.Join(errs...)
	if err == nil && w.node != nil {
		err = w.node.fatal()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "the process that works, at %d of %d to %d: %v\n", w.commit, w.first, w.last(), err)
		os.Exit(1)
	}
}

// noRoom reports whether a change was refused; any other error ends the process.
func (w *fuller) noRoom(err error) bool {
	if err == nil || !wal.NoRoom(err) && !errors.Is(err, disk.ErrNoRoom) {
		w.must(err)
		return false
	}
	w.must()
	w.refused++
	return true
}

func (w *fuller) last() uint64 { return uint64(len(w.log)) }

func (w *fuller) step() {
	switch p := w.rng.IntN(100); {
	case p < 45:
		w.store(1 + w.rng.IntN(5))
	case p < 65:
		if w.commit < w.last() {
			w.commit += 1 + w.rng.Uint64N(w.last()-w.commit)
			w.apply()
		}
	case p < 72:
		w.noRoom(w.node.db.Sync())
	case p < 78:
		w.nextTerm()
		if w.commit < w.last() {
			w.truncate(w.commit + 1 + w.rng.Uint64N(w.last()-w.commit))
		}
	case p < 90:
		w.snapshot()
	case p < 94:
		w.noRoom(w.node.log.Reserve())
	default:
		w.stop()
		w.start()
	}
}

func (w *fuller) start() {
	var cluster proto.ClusterID
	if w.commit >= clusterEntry {
		cluster = crashCluster
	}
	node, err := openCrashNode(w.dir, cluster)
	for deadline := time.Now().Add(20 * time.Second); errors.Is(err, syscall.EROFS) && time.Now().Before(deadline); {
		_ = node.Close() // a node does not start where it cannot write
		time.Sleep(10 * time.Millisecond)
		node, err = openCrashNode(w.dir, cluster)
	}
	w.node = node
	w.must(err)
	_, last, err := bounds(w.node.log)
	w.must(err)
	for w.last() < last { // the beginning of a batch that was not acknowledged, and not taken back either
		l := new(raft.Log)
		w.must(w.node.log.GetLog(w.last()+1, l))
		w.log = append(w.log, l.Term)
	}
	w.applied = w.node.snapshots.Index()
	w.apply()
}

func (w *fuller) stop() { w.must(w.node.Close()) }

func (w *fuller) nextTerm() {
	w.term++
	w.must(w.node.log.SetUint64(raftTerm, w.term),
		w.node.log.SetUint64([]byte("LastVoteTerm"), w.term), w.node.log.Set([]byte("LastVoteCand"), []byte("x")))
}

func (w *fuller) store(n int) {
	var logs []*raft.Log
	for i := range n {
		logs = append(logs, crashEntry(w.last()+uint64(i)+1, w.term))
	}
	err := w.node.asRaft().StoreLogs(logs)
	if errors.Is(err, disk.ErrNoRoom) && w.node.fatal() != nil {
		w.node.mu.Lock() // the process ends, and begins with what is there
		w.node.fatals = nil
		w.node.mu.Unlock()
		_ = w.node.Close()
		w.refused++
		w.start()
		return
	}
	if w.noRoom(err) {
		if _, last, err := bounds(w.node.log); err != nil || last != w.last() && w.last() >= w.first {
			w.must(fmt.Errorf("a refused write: the log ends at %d, want %d: %v", last, w.last(), err))
		}
		return
	}
	for range logs {
		w.log = append(w.log, w.term)
	}
}

func (w *fuller) truncate(from uint64) {
	if !w.noRoom(w.node.asRaft().DeleteRange(from, w.last())) {
		w.log = w.log[:from-1]
		w.store(1 + w.rng.IntN(3))
	}
}

func (w *fuller) apply() {
	var batch []*raft.Log
	for i := w.applied + 1; i <= w.commit; i++ {
		l := new(raft.Log)
		w.must(w.node.asRaft().GetLog(i, l))
		w.applied = i
		if l.Type != raft.LogNoop {
			batch = append(batch, l)
		}
	}
	if len(batch) > 0 {
		w.node.fsm.ApplyBatch(batch)
	}
	w.must()
}

func (w *fuller) snapshot() {
	if w.applied == 0 || w.node.snapshots.Written() >= w.applied {
		return
	}
	data, err := w.node.fsm.Snapshot()
	if w.noRoom(err) {
		return
	}
	at := configurationAt(w.applied)
	sink, err := w.node.snapshots.Create(1, w.applied, w.log[w.applied-1], membersAt(at), at, nil)
	if w.noRoom(err) || w.noRoom(data.Persist(sink)) {
		return
	}
	upTo := min(w.applied, w.last()-min(w.last(), crashTrailing))
	if upTo >= w.first && !w.noRoom(w.node.asRaft().DeleteRange(w.first, upTo)) {
		first, _, err := bounds(w.node.log)
		w.must(err)
		w.first = first
	}
}

// check compares all that is there with what was acknowledged.
func (w *fuller) check() {
	first, last, err := bounds(w.node.log)
	w.must(err)
	if last != w.last() {
		w.must(fmt.Errorf("the log ends at %d, want %d", last, w.last()))
	}
	for i := first; i <= last; i++ {
		l, want := new(raft.Log), crashEntry(i, w.log[i-1])
		w.must(w.node.log.GetLog(i, l))
		if l.Term != want.Term || !bytes.Equal(l.Data, want.Data) {
			w.must(fmt.Errorf("entry %d is of term %d, want %d", i, l.Term, want.Term))
		}
	}
	state, b := mvcc.New(), disk.Batch{}
	for i, term := range w.log[:w.commit] {
		w.must(applyTo(state, crashEntry(uint64(i)+1, term), &b))
	}
	state.Publish()
	if got, want := w.node.hub.State().Mark(), state.Mark(); got.Hash != want.Hash || got.Applied != want.Applied {
		w.must(fmt.Errorf("the state is at %d with %x, want %d with %x", got.Applied, got.Hash, want.Applied, want.Hash))
	}
	if term, err := w.node.log.GetUint64(raftTerm); err != nil || term != w.term {
		w.must(fmt.Errorf("the term is %d, want %d: %v", term, w.term, err))
	}
}
