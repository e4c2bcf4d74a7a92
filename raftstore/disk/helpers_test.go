package disk

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// model is a deterministic history: entry i is always the same, so that the
// state at any index can be made again and compared.
type model struct {
	state *mvcc.State
	next  uint64
}

func newModel() *model { return &model{state: mvcc.New(), next: 1} }

// modelTerm is the term of the entry at an index.
func modelTerm(index uint64) proto.Term { return proto.Term(1 + index/500) }

// entries keeps the entries that were made, by index: most tests of a process apply the same ones.
var entries sync.Map

// entry is the log entry at an index.
func entry(index uint64) []byte {
	if b, ok := entries.Load(index); ok {
		return b.([]byte)
	}
	b := makeEntry(index)
	entries.Store(index, b)
	return b
}

func makeEntry(index uint64) []byte {
	rng := rand.New(rand.NewPCG(index, 7))
	kind, m := proto.KindWrite, proto.Message(nil)
	switch {
	case index == 1:
		kind, m = proto.KindCluster, &proto.Cluster{ClusterId: "model", FeatureVersion: 3}
	case index%40 == 0:
		kind, m = proto.KindCompact, &proto.Compact{Floor: index - min(index, 60+rng.Uint64N(30))}
	default:
		value := make([]byte, 20+rng.IntN(900))
		if rng.IntN(50) == 0 {
			value = make([]byte, 20_000)
		}
		for i := 0; i < len(value); {
			// A random number for each letter would take longer than all that is tested here.
			for x, n := rng.Uint64(), min(len(value), i+16); i < n; i++ {
				value[i] = 'a' + byte(x&15)
				x >>= 4
			}
		}
		id := make([]byte, proto.RequestIDSize)
		for i := range id {
			id[i] = byte(rng.Uint32())
		}
		w := &proto.Write{
			Table: fmt.Sprintf("t%d", rng.IntN(3)), Key: fmt.Sprintf("ns/k%03d", rng.IntN(60)), Op: proto.Op_OP_PUT,
			Value: value, RevisionOffset: 5, Uid: fmt.Sprint(index), RequestId: id,
			Labels: []*proto.Attribute{{Name: "app", Value: fmt.Sprint(rng.IntN(5))}},
		}
		if rng.IntN(4) == 0 {
			w.Op, w.Value = proto.Op_OP_DELETE, nil
		}
		m = w
	}
	b, err := proto.Encode(kind, m)
	if err != nil {
		panic(err)
	}
	return b
}

// apply applies the next n entries and returns what they changed.
func (m *model) apply(n int) Batch {
	var b Batch
	for range n {
		r, err := m.state.Apply(proto.RaftIndex(m.next), modelTerm(m.next), entry(m.next))
		if err != nil {
			panic(err)
		}
		if r.Version != nil {
			b.Added = append(b.Added, Added{r.Table.Name(), r.Version})
		}
		b.Removed = append(b.Removed, r.Removed...)
		m.next++
	}
	m.state.Publish()
	b.State = m.state.StateRecord()
	return b
}

// modelAt is the state at an index.
func modelAt(index proto.Revision) *mvcc.State {
	m := newModel()
	if index > 0 {
		m.apply(int(index))
	}
	return m.state
}

// dump writes down everything that readers can see of a state.
func dump(s *mvcc.State) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%+v floor %d\n", s.Mark(), s.Floor())
	for _, name := range []string{"t0", "t1", "t2"} {
		t := s.Table(name)
		if t == nil {
			continue
		}
		page, err := t.Range(mvcc.Query{At: s.Applied()})
		if err != nil {
			return err.Error()
		}
		for _, v := range page.Versions {
			fmt.Fprintf(&b, "%s %s %d %d %s %v\n", name, v.Key, v.Revision, v.CreateRevision, v.Value(), v.Labels)
		}
		cursor, err := t.Watch(s.Floor())
		if err != nil {
			return err.Error()
		}
		history := make([]*mvcc.Version, 10_000)
		n, err := cursor.Next(history, s.Applied())
		if err != nil {
			return err.Error()
		}
		for _, v := range history[:n] {
			prev := proto.Revision(0)
			if v.Prev() != nil {
				prev = v.Prev().Revision
			}
			fmt.Fprintf(&b, "%s history %s %d %v %d %x\n", name, v.Key, v.Revision, v.Deleted, prev, v.RequestID)
		}
	}
	return b.String()
}

// checkState compares a loaded state with the model at its own index.
func checkState(s *mvcc.State) error {
	if err := s.Check(); err != nil {
		return err
	}
	want, ok := dumps.Load(s.Applied())
	if !ok {
		want = sha256.Sum256([]byte(dump(modelAt(s.Applied()))))
		dumps.Store(s.Applied(), want)
	}
	if sha256.Sum256([]byte(dump(s))) != want {
		return fmt.Errorf("state at %d is not the model's", s.Applied())
	}
	return nil
}

// dumps keeps digests of the model's dumps, by revision: many tests come to the same ones.
var dumps sync.Map

// shortSegments are for logs of a few hundred entries. A start reads all of the segments that are prepared,
// and those of the default size have megabytes.
var shortSegments = LogOptions{SegmentBytes: 64 << 10}

// smallReserve is for tests: they have many files in memory.
const smallReserve = 64 << 10

func mustOpen(t testing.TB, dir string, o Options) *DB {
	t.Helper()
	if o.Reserve == 0 {
		o.Reserve = smallReserve
	}
	db, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func mustLoad(t testing.TB, db *DB) *mvcc.State {
	t.Helper()
	s, err := db.Load()
	if err != nil {
		t.Fatal(err)
	}
	if err := checkState(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// stateDir makes a data directory whose state is the model's at index n.
func stateDir(t testing.TB, n int) string {
	t.Helper()
	dir := t.TempDir()
	db := mustOpen(t, dir, Options{})
	m := newModel()
	for left := n; left > 0; left -= 25 {
		db.Record(m.apply(min(left, 25)))
		if left%4 == 0 {
			must.OK(t, db.Sync())
		}
	}
	must.OK(t, db.Close())
	return dir
}

// backup is the snapshot stream of the model's state at index n.
func backup(t testing.TB, n int) []byte {
	t.Helper()
	db := mustOpen(t, stateDir(t, n), Options{})
	var b bytes.Buffer
	if _, err := db.WriteBackup(&b, nil); err != nil {
		t.Fatal(err)
	}
	must.OK(t, db.Close())
	return b.Bytes()
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	must.OK(t, err)
	must.OK(t, os.WriteFile(to, b, fileMode))
}

func fileNames(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must.OK(t, err)
	for _, e := range entries {
		names = append(names, filepath.Base(e.Name()))
	}
	return names
}

var testServers = raft.Configuration{Servers: []raft.Server{
	{Suffrage: raft.Voter, ID: "a", Address: "127.0.0.1:1"},
	{Suffrage: raft.Nonvoter, ID: "b", Address: "127.0.0.1:2"},
}}
