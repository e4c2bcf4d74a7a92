package raftstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Variables of the process whose file operations are recorded.
const (
	crashWorkDir    = "QUORATE_CRASH_DIR"
	crashWorkSeed   = "QUORATE_CRASH_SEED"
	crashWorkSteps  = "QUORATE_CRASH_STEPS"
	crashWorkBefore = "QUORATE_CRASH_BEFORE" // empty: it starts on an empty directory
)

// crashCluster is the id of the cluster, from the entry at clusterEntry on.
const (
	crashCluster = "model"
	clusterEntry = 2
)

// isConfiguration and isNoop are entries without a command.
func isConfiguration(index uint64) bool { return index == 1 || index%61 == 0 }
func isNoop(index uint64) bool          { return index%29 == 0 && !isConfiguration(index) }

// configurationAt is the index of the newest configuration up to an index.
func configurationAt(index uint64) uint64 { return max(1, index/61*61) }

// crashEntry is the entry at an index, of a term: always the same one.
func crashEntry(index, term uint64) *raft.Log {
	l := &raft.Log{Index: index, Term: term, Type: raft.LogCommand, AppendedAt: time.Unix(int64(index), 0).UTC()}
	rng := rand.New(rand.NewPCG(index, term))
	var kind proto.Kind
	var m proto.Message
	switch {
	case isConfiguration(index):
		l.Type, l.Data = raft.LogConfiguration, raft.EncodeConfiguration(membersAt(index))
		return l
	case isNoop(index):
		l.Type = raft.LogNoop
		return l
	case index == clusterEntry:
		kind, m = proto.KindCluster, &proto.Cluster{ClusterId: crashCluster, FeatureVersion: mvcc.FeatureVersion}
	case index%23 == 0:
		kind, m = proto.KindCompact, &proto.Compact{Floor: index - min(index, 20+rng.Uint64N(30))}
	default:
		value := make([]byte, 20+rng.IntN(700))
		if rng.IntN(12) == 0 {
			value = make([]byte, crashSegment+rng.IntN(crashSegment))
		}
		for i := range value {
			value[i] = byte('a' + rng.IntN(26))
		}
		if rng.IntN(3) == 0 {
			clear(value[len(value)/3:]) // whole sectors of zeros, if it is long
		}
		id := make([]byte, proto.RequestIDSize)
		for i := range id {
			id[i] = byte(rng.Uint32())
		}
		w := &proto.Write{
			Table: fmt.Sprintf("t%d", rng.IntN(3)), Key: fmt.Sprintf("ns/k%03d", rng.IntN(25)), Op: proto.Op_OP_PUT,
			Value: value, RevisionOffset: 5, Uid: fmt.Sprint(index), RequestId: id,
		}
		if rng.IntN(4) == 0 {
			w.Op, w.Value = proto.Op_OP_DELETE, nil
		}
		kind, m = proto.KindWrite, w
	}
	var err error
	if l.Data, err = proto.Encode(kind, m); err != nil {
		panic(err)
	}
	return l
}

const (
	crashSegment  = 8 << 10
	crashReserve  = 16 << 10
	crashTrailing = 8 // entries that stay in front of a snapshot, as Config.Limits.TrailingLogs
)

// crashNode is a store up to Raft. Its owner does what Raft does.
type crashNode struct {
	*Store
	mu     sync.Mutex
	fatals []error
}

// openCrashNode opens a directory as Open does. What it returns beside an error is to be closed as well.
func openCrashNode(dir string, cluster proto.ClusterID) (*crashNode, error) {
	n := &crashNode{}
	cfg := Config{
		Dir: dir, Node: "n", Transport: struct{ raft.Transport }{}, Peers: struct{ Peers }{},
		Cluster: func() proto.ClusterID { return cluster },
		Fatal: func(err error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.fatals = append(n.fatals, err)
		},
		Logger:    slog.New(slog.DiscardHandler),
		TestHooks: TestHooks{SegmentBytes: crashSegment}, Limits: Limits{ReserveBytes: 2 * crashReserve},
	}
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	n.Store = newStore(cfg)
	if err := n.openFiles(); err != nil {
		return n, err
	}
	restore, err := n.snapshots.NeedsRestore()
	if err == nil && restore {
		err = n.restoreSnapshot()
	}
	return n, errors.Join(err, n.fatal())
}

