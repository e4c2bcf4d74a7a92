package disk

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/wal"
)

// childFull writes until there is no room, and goes on for a while. It must not end.
func childFull(dir string) error {
	fatal := errors.New("none")
	db, err := Open(dir, Options{Reserve: smallReserve, Fatal: func(err error) { fatal = err }})
	if err != nil {
		return err
	}
	m := newModel()
	for range 200 {
		db.Record(m.apply(10))
		if err := db.Sync(); err != nil && !errors.Is(err, ErrNoRoom) {
			return err
		}
		_, waiting := db.Room()
		fmt.Println("durable", db.Durable(), "waiting", waiting, "fatal", fatal)
	}
	return db.Close()
}

func enospc(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EFBIG)
}

// smallDisk returns a directory on a file system of some size.
func smallDisk(t *testing.T, kib int, options ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", strings.Join(append(options, fmt.Sprintf("size=%dk", kib)), ","), "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("no mount (%v: %s)", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// fill takes all room of a small disk but some pages. A file that is there becomes as long as that needs.
func fill(t *testing.T, dir string, pages int) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "filler"), os.O_CREATE|os.O_RDWR, fileMode)
	must.OK(t, err)
	defer f.Close()
	must.OK(t, f.Truncate(0))
	for err := error(syscall.ENOSPC); wal.NoRoom(err); { // another writer may be quicker
		free, _ := freeBytes(f)
		n := free - int64(pages*os.Getpagesize())
		if n <= 0 {
			return
		}
		if err = allocate(f, 0, n); !wal.NoRoom(err) {
			must.OK(t, err)
		}
	}
}

// unfill makes room.
func unfill(t *testing.T, dir string) {
	t.Helper()
	must.OK(t, remove(dir, "filler"))
}

// noFatal fails a test.
func noFatal(t *testing.T) func(error) {
	return func(err error) { t.Errorf("fatal: %v", err) }
}

// sparsely makes files longer without allocating them, as file systems do that copy pages on every write: then bbolt's
// writes find that there is no room.
func sparsely(t *testing.T) {
	allocateRange = func(f *os.File, _, to int64) error { return f.Truncate(to) }
	t.Cleanup(func() { allocateRange = allocate })
}

// TestFileSizeLimit: a limit of the process is as a full disk. The other tests of those need mounts, and root.
func TestFileSizeLimit(t *testing.T) {
	dir := t.TempDir()
	cmd := child(t, "full", dir)
	exe := cmd.Path
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", "ulimit -f 1024; trap '' XFSZ; exec " + exe}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var durable int
	var last string
	for line := range strings.Lines(string(out)) {
		_, _ = fmt.Sscanf(line, "durable %d", &durable)
		last = line
	}
	if durable < 50 || durable == 2000 || !strings.Contains(last, "waiting true fatal none") {
		t.Fatalf("durable %d\n%s", durable, out)
	}
	db := mustOpen(t, dir, Options{})
	if s := mustLoad(t, db); int(s.Applied()) != durable {
		t.Fatalf("state at %d, %d was durable", s.Applied(), durable)
	}
}

