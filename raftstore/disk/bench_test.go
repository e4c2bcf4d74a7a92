package disk

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// bigDir makes a state of n live 1-KiB objects.
func bigDir(b *testing.B, n int) string {
	b.Helper()
	dir := b.TempDir()
	live := make([]Added, 0, n)
	value := make([]byte, 1024)
	for i := range n {
		live = append(live, Added{"configmaps", (&mvcc.Version{
			Key: fmt.Sprintf("ns-%d/object-%d", i%100, i), Revision: proto.Revision(i + 1), CreateRevision: proto.Revision(i + 1),
			UID:    "0b8f4e1c-1111-2222-3333-444455556666",
			Labels: mvcc.AttributesOf(mvcc.Pair{Name: "app", Value: "x"}), Fields: mvcc.AttributesOf(mvcc.Pair{Name: "spec.nodeName", Value: "y"}),
		}).SetValue(value)})
	}
	if err := buildState(dir, live, &proto.StateRecord{Applied: uint64(n), AppliedTerm: 1, Floor: uint64(n)}); err != nil {
		b.Fatal(err)
	}
	return dir
}

// A start: the file is checked, opened, and loaded.
func BenchmarkOpenAndLoad(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			dir := bigDir(b, n)
			b.SetBytes(int64(n) * 1024)
			for b.Loop() {
				db, err := Open(dir, Options{})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := db.Load(); err != nil {
					b.Fatal(err)
				}
				if err := db.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/record")
		})
	}
}

func BenchmarkWriteSnapshot(b *testing.B) {
	const n = 100_000
	db := mustOpen(b, bigDir(b, n), Options{})
	b.SetBytes(n * 1024)
	for b.Loop() {
		if _, err := db.WriteBackup(io.Discard, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInstall: what a node does with a snapshot from the leader, from the first byte to the
// state that is shown: Raft copies the stream into the sink, closes that, and restores.
func BenchmarkInstall(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			leader := mustOpen(b, bigDir(b, n), Options{})
			for b.Loop() {
				b.StopTimer()
				runtime.GC()
				db := mustOpen(b, b.TempDir(), Options{})
				snaps, err := NewSnapshotStore(db, db.dir)
				must.OK(b, err)
				follower := &node{db: db, snaps: snaps}
				from, err := leader.openStream()
				must.OK(b, err)
				b.SetBytes(from.size)
				sink, err := follower.create(uint64(n))
				must.OK(b, err)
				b.StartTimer()
				// Only Read: Raft counts what it reads.
				_, err = io.Copy(sink, struct{ io.Reader }{from})
				must.OK(b, err)
				must.OK(b, sink.Close())
				must.OK(b, follower.restore(sink.ID()))
				b.StopTimer()
				must.OK(b, from.Close())
				must.OK(b, db.Close())
				must.OK(b, os.RemoveAll(db.dir))
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/record")
		})
	}
}

// BenchmarkFlush: a second's writes of a busy node, and the versions that the history's floor passes.
func BenchmarkFlush(b *testing.B) {
	for _, n := range []int{20, 2000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			const objects = 100_000
			db := mustOpen(b, bigDir(b, objects), Options{FlushEvery: 1 << 60, Reserve: 32 << 20})
			value := make([]byte, 1024)
			next := proto.Revision(objects)
			for b.Loop() {
				var batch Batch
				for range n {
					next++
					batch.Added = append(batch.Added, Added{"configmaps", (&mvcc.Version{
						Key: fmt.Sprintf("ns-%d/object-%d", next%100, next%objects), Revision: next, CreateRevision: 1,
						UID: "0b8f4e1c-1111-2222-3333-444455556666",
					}).SetValue(value)})
					batch.Removed = append(batch.Removed, next-objects)
				}
				batch.State = &proto.StateRecord{Applied: uint64(next), AppliedTerm: 1, Floor: uint64(next - objects)}
				db.Record(batch)
				must.OK(b, db.Sync())
			}
			b.ReportMetric(float64(db.Size())/(1<<20), "MiB")
		})
	}
}

// BenchmarkShrink: a compact copy, from its first record to its last sync. A pause follows each MiB.
func BenchmarkShrink(b *testing.B) {
	const n = 100_000
	db := mustOpen(b, bigDir(b, n), Options{})
	to := filepath.Join(b.TempDir(), stateFile)
	b.SetBytes(n * 1024)
	for b.Loop() {
		must.OK(b, copyRecords(b.Context(), db.file, to))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/record")
}
