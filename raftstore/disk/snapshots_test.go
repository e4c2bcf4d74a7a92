package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

func newNode(t *testing.T, at int) *node {
	t.Helper()
	n, err := openNode(stateDir(t, at))
	must.OK(t, err)
	t.Cleanup(func() { _ = n.db.Close() })
	return n
}

func TestLocalSnapshot(t *testing.T) {
	n := newNode(t, 200)
	if list, err := n.snaps.List(); err != nil || len(list) != 0 {
		t.Fatal(list, err)
	}
	// The index is above the data: its last entries carried no command.
	sink, err := n.snaps.Create(1, 203, 7, testServers, 9, nil)
	must.OK(t, err)
	must.OK(t, LocalSnapshot{}.Persist(sink))
	if info, err := os.Stat(filepath.Join(n.db.dir, metaFile)); err != nil || info.Size() > 4096 || info.Mode().Perm() != 0o600 {
		t.Fatal(info, err)
	}
	n.db.Record(n.m.apply(40))
	must.OK(t, n.db.Sync())
	list, err := n.snaps.List()
	must.OK(t, err)
	want := &raft.SnapshotMeta{Version: 1, ID: sink.ID(), Index: 203, Term: 7, Configuration: testServers, ConfigurationIndex: 9}
	if d := cmp.Diff([]*raft.SnapshotMeta{want}, list); d != "" {
		t.Fatal(d)
	}
	m, rc, err := n.snaps.Open(sink.ID())
	must.OK(t, err)
	var b bytes.Buffer
	size, err := io.Copy(&b, rc)
	must.OK(t, err)
	must.OK(t, rc.Close())
	want.Size = size
	if d := cmp.Diff(want, m); d != "" {
		t.Fatal(d)
	}
	// Newer data than the index is what a follower gets.
	rec, _, err := Inspect(&b)
	must.OK(t, err)
	if rec.Applied != 240 {
		t.Fatalf("data at %d", rec.Applied)
	}
	if _, _, err := n.snaps.Open("1-1"); !errors.Is(err, ErrNoSnapshot) {
		t.Fatal(err)
	}
	dir := n.db.dir
	must.OK(t, n.db.Close())
	n, err = openNode(dir) // 203 > 200 is no reason to restore
	must.OK(t, err)
	defer n.db.Close()
	m, rc, err = n.snaps.Open(sink.ID())
	must.OK(t, err)
	must.OK(t, rc.Close())
	if d := cmp.Diff(want, m); d != "" {
		t.Fatal(d)
	}
}