// TestFullDisk fills disks by writes. A flush waits then, in any number of tries, readers read, the node closes and starts, and with
// room everything is there.
func TestFullDisk(t *testing.T) {
	stream := string(backup(t, 900))
	for _, kib := range []int{400, 512, 640} {
		for name, promises := range map[string]bool{"allocated": true, "sparse": false} {
			t.Run(fmt.Sprintf("%d KiB, %s", kib, name), func(t *testing.T) {
				if !promises {
					sparsely(t)
				}
				dir := smallDisk(t, kib)
				fill(t, dir, kib/8) // half
				n := filepath.Join(dir, "n")
				flushes := 0
				o := Options{Fatal: noFatal(t), FlushEvery: 1 << 60, MaxPendingBytes: 20_000, Commit: func(_ string, commit func() error) error {
					flushes++
					return commit()
				}}
				db := mustOpen(t, n, o)
				m := newModel()
				for range 2 {
					db.Record(m.apply(20))
					must.OK(t, db.Sync())
				}
				untilNoRoom(t, db, m)
				behind, waiting := db.Room()
				if !waiting || behind < 0 {
					t.Fatalf("%d bytes behind the pages, waiting %v", behind, waiting)
				}
				durable := db.Durable()
				totals := db.totals
				flushes = 0
				for range 300 { // beyond MaxPendingBytes
					db.Record(m.apply(10))
				}
				if flushes > 0 || db.bytes < o.MaxPendingBytes {
					t.Fatalf("%d flushes by Record, %d bytes pending", flushes, db.bytes)
				}
				for range 2 { // once at a glance, once with a look at what there is
					if err := db.Sync(); !errors.Is(err, ErrNoRoom) || db.Durable() != durable || db.totals != totals {
						t.Fatalf("%v, durable %d, was %d", err, db.Durable(), durable)
					}
					db.wait.again = time.Time{}
				}
				// Versions that came and went do not stay: a state has a history of a hundred.
				versions, bytes := 0, int64(0)
				for _, p := range db.pending {
					versions += len(p.added)
					bytes += int64(8 * len(p.removed))
					for _, a := range p.added {
						bytes += a.bytes()
					}
				}
				if len(db.pending) > fewestParts || versions > 300+150*len(db.pending) || db.bytes != bytes {
					t.Fatalf("%d versions are pending in %d parts, %d bytes, counted %d", versions, len(db.pending), bytes, db.bytes)
				}
				if s := mustLoad(t, db); s.Applied() != durable {
					t.Fatalf("state at %d, durable %d", s.Applied(), durable)
				}
				if _, err := db.Receive(strings.NewReader(stream)); !enospc(err) {
					t.Fatalf("receive on a full disk: %v", err)
				}
				checkPages := func(db *DB) {
					t.Helper()
					must.OK(t, checkPages(filepath.Join(n, stateFile)))
					must.OK(t, db.file.bolt.View(checkTree))
				}
				checkPages(db)

				// It ends and starts on the full disk.
				must.OK(t, db.Close())
				db = mustOpen(t, n, o)
				s := mustLoad(t, db)
				if s.Applied() != durable {
					t.Fatalf("state at %d, %d was durable", s.Applied(), durable)
				}
				m = &model{state: s, next: uint64(durable) + 1}
				untilNoRoom(t, db, m)

				unfill(t, dir)
				db.wait.again = time.Time{}
				must.OK(t, db.Sync())
				if _, waiting := db.Room(); waiting || db.Durable() != proto.Revision(m.next-1) || db.bytes != 0 {
					t.Fatalf("durable %d of %d, waiting %v, %d bytes pending", db.Durable(), m.next-1, waiting, db.bytes)
				}
				checkPages(db)
				must.OK(t, db.Close())
				db = mustOpen(t, n, o)
				if s := mustLoad(t, db); s.Applied() != proto.Revision(m.next-1) {
					t.Fatalf("state at %d, %d was durable", s.Applied(), m.next-1)
				}
				if names := fileNames(t, n); !slices.Equal(names, []string{stateFile}) {
					t.Errorf("%v are left", names)
				}
			})
		}
	}
}

