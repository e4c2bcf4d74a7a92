package disk

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

func TestRestoreBackup(t *testing.T) {
	const at = 700
	stream := backup(t, at)
	dir := filepath.Join(t.TempDir(), "new", "node")
	done, err := RestoreBackup(dir, bytes.NewReader(stream), RestoreOptions{Cluster: "second", Configuration: testServers, Now: noon})
	must.OK(t, err)
	rec, want := done.StateRecord, proto.Revision(noonTicks)
	db := mustOpen(t, dir, Options{})
	s, err := db.Load()
	must.OK(t, err)
	must.OK(t, s.Check())
	m := s.Mark()
	if m.Applied != want || s.Floor() != want || m.Cluster != "second" || m.Feature != 3 || rec.Applied != uint64(want) || done.Backup != at {
		t.Fatalf("%+v floor %d, %v", m, s.Floor(), rec)
	}
	old := modelAt(at)
	for _, name := range []string{"t0", "t1", "t2"} {
		a, err := old.Table(name).Range(mvcc.Query{At: at})
		must.OK(t, err)
		b, err := s.Table(name).Range(mvcc.Query{At: want})
		must.OK(t, err)
		if len(a.Versions) != len(b.Versions) || len(a.Versions) == 0 {
			t.Fatalf("table %s: %d keys, want %d", name, len(b.Versions), len(a.Versions))
		}
		for i, v := range a.Versions {
			if w := b.Versions[i]; v.Key != w.Key || !bytes.Equal(v.Value(), w.Value()) || v.Revision != w.Revision || w.Prev() != nil {
				t.Fatalf("%s %s differs", name, v.Key)
			}
		}
		if _, err := s.Table(name).Watch(want - 1); err == nil {
			t.Fatal("an old revision can be watched from")
		}
	}
	// Only live keys are in the file.
	var live int64
	for _, t := range s.Tables() {
		n, _ := t.Live()
		live += n
	}
	if _, stats, err := inspectOf(db); err != nil || int64(stats.Versions) != live {
		t.Fatal(stats, live, err)
	}
	must.OK(t, db.Close())
	electOn(t, dir, uint64(want))

	if _, err := RestoreBackup(dir, bytes.NewReader(stream), RestoreOptions{Cluster: "third", Configuration: testServers}); err == nil {
		t.Fatal("restored over data")
	}
	for name, o := range map[string]RestoreOptions{
		"id of its own": {Cluster: "model", Configuration: testServers},
		"an id":         {Configuration: testServers},
		"a voter":       {Cluster: "x", Configuration: raft.Configuration{Servers: testServers.Servers[1:]}},
	} {
		empty := t.TempDir()
		if _, err := RestoreBackup(empty, bytes.NewReader(stream), o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if names := fileNames(t, empty); len(names) != 0 {
			t.Errorf("%s: %v is left", name, names)
		}
	}
}

// TestRestoreIsWholeWithIdentity: a directory counts as restored when node.json is in it
// too. If that fails, nothing is left of it.
func TestRestoreIsWholeWithIdentity(t *testing.T) {
	dir := t.TempDir()
	o := RestoreOptions{Cluster: "second", Configuration: testServers, Now: noon, Stage: func(at string) error {
		if at != dir {
			t.Errorf("staged in %s", at)
		}
		if err := Unfinished(dir); !errors.Is(err, ErrUnfinished) {
			t.Errorf("the directory counts as whole: %v", err)
		}
		return errTorn
	}}
	if _, err := RestoreBackup(dir, bytes.NewReader(backup(t, 700)), o); !errors.Is(err, errTorn) {
		t.Errorf("got %v", err)
	}
	if names := fileNames(t, dir); len(names) != 0 {
		t.Errorf("%v is left", names)
	}
}

// TestRestoreWithoutRoom: a restore that finds no room leaves what there was before, so that the next one need not be told.
func TestRestoreWithoutRoom(t *testing.T) {
	stream := backup(t, 700)
	for kib, restored := range map[int]bool{16: false, 128: false, 512: false, 64 << 10: true} {
		for _, below := range []string{"", "node", "new/node"} {
			disk := smallDisk(t, kib)
			dir := filepath.Join(disk, below)
			for range 2 {
				_, err := RestoreBackup(dir, bytes.NewReader(stream), RestoreOptions{Cluster: "second", Configuration: testServers, Now: noon})
				if restored {
					must.OK(t, err)
					break
				}
				if !enospc(err) {
					t.Errorf("%d KiB: %v", kib, err)
				}
				if names := fileNames(t, disk); len(names) != 0 {
					t.Errorf("%d KiB: %v is left", kib, names)
				}
			}
		}
	}
}

var errTorn = errors.New("the power is gone")

// TestRestoreOfANewerBackup is refused before anything is made: no node of this release
// would start from the directory.
func TestRestoreOfANewerBackup(t *testing.T) {
	stream := backup(t, 700) // of a cluster that speaks feature version 3
	for supports, want := range map[uint32]error{1: ErrNewer, 2: ErrNewer, 3: nil, 4: nil, 0: nil} {
		dir := t.TempDir()
		_, err := RestoreBackup(dir, bytes.NewReader(stream), RestoreOptions{Cluster: "second", Configuration: testServers, Now: noon, Supports: supports})
		if !errors.Is(err, want) {
			t.Errorf("with a release that supports %d: %v, want %v", supports, err, want)
		}
		if names := fileNames(t, dir); want != nil && len(names) != 0 {
			t.Errorf("with a release that supports %d: %v is left", supports, names)
		}
	}
}

func inspectOf(db *DB) (*proto.StateRecord, Stats, error) {
	var b bytes.Buffer
	if _, err := db.WriteBackup(&b, nil); err != nil {
		return nil, Stats{}, err
	}
	return Inspect(&b)
}

type plainFSM struct {
	raft.FSM
	db      *DB
	applied chan uint64
}

func (f *plainFSM) Apply(l *raft.Log) any { f.applied <- l.Index; return nil }

func (f *plainFSM) Snapshot() (raft.FSMSnapshot, error) { return LocalSnapshot{}, f.db.Sync() }

// electOn starts the real library on a restored directory.
func electOn(t *testing.T, dir string, index uint64) {
	t.Helper()
	db := mustOpen(t, dir, Options{})
	log, err := OpenLog(dir, LogOptions{})
	must.OK(t, err)
	snaps, err := NewSnapshotStore(db, dir)
	must.OK(t, err)
	need, err := snaps.NeedsRestore()
	must.OK(t, err)
	c := raft.DefaultConfig()
	c.LocalID, c.NoSnapshotRestoreOnStart, c.LogOutput = "a", !need, os.NewFile(^uintptr(0), "")
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	_, trans := raft.NewInmemTransport("127.0.0.1:1")
	f := &plainFSM{db: db, applied: make(chan uint64, 10)}
	r, err := raft.NewRaft(c, f, log, log, snaps, trans)
	must.OK(t, err)
	defer func() {
		must.OK(t, r.Shutdown().Error())
		must.OK(t, log.Close())
		must.OK(t, db.Close())
	}()
	select {
	case <-r.LeaderCh():
	case <-time.After(5 * time.Second):
		t.Fatal("no leader")
	}
	must.OK(t, r.Apply([]byte("x"), 5*time.Second).Error())
	if got := <-f.applied; got <= index {
		t.Fatalf("the first entry is at %d, the backup was bumped to %d", got, index)
	}
	list, err := snaps.List()
	must.OK(t, err)
	if term := r.CurrentTerm(); term <= list[0].Term {
		t.Fatalf("elected in term %d, the snapshot is of %d", term, list[0].Term)
	}
}

// TestBackupSaysWhatItIs: what is written into a backup for people is read again, hinders
// nobody who does not know it, and is no part of what is restored.
func TestBackupSaysWhatItIs(t *testing.T) {
	const at = 300
	db := mustOpen(t, stateDir(t, at), Options{})
	defer db.Close()
	about := &proto.Backup{TakenUnixMs: 1_790_000_000_000, NodeName: "n1", Version: "v1", Role: "leader", Confirmed: true}
	about.ProtoReflect().SetUnknown([]byte{0xf8, 0x07, 0x01}) // field 127 of a later release
	var b bytes.Buffer
	_, err := db.WriteBackup(&b, about)
	must.OK(t, err)
	rec, stats, err := Inspect(bytes.NewReader(b.Bytes()))
	must.OK(t, err)
	if got := stats.About; got == nil || got.NodeName != "n1" || !got.Confirmed || rec.Applied != at || stats.Bytes != int64(b.Len()) {
		t.Errorf("%v %+v", rec, stats)
	}
	plain := backup(t, at)
	_, without, err := Inspect(bytes.NewReader(plain))
	must.OK(t, err)
	if without.About != nil || without.Versions != stats.Versions {
		t.Errorf("a backup that says nothing: %+v, beside %+v", without, stats)
	}
	done, err := RestoreBackup(filepath.Join(t.TempDir(), "n"), &b, RestoreOptions{Cluster: "second", Configuration: testServers, Now: noon})
	must.OK(t, err)
	if done.Backup != at {
		t.Errorf("restored %+v", done)
	}
}

// TestRecordsAside: of records that are no versions, a reader skips those that are made
// to be skipped, wherever they are, and no others.
func TestRecordsAside(t *testing.T) {
	for name, c := range map[string]struct {
		payload []byte
		damaged bool
	}{
		"to be skipped":         {[]byte{proto.FormatVersion, 0xfe, 1, 2, 3}, false},
		"empty, to be skipped":  {[]byte{proto.FormatVersion, 0xfe}, false},
		"unknown":               {[]byte{proto.FormatVersion, 0x7e, 1, 2, 3}, true},
		"of another version":    {[]byte{9, 0xfe}, true},
		"a Backup that is none": {[]byte{proto.FormatVersion, byte(proto.KindBackup), 0xff}, true},
		"shorter than a record": {[]byte{proto.FormatVersion}, true},
	} {
		t.Run(name, func(t *testing.T) {
			header, err := proto.Encode(proto.KindStateRecord, &proto.StateRecord{Applied: 9, AppliedTerm: 1, ClusterId: "c"})
			must.OK(t, err)
			var f frames
			b := f.preamble(nil)
			b = f.frame(b, header, checksum(header))
			b = f.frame(b, c.payload, checksum(c.payload))
			b = f.trailer(b)
			if err := Verify(bytes.NewReader(b)); errors.Is(err, ErrDamaged) != c.damaged || err == nil == c.damaged {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestNotABackup(t *testing.T) {
	err := Verify(strings.NewReader("root:x:0:0:root:/root:/bin/bash"))
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "not a Quorate backup") || strings.Contains(err.Error(), "damaged") {
		t.Errorf("%v", err)
	}
}