// fatal is what ended the process, or nil.
func (n *crashNode) fatal() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return errors.Join(n.fatals...)
}

// restoreSnapshot takes the newest snapshot.
func (n *crashNode) restoreSnapshot() error {
	list, err := n.snapshots.List()
	if err != nil {
		return err
	}
	_, rc, err := n.snapshots.Open(list[0].ID)
	if err != nil {
		return err
	}
	return errors.Join(n.fsm.Restore(rc), rc.Close())
}

// asRaft is the log as Raft sees it.
func (n *crashNode) asRaft() logBehind {
	return logBehind{n.log, n.snapshots, func(raft.LogStore, []*raft.Log) {}}
}

// report is a line of the process that works: what it is about to do, or what it has acknowledged.
type report struct {
	What      string
	Index     uint64   `json:",omitempty"`
	Term      uint64   `json:",omitempty"`
	Terms     []uint64 `json:",omitempty"` // of entries, from Index on
	Voted     uint64   `json:",omitempty"` // the term of the vote
	Candidate string   `json:",omitempty"`
	Agrees    bool     `json:",omitempty"` // the log has the last entry of a snapshot
}

// worker works on a directory as Raft does. Terms of entries are by index, less one.
type worker struct {
	dir     string
	rng     *rand.Rand
	node    *crashNode
	term    uint64
	history []uint64 // what the cluster has committed
	log     []uint64 // also what was cut off its beginning
	first   uint64   // entry in the log
	commit  uint64   // what this node knows to be committed
	applied uint64   // the last entry that the state machine was given
	flush   sync.WaitGroup
}

func (w *worker) say(s report) {
	b, err := json.Marshal(s)
	w.must(err)
	_, err = os.Stdout.Write(append(b, '\n'))
	w.must(err)
}

// must ends the process.
func (w *worker) must(errs ...error) {
	err := errors.Join(errs...)
	if err == nil && w.node != nil {
		err = w.node.fatal()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the process that works:", err)
		os.Exit(1)
	}
}

func (w *worker) last() uint64 { return uint64(len(w.log)) }

// crashWork is the process that works.
func crashWork(dir string) {
	w := &worker{dir: dir, first: 1}
	seed, err := strconv.ParseUint(os.Getenv(crashWorkSeed), 10, 64)
	w.must(err)
	steps, err := strconv.Atoi(os.Getenv(crashWorkSteps))
	w.must(err)
	w.rng = rand.New(rand.NewPCG(seed, 1))
	if text := os.Getenv(crashWorkBefore); text != "" {
		var b before
		w.must(json.Unmarshal([]byte(text), &b))
		w.startAgain(b)
	} else {
		w.start()
		w.nextTerm(true)
	}
	for range steps {
		w.step()
	}
	w.stop()
}

func (w *worker) step() {
	switch p := w.rng.IntN(100); {
	case p < 40:
		w.store(1 + w.rng.IntN(5))
	case p < 62:
		w.commitSome()
	case p < 72: // the next change meets it
		w.flush.Go(func() { _ = w.node.db.Sync() }) // its error is fatal
	case p < 80:
		w.nextTerm(w.rng.IntN(2) == 0)
		w.reconcile()
		if settled := max(w.commit, uint64(len(w.history))); settled < w.last() {
			w.truncate(settled + 1 + w.rng.Uint64N(w.last()-settled))
			w.store(1 + w.rng.IntN(3))
		}
	case p < 87:
		w.snapshot()
	case p < 92:
		w.install()
	case p < 95:
		w.flush.Wait() // it would abandon the copy
		w.must(w.node.db.Shrink())
	default:
		w.stop()
		w.start()
	}
}

// start opens the node, and has applied again what it has behind its snapshot.
func (w *worker) start() {
	var cluster proto.ClusterID
	if w.commit >= clusterEntry {
		cluster = crashCluster
	}
	node, err := openCrashNode(w.dir, cluster)
	w.node = node
	w.must(err)
	w.applied = w.node.snapshots.Index()
	if w.applied > w.commit { // it begins at the state, which a snapshot has brought ahead
		w.commit = w.applied
		w.say(report{What: "committed", Index: w.commit})
	}
	w.apply()
}