// untilNoRoom writes until a flush waits.
func untilNoRoom(t *testing.T, db *DB, m *model) {
	t.Helper()
	for range 10_000 {
		db.Record(m.apply(10))
		if err := db.Sync(); err != nil {
			if !errors.Is(err, ErrNoRoom) {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("the disk is not full")
}

// checkTree is bbolt's own check of a file, the list of its free pages included. No page has others behind it.
func checkTree(tx *bbolt.Tx) (err error) {
	for e := range tx.Check() {
		err = errors.Join(err, e)
	}
	for id := firstPage; int64(id)*int64(tx.DB().Info().PageSize) < tx.Size(); id++ {
		p, e := tx.Page(id)
		err = errors.Join(err, e)
		if e == nil && p.Type != "free" && p.OverflowCount > 0 {
			err = errors.Join(err, fmt.Errorf("page %d, a %s of %d, goes on for %d more", id, p.Type, p.Count, p.OverflowCount))
		}
	}
	return err
}

// TestDeletesOnFullDisk: with its reserve, state.db takes deletes on a full disk: all that there is to delete.
func TestDeletesOnFullDisk(t *testing.T) {
	dir := smallDisk(t, 4096)
	db := mustOpen(t, filepath.Join(dir, "n"), Options{Fatal: noFatal(t), FlushEvery: 1 << 60, Reserve: 256 << 10})
	const n = 1000
	var b Batch
	for i := range n {
		b.Added = append(b.Added, Added{"t", (&mvcc.Version{Key: fmt.Sprint(i), Revision: proto.Revision(i + 1), CreateRevision: proto.Revision(i + 1)}).SetValue(make([]byte, 1000))})
	}
	b.State = &proto.StateRecord{Applied: n, AppliedTerm: 1}
	db.Record(b)
	must.OK(t, db.Sync())
	fill(t, dir, 0)
	for i, r := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		tombstone := &mvcc.Version{Key: fmt.Sprint(r), Revision: proto.Revision(n + i + 1), CreateRevision: proto.Revision(r + 1), Deleted: true}
		db.Record(Batch{
			Added: []Added{{"t", tombstone}}, Removed: []proto.Revision{proto.Revision(r + 1)},
			State: &proto.StateRecord{Applied: uint64(n + i + 1), AppliedTerm: 1},
		})
		if err := db.Sync(); err != nil {
			t.Fatalf("delete %d: %v", i, err)
		}
	}
	var versions uint64
	must.OK(t, db.file.bolt.View(func(tx *bbolt.Tx) error {
		_, tot, err := describe(tx)
		versions = tot.versions
		return errors.Join(err, checkTree(tx))
	}))
	if _, err := db.WriteBackup(io.Discard, nil); err != nil || versions != n {
		t.Fatalf("%d records, %v", versions, err)
	}
}

// TestCramped: a file system that says that it has room, and does not give it for the reserve, is found out, also when it gives it later and
// nothing is written.
func TestCramped(t *testing.T) {
	var full atomic.Bool
	allocateRange = func(f *os.File, from, to int64) error {
		if full.Load() {
			return syscall.EDQUOT
		}
		return allocate(f, from, to)
	}
	t.Cleanup(func() { allocateRange = allocate })
	db := mustOpen(t, t.TempDir(), Options{Fatal: noFatal(t), FlushEvery: time.Hour, Reserve: 256 << 10})
	for i, want := range []bool{false, true, true, false} {
		full.Store(want)
		if i != 3 {
			r := proto.Revision(i + 1)
			v := (&mvcc.Version{Key: "k", Revision: r, CreateRevision: 1}).SetValue(make([]byte, 600<<10))
			db.Record(Batch{Added: []Added{{"t", v}}, State: &proto.StateRecord{Applied: uint64(r), AppliedTerm: 1}})
		}
		if err := db.Sync(); err != nil && !errors.Is(err, ErrNoRoom) {
			t.Fatal(err)
		}
		if got := db.Cramped(); got != want {
			t.Errorf("after sync %d: cramped %v, want %v", i, got, want)
		}
	}
}

// TestPartsOnFullDisk: changes for which a disk has no room at once find it in parts, because each frees pages for the next one.
// Where not all do, the file has the state after one of the parts.
func TestPartsOnFullDisk(t *testing.T) {
	for _, size := range []int{300, 2000, 9000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			dir := smallDisk(t, 24576)
			o := Options{Fatal: noFatal(t), FlushEvery: time.Hour, Reserve: 512 << 10, FlushBytes: 256 << 10}
			db := mustOpen(t, filepath.Join(dir, "n"), o)
			keys := 3 << 20 / size
			// Each revision replaces the one that is as old as there are keys, or none.
			next := 1
			record := func(n int, replace bool) {
				for range n {
					b := Batch{State: &proto.StateRecord{Applied: uint64(next), AppliedTerm: 1}}
					v := &mvcc.Version{Key: fmt.Sprint(next), Revision: proto.Revision(next), CreateRevision: proto.Revision(next)}
					b.Added = []Added{{"t", v.SetValue(make([]byte, size))}}
					if replace {
						b.Removed = []proto.Revision{proto.Revision(next - keys)}
					}
					db.Record(b)
					next++
				}
			}
			whole := func(want int) {
				t.Helper()
				must.OK(t, db.file.bolt.View(func(tx *bbolt.Tx) error {
					rec, tot, err := describe(tx)
					if err == nil && (tot.versions != uint64(want) || rec.Applied != uint64(db.Durable())) {
						err = fmt.Errorf("%d records at %d, durable %d", tot.versions, rec.Applied, db.Durable())
					}
					return errors.Join(err, checkTree(tx))
				}))
				if _, err := db.WriteBackup(io.Discard, nil); err != nil { // which reads all of them
					t.Fatal(err)
				}
			}
			record(keys, false)
			must.OK(t, db.Sync())
			fill(t, dir, 0)
			record(2*keys-1, true)
			if err := db.Sync(); err != nil || len(db.pending) > 0 || db.bytes != 0 {
				t.Fatalf("durable %d of %d: %v", db.Durable(), next-1, err)
			}
			if _, waiting := db.Room(); waiting {
				t.Fatal("nothing is pending, but it waits")
			}
			whole(keys)

			// Some of those that stay find room, and all when it is there.
			before := int(db.Durable())
			record(keys, false)
			if err := db.Sync(); !errors.Is(err, ErrNoRoom) {
				t.Fatalf("durable %d of %d: %v", db.Durable(), next-1, err)
			}
			came := int(db.Durable()) - before
			if came < 128<<10/size || came >= keys {
				t.Fatalf("%d of %d found room", came, keys)
			}
			whole(keys + came)
			must.OK(t, db.Close())
			db = mustOpen(t, db.dir, o)
			whole(keys + came)
			unfill(t, dir)
			next = int(db.Durable()) + 1
			record(keys-came, false)
			must.OK(t, db.Sync())
			whole(2 * keys)
		})
	}
}