func TestInstall(t *testing.T) {
	stream := backup(t, 400)
	path := filepath.Join(t.TempDir(), "s")
	must.OK(t, os.WriteFile(path, stream, fileMode))

	t.Run("restored", func(t *testing.T) {
		n := newNode(t, 100)
		must.OK(t, n.install(path, 390))
		if s := mustLoad(t, n.db); s.Applied() != 400 {
			t.Fatal(s.Applied())
		}
		m, rc, err := n.snaps.Open("1-390")
		must.OK(t, err)
		b, err := io.ReadAll(rc)
		must.OK(t, err)
		must.OK(t, rc.Close())
		if !bytes.Equal(b, stream) || m.Size != int64(len(b)) {
			t.Fatal("a received state is not sent on as it came")
		}
	})
	t.Run("read before it is restored", func(t *testing.T) {
		n := newNode(t, 100)
		sink, err := n.create(390)
		must.OK(t, err)
		_, err = sink.Write(stream)
		must.OK(t, err)
		must.OK(t, sink.Close())
		m, rc, err := n.snaps.Open(sink.ID())
		must.OK(t, err)
		b, err := io.ReadAll(rc)
		must.OK(t, err)
		must.OK(t, rc.Close())
		if !bytes.Equal(b, stream) || m.Size != int64(len(b)) {
			t.Fatal("not the received bytes")
		}
		must.OK(t, n.restore(sink.ID()))
		if n.m.next != 401 {
			t.Fatal(n.m.next)
		}
	})
	t.Run("after a crash", func(t *testing.T) {
		n := newNode(t, 100)
		sink, err := n.create(390)
		must.OK(t, err)
		_, err = sink.Write(stream)
		must.OK(t, err)
		must.OK(t, sink.Close())
		dir := n.db.dir
		must.OK(t, n.db.Close())
		db := mustOpen(t, dir, Options{})
		s, err := NewSnapshotStore(db, dir)
		must.OK(t, err)
		if need, err := s.NeedsRestore(); err != nil || !need {
			t.Fatal(need, err)
		}
		n = &node{db: db, snaps: s}
		must.OK(t, n.restore(sink.ID()))
		must.OK(t, checkState(n.m.state))
		if need, err := s.NeedsRestore(); err != nil || need || n.m.next != 401 {
			t.Fatal(need, err, n.m.next)
		}
	})
	t.Run("older than the state", func(t *testing.T) {
		n := newNode(t, 500)
		must.OK(t, n.local())
		n.db.Record(n.m.apply(10)) // not even flushed
		if err := n.install(path, 390); !errors.Is(err, ErrLate) {
			t.Fatal(err)
		}
		if n.m.next != 511 {
			t.Fatalf("the state went back to %d", n.m.next-1)
		}
		if names := fileNames(t, n.db.dir); len(names) != 3 { // state.db, snapshot.meta and its spare
			t.Fatal(names)
		}
		list, err := n.snaps.List()
		must.OK(t, err)
		if list[0].Index != 500 {
			t.Fatalf("the newest snapshot is now %d", list[0].Index)
		}
	})
	t.Run("older than the state, and not than the newest snapshot", func(t *testing.T) {
		n := newNode(t, 380)
		must.OK(t, n.local())
		n.db.Record(n.m.apply(120))
		must.OK(t, n.install(path, 390))
		if n.m.next != 501 {
			t.Fatalf("the state went back to %d", n.m.next-1)
		}
		if index, _, data := n.snaps.Newest(); index != 390 || data > 500 {
			t.Fatalf("the newest snapshot is now %d, its data at %d", index, data)
		}
	})
	t.Run("older than where Raft began, and not than the newest snapshot on disk", func(t *testing.T) {
		n := newNode(t, 380)
		must.OK(t, n.local())
		n.db.Record(n.m.apply(120))
		must.OK(t, n.db.Sync())
		n.snaps.Advance(500, 1, testServers, 9)
		if err := n.install(path, 370); !errors.Is(err, ErrLate) {
			t.Fatal(err)
		}
		if index := n.snaps.Index(); index != 500 || n.snaps.Written() != 380 {
			t.Fatalf("the newest snapshot is now %d, and %d on disk", index, n.snaps.Written())
		}
		must.OK(t, n.install(path, 390))
		if n.m.next != 501 {
			t.Fatalf("the state went back to %d", n.m.next-1)
		}
		if index, _, data := n.snaps.Newest(); index != 390 || data != 500 || n.snaps.Written() != 390 {
			t.Fatalf("the newest snapshot is now %d, its data at %d, and %d on disk", index, data, n.snaps.Written())
		}
	})
	t.Run("its file stays until the newer state is durable", func(t *testing.T) {
		dir := stateDir(t, 380)
		var installed atomic.Bool
		var there []bool // the received file, at each flush behind the install
		n := &node{db: mustOpen(t, dir, Options{FlushEvery: time.Hour, Commit: func(file string, commit func() error) error {
			if installed.Load() && file == stateFile {
				there = append(there, slices.Contains(fileNames(t, dir), incomingFile))
			}
			err := commit()
			if file == metaFile {
				installed.Store(true)
			}
			return err
		}})}
		must.OK(t, n.start(dir))
		n.db.Record(n.m.apply(120)) // not flushed
		must.OK(t, n.install(path, 390))
		if len(there) == 0 || slices.Contains(there, false) {
			t.Errorf("was the file there? %v", there)
		}
	})
	t.Run("the log has gone on", func(t *testing.T) {
		n := newNode(t, 380)
		var asked [2]uint64
		n.snaps.RefuseLate(func(index, term uint64, newest bool) bool { asked = [2]uint64{index, term}; return !newest })
		must.OK(t, n.local()) // is not asked for
		if err := n.install(path, 390); !errors.Is(err, ErrLate) || asked[0] != 390 {
			t.Fatal(err, asked)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		n := newNode(t, 100)
		sink, err := n.create(390)
		must.OK(t, err)
		_, err = sink.Write(stream[:5000])
		must.OK(t, err)
		must.OK(t, sink.Cancel())
		if err := sink.Close(); !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
		onlyState(t, n)
	})
	t.Run("cut off", func(t *testing.T) {
		n := newNode(t, 100)
		sink, err := n.create(390)
		must.OK(t, err)
		_, err = sink.Write(stream[:len(stream)-1])
		must.OK(t, err)
		if err := sink.Close(); !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		if err := sink.Close(); !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		must.OK(t, sink.Cancel())
		onlyState(t, n)
	})
	t.Run("garbage", func(t *testing.T) {
		n := newNode(t, 100)
		sink, err := n.create(390)
		must.OK(t, err)
		if _, err := sink.Write(make([]byte, 1<<20)); !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		must.OK(t, sink.Cancel())
		onlyState(t, n)
	})
}

func onlyState(t *testing.T, n *node) {
	t.Helper()
	if names := fileNames(t, n.db.dir); len(names) != 3 { // and what the next snapshots are written to
		t.Fatal(names)
	}
	if s := mustLoad(t, n.db); s.Applied() != 100 {
		t.Fatal(s.Applied())
	}
}

// wrapped is how raft hands readers to FSM.Restore.
type wrapped struct{ io.ReadCloser }

func (w wrapped) WrappedReadCloser() io.ReadCloser { return w.ReadCloser }

func TestRestoreKnowsItsReaders(t *testing.T) {
	n := newNode(t, 100)
	must.OK(t, n.local())
	n.db.Record(n.m.apply(20))
	list, err := n.snaps.List()
	must.OK(t, err)
	_, rc, err := n.snaps.Open(list[0].ID)
	must.OK(t, err)
	before, err := os.Stat(filepath.Join(n.db.dir, stateFile))
	must.OK(t, err)
	s, err := n.db.Restore(wrapped{rc})
	must.OK(t, err)
	must.OK(t, rc.Close())
	after, err := os.Stat(filepath.Join(n.db.dir, stateFile))
	must.OK(t, err)
	if s.Applied() != 120 || !os.SameFile(before, after) {
		t.Fatalf("own stream: at %d", s.Applied())
	}
	// Somebody else's is received and replaces the state.
	s, err = n.db.Restore(io.NopCloser(bytes.NewReader(backup(t, 300))))
	must.OK(t, err)
	if s.Applied() != 300 {
		t.Fatal(s.Applied())
	}
	mustLoad(t, n.db)
}

func TestOldStateIsRefused(t *testing.T) {
	n := newNode(t, 100)
	old := filepath.Join(t.TempDir(), "old")
	copyFile(t, filepath.Join(n.db.dir, stateFile), old)
	n.db.Record(n.m.apply(50))
	must.OK(t, n.local())
	must.OK(t, n.db.Close())
	copyFile(t, old, filepath.Join(n.db.dir, stateFile))
	if _, err := openNode(n.db.dir); !errors.Is(err, ErrBehind) {
		t.Fatal(err)
	}
}

// TestMetaNamesWhatIsOnDisk: a process ends between a write of state.db and its sync. The next one reads
// that state from the page cache and takes a snapshot, of its own or an older one from the leader; then the
// power is lost. What snapshot.meta names is there.
func TestMetaNamesWhatIsOnDisk(t *testing.T) {
	for _, received := range []bool{true, false} {
		dir := stateDir(t, 100)
		path := filepath.Join(dir, stateFile)
		durable, err := os.ReadFile(path)
		must.OK(t, err)
		copyFile(t, filepath.Join(stateDir(t, 200), stateFile), path)
		n := &node{db: mustOpen(t, dir, Options{FlushEvery: time.Hour, Commit: func(file string, commit func() error) error {
			if file != stateFile {
				return commit()
			}
			before, err := os.ReadFile(path)
			must.OK(t, err)
			if err := commit(); err != nil {
				return err
			}
			after, err := os.ReadFile(path)
			must.OK(t, err)
			if !bytes.Equal(before, after) { // else nothing was synced
				durable = after
			}
			return nil
		}})}
		n.snaps, err = NewSnapshotStore(n.db, dir)
		must.OK(t, err)
		must.OK(t, n.db.Sync())
		sink, err := n.snaps.Create(1, 150, 7, testServers, 9, nil)
		must.OK(t, err)
		if received {
			_, err = sink.Write(backup(t, 150))
			must.OK(t, err)
		}
		must.OK(t, sink.Close())
		must.OK(t, n.db.Close())
		must.OK(t, os.WriteFile(path, durable, fileMode))
		again, err := openNode(dir)
		if err != nil {
			t.Errorf("received %v: %v", received, err)
			continue
		}
		must.OK(t, again.db.Close())
	}
}

// TestAwaitedSnapshot: while the newest snapshot's data are in its received file alone, because its Restore found no
// room, other snapshots do not take them away, whatever becomes of these.
func TestAwaitedSnapshot(t *testing.T) {
	for _, row := range []struct {
		name    string
		state   int
		refused bool // what follows in the log forbids it
		want    error
		left    uint64 // applied index in the received file
	}{
		{"a newer one", 300, false, nil, 300},
		{"a newer one that comes too late", 300, true, ErrLate, 300},
		{"an older one", 150, false, ErrLate, 200},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := newNode(t, 100)
			receive := func(at int) error {
				sink, err := n.create(uint64(at))
				must.OK(t, err)
				_, err = sink.Write(backup(t, at))
				must.OK(t, err)
				return sink.Close()
			}
			must.OK(t, receive(200))
			n.snaps.RefuseLate(func(uint64, uint64, bool) bool { return row.refused })
			if err := receive(row.state); !errors.Is(err, row.want) {
				t.Errorf("%v, want %v", err, row.want)
			}
			in, err := n.db.findIncoming()
			must.OK(t, err)
			if in == nil || in.state.Applied != row.left {
				t.Fatalf("the received file is %+v, want one at %d", in, row.left)
			}
			dir := n.db.dir
			must.OK(t, n.db.Close())
			again, err := openNode(dir)
			must.OK(t, err)
			defer again.db.Close()
			if at := uint64(mustLoad(t, again.db).Applied()); at != row.left {
				t.Errorf("the next start has the state at %d, want %d", at, row.left)
			}
		})
	}
}