// before is what the cluster knows when a process starts on what a kill has left.
type before struct {
	History []uint64
	Commit  uint64
}

// startAgain starts on what a kill has left, and says what it has, as Raft tells other nodes.
func (w *worker) startAgain(b before) {
	w.history, w.commit = b.History, b.Commit
	w.start()
	log := w.node.log
	first, last, err := bounds(log)
	w.must(err)
	has := report{What: "has", Index: max(first, 1)}
	// The error of a key that is absent is as a zero.
	has.Term, _ = log.GetUint64(raftTerm)
	has.Voted, _ = log.GetUint64([]byte("LastVoteTerm"))
	candidate, _ := log.Get([]byte("LastVoteCand"))
	has.Candidate = string(candidate)
	for i := has.Index; i <= last; i++ {
		var l raft.Log
		w.must(log.GetLog(i, &l))
		has.Terms = append(has.Terms, l.Term)
	}
	w.say(has)
	w.term, w.first = has.Term, first
	w.log = slices.Concat(w.history[:has.Index-1], has.Terms)
	if last == 0 {
		w.log = slices.Clone(w.history[:w.node.snapshots.Index()])
		w.first = w.last() + 1
	}
	if w.term == 0 {
		w.nextTerm(true)
	}
}

func (w *worker) stop() {
	w.flush.Wait()
	w.must(w.node.Close())
}

// nextTerm is that of a new leader, for which this node may vote.
func (w *worker) nextTerm(vote bool) {
	w.term += 1 + w.rng.Uint64N(2)
	if w.term == 1 {
		w.term = 2 // 1 alone is an interrupted bootstrap
	}
	w.must(w.node.log.SetUint64(raftTerm, w.term))
	w.say(report{What: "term", Term: w.term})
	if vote {
		s := report{What: "voting", Voted: w.term, Candidate: fmt.Sprint("of ", w.term)}
		w.say(s)
		w.must(w.node.log.SetUint64([]byte("LastVoteTerm"), w.term), w.node.log.Set([]byte("LastVoteCand"), []byte(s.Candidate)))
		w.say(report{What: "voted"})
	}
}

// store appends entries of the leader: what was committed, then new ones.
func (w *worker) store(n int) {
	w.reconcile()
	var logs []*raft.Log
	s := report{What: "storing", Index: w.last() + 1}
	for range n {
		term := w.term
		if w.last() < uint64(len(w.history)) {
			term = w.history[w.last()]
		}
		w.log = append(w.log, term)
		s.Terms = append(s.Terms, term)
		logs = append(logs, crashEntry(w.last(), term))
	}
	w.say(s)
	w.must(w.node.asRaft().StoreLogs(logs))
	w.say(report{What: "stored"})
}

// reconcile cuts off what the cluster has committed other entries in place of.
func (w *worker) reconcile() {
	for i := w.commit; i < min(w.last(), uint64(len(w.history))); i++ {
		if w.log[i] != w.history[i] {
			w.truncate(i + 1)
			return
		}
	}
}

func (w *worker) truncate(from uint64) {
	w.say(report{What: "truncating", Index: from})
	w.must(w.node.asRaft().DeleteRange(from, w.last()))
	w.say(report{What: "truncated", Index: from})
	w.log = w.log[:from-1]
}

func (w *worker) commitSome() {
	w.reconcile()
	if w.commit == w.last() {
		return
	}
	w.commit += 1 + w.rng.Uint64N(w.last()-w.commit)
	if w.commit > uint64(len(w.history)) {
		w.extend(w.log[:w.commit])
	}
	w.say(report{What: "committed", Index: w.commit})
	w.apply()
}

// extend makes the history longer.
func (w *worker) extend(history []uint64) {
	from := len(w.history)
	w.history = slices.Clone(history)
	w.say(report{What: "history", Index: uint64(from) + 1, Terms: w.history[from:]})
}