// TestDiskInTurns: room comes and goes under a node that writes, is read and is started again.
func TestDiskInTurns(t *testing.T) {
	for name, promises := range map[string]bool{"allocated": true, "sparse": false} {
		t.Run(name, func(t *testing.T) {
			if !promises {
				sparsely(t)
			}
			dir := smallDisk(t, 8192)
			n := filepath.Join(dir, "n")
			o := Options{Fatal: noFatal(t), FlushEvery: time.Millisecond, MaxPendingBytes: 30_000}
			rng := rand.New(rand.NewPCG(3, 4))
			waited := 0
			// The model's state has a bound, and so has its file: it begins again and again.
			for range 10 {
				must.OK(t, os.RemoveAll(n))
				unfill(t, dir)
				db := mustOpen(t, n, o)
				m := newModel()
				fill(t, dir, rng.IntN(60))
				for range 40 {
					switch rng.IntN(8) {
					case 0, 1:
						fill(t, dir, rng.IntN(10))
					case 2:
						unfill(t, dir)
					case 3:
						must.OK(t, db.Close())
						durable := db.Durable()
						db = mustOpen(t, n, o)
						s := mustLoad(t, db)
						if s.Applied() != durable {
							t.Fatalf("state at %d, %d was durable", s.Applied(), durable)
						}
						m = &model{state: s, next: uint64(s.Applied()) + 1}
					}
					db.Record(m.apply(1 + rng.IntN(60)))
					if rng.IntN(2) == 0 {
						if err := db.Sync(); errors.Is(err, ErrNoRoom) {
							waited++
						} else if err != nil {
							t.Fatal(err)
						}
					}
				}
				unfill(t, dir)
				must.OK(t, eventuallySync(db))
				must.OK(t, db.file.bolt.View(checkTree))
				must.OK(t, db.Close())
				db = mustOpen(t, n, o)
				if s := mustLoad(t, db); s.Applied() != proto.Revision(m.next-1) {
					t.Fatalf("state at %d, want %d", s.Applied(), m.next-1)
				}
				must.OK(t, db.Close())
			}
			if waited < 10 {
				t.Fatalf("waited %d times", waited)
			}
		})
	}
}

// eventuallySync syncs when it is time to look for room again.
func eventuallySync(db *DB) error {
	db.writing.Lock()
	db.wait.again = time.Time{}
	db.writing.Unlock()
	return db.Sync()
}

// TestFullAtEveryPage: a disk becomes full at each page that a node takes for flushes, a snapshot of its own and one of a leader.
// A step that finds no room fails, and nothing else happens.
func TestFullAtEveryPage(t *testing.T) {
	stream := filepath.Join(t.TempDir(), "x")
	must.OK(t, os.WriteFile(streamName(stream, streamStep), backup(t, streamStep), fileMode))
	for name, promises := range map[string]bool{"allocated": true, "sparse": false} {
		t.Run(name, func(t *testing.T) {
			if !promises {
				sparsely(t)
			}
			failed := map[string]bool{}
			step := 3
			if testing.Short() {
				step = 13
			}
			done := false
			for pages := 0; !done; pages += step {
				t.Run(fmt.Sprint(pages), func(t *testing.T) {
					dir := smallDisk(t, 8192)
					work := func(full bool, most int) (wrong []string) {
						db := mustOpen(t, filepath.Join(dir, "n"), Options{Fatal: noFatal(t), FlushEvery: time.Hour, Reserve: 16 << 10})
						snaps, err := NewSnapshotStore(db, db.dir)
						must.OK(t, err)
						s := mustLoad(t, db)
						n := &node{db: db, snaps: snaps, m: &model{state: s, next: uint64(s.Applied()) + 1}}
						if full {
							fill(t, dir, pages)
						}
						for what, do := range steps(n, stream) {
							if most--; most < 0 {
								break
							}
							err := do()
							switch {
							case err == nil:
							case full && (enospc(err) || errors.Is(err, ErrNoRoom)):
								wrong = append(wrong, what)
							default:
								t.Fatalf("%s: %v", what, err)
							}
						}
						must.OK(t, db.file.bolt.View(checkTree))
						must.OK(t, db.Close())
						return wrong
					}
					work(false, 1)
					wrong := work(true, 100)
					for _, what := range wrong {
						failed[what] = true
					}
					done = len(wrong) == 0
					unfill(t, dir)
					work(false, 100)
				})
				if pages > 2000 {
					t.Fatal("it takes more than is there")
				}
			}
			for what := range steps(nil, "") {
				if !failed[what] {
					t.Errorf("there was always room for %s", what)
				}
			}
		})
	}
}

