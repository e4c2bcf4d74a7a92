package disk

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

func TestFreshAndReopen(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, dir, Options{})
	if s := mustLoad(t, db); s.Applied() != 0 || db.Durable() != 0 {
		t.Fatalf("fresh state at %d, durable %d", s.Applied(), db.Durable())
	}
	m := newModel()
	for range 40 {
		db.Record(m.apply(17))
	}
	must.OK(t, db.Sync())
	if got := db.Durable(); got != 680 {
		t.Fatalf("durable %d after Sync, want 680", got)
	}
	mustLoad(t, db)
	db.Record(m.apply(3))
	must.OK(t, db.Close())
	must.OK(t, db.Close())
	if _, err := db.Load(); !errors.Is(err, ErrClosed) {
		t.Fatalf("load after Close: %v", err)
	}
	db = mustOpen(t, dir, Options{})
	if s := mustLoad(t, db); s.Applied() != 683 || db.Size() == 0 {
		t.Fatalf("reopened at %d, %d bytes; Close must have flushed 683", s.Applied(), db.Size())
	}
	info, err := os.Stat(filepath.Join(dir, stateFile))
	must.OK(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v", info.Mode())
	}
	if _, err := Open(dir, Options{}); err == nil {
		t.Fatal("a second process could open the file")
	}
}

func TestRecordWaitsAboveItsBound(t *testing.T) {
	var flushes int
	db := mustOpen(t, t.TempDir(), Options{FlushEvery: 1 << 60, FlushBytes: 1 << 40, MaxPendingBytes: 10_000})
	m := newModel()
	for range 100 {
		db.Record(m.apply(5))
		db.mu.Lock()
		bytes := db.bytes
		db.mu.Unlock()
		if bytes > 10_000 {
			t.Fatalf("%d bytes are pending", bytes)
		}
		if db.Durable() > 0 {
			flushes++
		}
	}
	if flushes == 0 {
		t.Fatal("the bound was never reached")
	}
	must.OK(t, db.Sync())
	mustLoad(t, db)
}

// What the flusher does on its own is awaited, not timed.
func TestFlusherFlushes(t *testing.T) {
	flushed := make(chan struct{}, 100)
	db := mustOpen(t, t.TempDir(), Options{FlushEvery: 1 << 20, Observe: func(time.Duration) { flushed <- struct{}{} }})
	db.Record(newModel().apply(30))
	<-flushed
	if db.Durable() != 30 {
		t.Fatalf("durable %d", db.Durable())
	}
}

func TestWrongBatchesAreFatal(t *testing.T) {
	version := func(r proto.Revision) Added {
		return Added{"t", (&mvcc.Version{Key: "k", Revision: r, CreateRevision: r}).SetValue([]byte("{}"))}
	}
	for name, b := range map[string]Batch{
		"state goes back":       {State: &proto.StateRecord{Applied: 5}},
		"revision goes back":    {Added: []Added{version(5)}, State: &proto.StateRecord{Applied: 20}},
		"revision above state":  {Added: []Added{version(30)}, State: &proto.StateRecord{Applied: 20}},
		"removed never added":   {Removed: []proto.Revision{15}, State: &proto.StateRecord{Applied: 20}},
		"removed is not there":  {Removed: []proto.Revision{1}, State: &proto.StateRecord{Applied: 20}},
		"two equal revisions":   {Added: []Added{version(15), version(15)}, State: &proto.StateRecord{Applied: 20}},
		"record beyond maximum": {Added: []Added{{"t", (&mvcc.Version{Key: "k", Revision: 15}).SetValue(make([]byte, maxRecord+1))}}, State: &proto.StateRecord{Applied: 20}},
	} {
		t.Run(name, func(t *testing.T) {
			var fatal []error
			db := mustOpen(t, t.TempDir(), Options{Fatal: func(err error) { fatal = append(fatal, err) }})
			db.Record(newModel().apply(10))
			must.OK(t, db.Sync())
			db.Record(b)
			if err := db.Sync(); err == nil || len(fatal) != 1 {
				t.Fatalf("error %v, fatal %v", err, fatal)
			}
			if db.Durable() != 10 {
				t.Fatalf("durable %d", db.Durable())
			}
			if _, err := db.WriteBackup(io.Discard, nil); err == nil {
				t.Fatal("a failed DB wrote a snapshot")
			}
			if err := db.Close(); err == nil || len(fatal) != 1 {
				t.Fatalf("close: %v, fatal %v", err, fatal)
			}
		})
	}
}

func TestSnapshotStreamIsOneState(t *testing.T) {
	dir := stateDir(t, 700)
	db := mustOpen(t, dir, Options{})
	s, err := db.openStream()
	must.OK(t, err)
	m := newModel()
	m.apply(700)
	var b bytes.Buffer
	if _, err := io.CopyN(&b, s, 1000); err != nil {
		t.Fatal(err)
	}
	for range 30 { // the file moves on under the stream
		db.Record(m.apply(20))
		must.OK(t, db.Sync())
	}
	if _, err := io.Copy(&b, s); err != nil {
		t.Fatal(err)
	}
	must.OK(t, s.Close())
	if int64(b.Len()) != s.size {
		t.Fatalf("%d bytes, announced %d", b.Len(), s.size)
	}
	rec, stats, err := Inspect(bytes.NewReader(b.Bytes()))
	must.OK(t, err)
	if rec.Applied != 700 || stats.Versions != rec.Versions || stats.Bytes != int64(b.Len()) {
		t.Fatalf("%v %+v", rec, stats)
	}
	other := mustOpen(t, t.TempDir(), Options{})
	in, err := other.Receive(&b)
	must.OK(t, err)
	got, err := other.Replace(in)
	must.OK(t, err)
	must.OK(t, checkState(got))
	if other.Durable() != 700 || got.Applied() != 700 {
		t.Fatalf("durable %d", other.Durable())
	}
	m = &model{state: got, next: 701}
	other.Record(m.apply(50)) // and it goes on from there
	must.OK(t, other.Sync())
	mustLoad(t, other)
}

func TestReplaceLeavesOldStreamsAlone(t *testing.T) {
	stream := backup(t, 300)
	db := mustOpen(t, stateDir(t, 200), Options{})
	s, err := db.openStream()
	must.OK(t, err)
	in, err := db.Receive(bytes.NewReader(stream))
	must.OK(t, err)
	if _, err := db.Replace(in); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Replace(in); !errors.Is(err, ErrNoSnapshot) {
		t.Fatalf("second Replace: %v", err)
	}
	var b bytes.Buffer
	if _, err := io.Copy(&b, s); err != nil {
		t.Fatal(err)
	}
	must.OK(t, s.Close())
	rec, _, err := Inspect(&b)
	must.OK(t, err)
	if rec.Applied != 200 {
		t.Fatalf("old stream is at %d", rec.Applied)
	}
	if s := mustLoad(t, db); s.Applied() != 300 {
		t.Fatalf("state at %d", s.Applied())
	}
	if names := fileNames(t, db.dir); !slices.Equal(names, []string{stateFile}) {
		t.Fatal(names)
	}
}