// apply gives the state machine what is committed.
func (w *worker) apply() {
	var batch []*raft.Log
	for i := w.applied + 1; i <= w.commit; i++ {
		l := new(raft.Log)
		w.must(w.node.asRaft().GetLog(i, l))
		if l.Type != raft.LogNoop {
			batch = append(batch, l)
			w.applied = i
		}
	}
	if len(batch) > 0 {
		w.node.fsm.ApplyBatch(batch)
	}
	w.must()
}

// snapshot is one of this node's, behind which the log is cut.
func (w *worker) snapshot() {
	if w.applied == 0 || w.node.snapshots.Written() >= w.applied {
		return
	}
	data, err := w.node.fsm.Snapshot()
	w.must(err)
	at := configurationAt(w.applied)
	sink, err := w.node.snapshots.Create(1, w.applied, w.history[w.applied-1], membersAt(at), at, nil)
	w.must(err)
	w.must(data.Persist(sink))
	w.compact(w.applied)
}

// compact cuts the log behind a snapshot.
func (w *worker) compact(snapshot uint64) {
	upTo := min(snapshot, w.last()-min(w.last(), crashTrailing))
	if upTo < w.first {
		return
	}
	w.say(report{What: "cutting", Index: upTo})
	w.must(w.node.asRaft().DeleteRange(w.first, upTo))
	w.first = upTo + 1
}

// install is a snapshot of another leader. It has committed some of this node's entries, and others in place of the
// rest. The data is ahead of the snapshot's index.
func (w *worker) install() {
	w.nextTerm(false)
	index := w.commit + 1 + w.rng.Uint64N(30)
	data := index + w.rng.Uint64N(5)
	history := slices.Clone(w.history)
	follows := slices.Equal(w.history[:min(len(w.history), len(w.log))], w.log[:min(len(w.history), len(w.log))])
	for i := len(history); uint64(i) < data; i++ {
		if follows = follows && i < len(w.log) && w.rng.IntN(8) > 0; follows {
			history = append(history, w.log[i])
		} else {
			history = append(history, w.term)
		}
	}
	agrees := index <= w.last() && w.log[index-1] == history[index-1]
	if agrees && configurationAt(w.last()) > index {
		return // the node would refuse it: see wouldForgetMembers
	}
	if len(history) > len(w.history) {
		w.extend(history)
	}
	w.say(report{What: "installing", Index: index, Agrees: agrees})
	at := configurationAt(index)
	sink, err := w.node.snapshots.Create(1, index, w.history[index-1], membersAt(at), at, nil)
	w.must(err)
	w.must(writeSnapshotAt(w.history[:data], sink), sink.Close())
	err = w.node.restoreSnapshot()
	if errors.Is(err, ErrDeadEntries) {
		_ = w.node.Close()
		w.node = nil
		w.start()
		err = nil
	}
	w.must(err)
	w.commit, w.applied = index, index
	if agrees {
		w.compact(index)
	} else {
		w.log, w.first = slices.Clone(w.history[:index]), index+1
	}
	w.say(report{What: "installed", Index: index})
}

// writeSnapshotAt writes a snapshot of the state behind a history.
func writeSnapshotAt(history []uint64, to io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "leader")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db, err := disk.Open(dir, disk.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	state, b := mvcc.New(), disk.Batch{}
	for i, term := range history {
		if err := applyTo(state, crashEntry(uint64(i)+1, term), &b); err != nil {
			return err
		}
	}
	state.Publish()
	b.State = state.StateRecord()
	db.Record(b)
	if err := db.Sync(); err != nil {
		return err
	}
	_, err = db.WriteBackup(to, nil)
	return err
}

// applyTo applies an entry to a state, and notes what that changes.
func applyTo(state *mvcc.State, l *raft.Log, b *disk.Batch) error {
	switch l.Type {
	case raft.LogNoop:
		return nil
	case raft.LogConfiguration:
		state.Advance(proto.RaftIndex(l.Index), proto.Term(l.Term))
		return nil
	}
	r, err := state.Apply(proto.RaftIndex(l.Index), proto.Term(l.Term), l.Data)
	if err != nil {
		return err
	}
	if r.Version != nil {
		b.Added = append(b.Added, disk.Added{Table: r.Table.Name(), Version: r.Version})
	}
	b.Removed = append(b.Removed, r.Removed...)
	return nil
}