// TestReceivedIsTold: who asks for it is told of each snapshot that was received, and of one for which the disk had no room.
func TestReceivedIsTold(t *testing.T) {
	disk := smallDisk(t, 8192)
	dir := filepath.Join(disk, "n")
	n := &node{db: mustOpen(t, dir, Options{Reserve: -1})}
	defer n.db.Close()
	var err error
	n.snaps, err = NewSnapshotStore(n.db, dir)
	must.OK(t, err)
	var told []error
	n.snaps.Received(func(err error) { told = append(told, err) })
	other := mustOpen(t, t.TempDir(), Options{})
	big := Batch{State: &proto.StateRecord{Applied: 3000, AppliedTerm: 1}}
	for i := range 3000 {
		r := proto.Revision(i + 1)
		big.Added = append(big.Added, Added{"t", (&mvcc.Version{Key: fmt.Sprint(i), Revision: r, CreateRevision: r}).SetValue(make([]byte, 1000))})
	}
	other.Record(big)
	must.OK(t, other.Sync())
	var large bytes.Buffer
	_, err = other.WriteBackup(&large, nil)
	must.OK(t, err)
	must.OK(t, other.Close())
	receive := func(stream []byte, end func(raft.SnapshotSink) error) {
		t.Helper()
		sink, err := n.create(300)
		must.OK(t, err)
		if _, err := sink.Write(stream); err != nil && !enospc(err) {
			t.Fatal(err)
		}
		if err := end(sink); err != nil && !enospc(err) {
			t.Fatal(err)
		}
	}
	small := backup(t, 300)
	for _, step := range []struct {
		free   int // pages
		stream []byte
		end    func(raft.SnapshotSink) error
		want   error
	}{
		{0, small, raft.SnapshotSink.Close, ErrNoRoom},
		{3, small, raft.SnapshotSink.Close, ErrNoRoom},
		{3, large.Bytes(), raft.SnapshotSink.Cancel, ErrNoRoom}, // a part of it is written before
		{1000, small, raft.SnapshotSink.Cancel, ErrClosed},
		{1000, small, raft.SnapshotSink.Close, nil},
	} {
		told = nil
		fill(t, disk, step.free)
		receive(step.stream, step.end)
		unfill(t, disk)
		if len(told) != 1 || !errors.Is(told[0], step.want) {
			t.Errorf("%d pages are free: told %v, want %v", step.free, told, step.want)
		}
	}
}