// steps are what a node does, in an order.
func steps(n *node, stream string) iter.Seq2[string, func() error] {
	return func(yield func(string, func() error) bool) {
		record := func() error {
			n.db.Record(n.m.apply(100))
			return n.db.Sync()
		}
		install := func() error {
			if n.m.next > streamStep {
				return nil
			}
			return n.install(streamName(stream, streamStep), streamStep)
		}
		_ = yield("a flush", record) && yield("a snapshot", n.local) && yield("another flush", record) &&
			yield("the leader's snapshot", install) && yield("another snapshot", n.local)
	}
}

// TestFailingWrites has each write of a flush fail, one after the other. Of all pages but the last one, which is the meta page, the
// flush waits, and the file is as it was. Whether a meta page was written is not known: that is fatal, and so is any other error.
func TestFailingWrites(t *testing.T) {
	for _, why := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO} {
		t.Run(why.Error(), func(t *testing.T) {
			for at, shorter, fatal := 1, 0, error(nil); ; at++ {
				db := mustOpen(t, t.TempDir(), Options{Fatal: func(err error) { fatal = err }, FlushEvery: time.Hour})
				m := newModel()
				for range 5 {
					db.Record(m.apply(100))
					must.OK(t, db.Sync())
				}
				readers, err := db.openStream() // which keep pages that the flush frees
				must.OK(t, err)
				writes, failed, broken := 0, int64(-1), true
				onWrite(db.file.bolt, func(offset int64) error {
					if writes++; broken && writes == at {
						failed = offset
						return &os.PathError{Op: "write", Err: why}
					}
					return nil
				})
				db.Record(m.apply(100))
				err = db.Sync()
				if err == nil { // one page less: bbolt looks at pages to merge in any order
					must.OK(t, readers.Close())
					must.OK(t, db.Close())
					if shorter++; shorter > 50 {
						t.Fatalf("write %d is never there: that of the meta page is not fatal", at)
					}
					at -= 2
					continue
				}
				broken = false
				if fatal != nil {
					if !errors.Is(fatal, why) || errors.Is(err, ErrNoRoom) || db.Durable() != 500 {
						t.Fatalf("write %d: %v, fatal %v, durable %d", at, err, fatal, db.Durable())
					}
					must.OK(t, readers.Close())
					if isMeta := failed < int64(2*os.Getpagesize()); why != syscall.EIO && (!isMeta || at < 10) {
						t.Fatalf("write %d, at %d, is fatal", at, failed)
					}
					return
				}
				if !errors.Is(err, ErrNoRoom) || !errors.Is(err, why) || db.Durable() != 500 {
					t.Fatalf("write %d: %v, durable %d", at, err, db.Durable())
				}
				must.OK(t, db.file.bolt.View(checkTree))
				if s := mustLoad(t, db); s.Applied() != 500 {
					t.Fatalf("write %d: state at %d", at, s.Applied())
				}
				if _, err := readers.WriteTo(io.Discard); err != nil {
					t.Fatal(err)
				}
				must.OK(t, readers.Close())
				must.OK(t, eventuallySync(db))
				db.Record(m.apply(100))
				must.OK(t, db.Sync())
				must.OK(t, db.file.bolt.View(checkTree))
				if s := mustLoad(t, db); s.Applied() != 700 {
					t.Fatalf("write %d: state at %d", at, s.Applied())
				}
				must.OK(t, db.Close())
			}
		})
	}
}

// onWrite is called before each of bbolt's writes, and may have it fail. bbolt has such a hook for its own tests.
func onWrite(bolt *bbolt.DB, before func(at int64) error) {
	field := reflect.ValueOf(bolt).Elem().FieldByName("ops").FieldByName("writeAt")
	hook := (*func([]byte, int64) (int, error))(field.Addr().UnsafePointer())
	write := *hook
	*hook = func(b []byte, at int64) (int, error) {
		if err := before(at); err != nil {
			return 0, err
		}
		return write(b, at)
	}
}
