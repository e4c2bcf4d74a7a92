package disk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// bloat leaves free pages in a file, as deleted objects do.
func bloat(db *DB, size int) error {
	db.writing.Lock()
	defer db.writing.Unlock()
	f, err := db.acquire()
	if err != nil {
		return err
	}
	junk := []byte("junk")
	err = errors.Join(
		f.bolt.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket(junk)
			for i := range size / 1000 {
				err = errors.Join(err, b.Put(revisionKey(proto.Revision(i)), make([]byte, 1000)))
			}
			return err
		}),
		f.bolt.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket(junk) }),
		f.measure(),
	)
	if err == nil && f.end < int64(size) {
		err = fmt.Errorf("the file has %d bytes", f.end)
	}
	err = errors.Join(err, f.release())
	db.noteSize(f)
	return err
}

// shrinkOptions has copies begin with little.
func shrinkOptions(t *testing.T) Options {
	return Options{FlushEvery: time.Millisecond, ShrinkBytes: 1 << 20, MaxPendingBytes: 200_000, Fatal: noFatal(t)}
}

// atShrink is told of the steps of copies, by their goroutine.
func atShrink(t *testing.T, step func(name string)) {
	before := failpoint
	failpoint = func(name string) {
		if name, ok := strings.CutPrefix(name, "shrink."); ok {
			step(name)
		}
	}
	t.Cleanup(func() { failpoint = before })
}

// TestShrink: a file that is mostly free becomes small, under a node that writes and is read.
func TestShrink(t *testing.T) {
	placed := make(chan bool, 10)
	atShrink(t, func(name string) {
		if name == "placed" {
			placed <- true
		}
	})
	dir := t.TempDir()
	db := mustOpen(t, dir, shrinkOptions(t))
	m := newModel()
	db.Record(m.apply(300))
	must.OK(t, db.Sync())
	must.OK(t, bloat(db, 8<<20))
	old, err := db.openStream()
	must.OK(t, err)
	for done := false; !done; {
		db.Record(m.apply(1))
		select {
		case done = <-placed:
		case <-time.After(time.Millisecond): //sleep: the copy runs beside Record
		}
	}
	if db.Size() > 2<<20 {
		t.Fatalf("%d bytes", db.Size())
	}
	var b bytes.Buffer
	_, err = old.WriteTo(&b)
	must.OK(t, errors.Join(err, old.Close()))
	must.OK(t, Verify(&b))
	db.Record(m.apply(100))
	must.OK(t, db.Sync())
	must.OK(t, db.file.bolt.View(checkTree))
	must.OK(t, db.Close())
	must.OK(t, checkPages(filepath.Join(dir, stateFile)))
	db = mustOpen(t, dir, Options{})
	if s := mustLoad(t, db); s.Applied() != proto.Revision(m.next-1) {
		t.Fatalf("state at %d, want %d", s.Applied(), m.next-1)
	}
	if names := fileNames(t, dir); !slices.Equal(names, []string{stateFile}) {
		t.Errorf("%v are left", names)
	}
}

// TestShrinkIsAbandoned: writes that cannot wait go on while a copy stands still. The next copy is made.
func TestShrinkIsAbandoned(t *testing.T) {
	stream := backup(t, 900)
	for _, at := range []string{"begun", "copied"} {
		for name, work := range map[string]func(t *testing.T, db *DB, m *model){
			"by load": func(t *testing.T, db *DB, m *model) {
				for db.Durable() == 300 {
					db.Record(m.apply(5))
					if m.next > 3000 {
						t.Fatal("nothing becomes durable")
					}
				}
			},
			"by a sync": func(t *testing.T, db *DB, m *model) {
				db.Record(m.apply(5))
				must.OK(t, db.Sync())
			},
			"by a received state": func(t *testing.T, db *DB, m *model) {
				in, err := db.Receive(bytes.NewReader(stream))
				must.OK(t, err)
				m.state, err = db.Replace(in)
				must.OK(t, err)
				m.next = 901
			},
			"by a full disk": func(t *testing.T, db *DB, _ *model) { fill(t, filepath.Dir(db.dir), 0) },
		} {
			t.Run(name+", "+at, func(t *testing.T) {
				root := t.TempDir()
				if name == "by a full disk" {
					if at == "copied" {
						t.Skip("it has its room then")
					}
					root = smallDisk(t, 32<<10)
				}
				stands, goOn, placed := make(chan bool), make(chan bool), make(chan bool, 10)
				first := true
				atShrink(t, func(step string) {
					if step == at && first {
						first = false
						stands <- true
						<-goOn
					}
					if step == "placed" {
						placed <- true
					}
				})
				dir := filepath.Join(root, "n")
				o := shrinkOptions(t)
				db := mustOpen(t, dir, o)
				m := newModel()
				db.Record(m.apply(300))
				must.OK(t, db.Sync())
				must.OK(t, bloat(db, 8<<20))
				db.kick <- struct{}{}
				<-stands
				work(t, db, m)
				goOn <- true
				ended := make(chan bool)
				go func() { // the flusher looks at it, and so does this
					for db.cancelCopy.Load() != nil {
						time.Sleep(time.Millisecond) //sleep: nobody is told
					}
					close(ended)
				}()
				<-ended
				unfill(t, root)
				if len(placed) > 0 || name != "by a received state" && db.Size() < 8<<20 {
					t.Fatalf("the copy was not abandoned: %d bytes", db.Size())
				}
				if there, err := exists(dir, stateFile+newSuffix); there || err != nil {
					t.Fatalf("the copy is left (%v)", err)
				}
				db.Record(m.apply(5))
				must.OK(t, db.Sync())
				if name != "by a received state" { // whose file is new
					db.writing.Lock()
					if db.shrink.pause != copyPause {
						t.Errorf("the next one is due after %v", db.shrink.pause)
					}
					db.shrink.again = time.Time{}
					db.writing.Unlock()
					<-placed
				}
				must.OK(t, db.Close())
				if db.Size() > 3<<20 {
					t.Errorf("%d bytes", db.Size())
				}
				db = mustOpen(t, dir, Options{})
				if s := mustLoad(t, db); s.Applied() != proto.Revision(m.next-1) {
					t.Fatalf("state at %d, want %d", s.Applied(), m.next-1)
				}
				must.OK(t, db.Close())
			})
		}
	}
}

// TestShrinkOnFullDisk: a file that has filled its disk itself, and of which most is free now, gives that back, and gets its reserve.
func TestShrinkOnFullDisk(t *testing.T) {
	placed := make(chan bool, 10)
	atShrink(t, func(name string) {
		if name == "placed" {
			placed <- true
		}
	})
	dir := smallDisk(t, 32<<10)
	o := shrinkOptions(t)
	o.Reserve, o.FlushEvery = 2<<20, time.Hour
	db := mustOpen(t, filepath.Join(dir, "n"), o)
	m := newModel()
	db.Record(m.apply(300))
	must.OK(t, db.Sync())
	must.OK(t, bloat(db, 10<<20))
	used := db.file.end - int64(db.file.bolt.Stats().FreePageN+db.file.bolt.Stats().PendingPageN)*int64(os.Getpagesize())
	fill(t, dir, int(used+o.Reserve*3/4)/os.Getpagesize()) // less than the copy and its whole reserve
	db.beginCopy()
	if done := db.shrink.done; done == nil {
		t.Fatal("no copy was begun")
	} else {
		<-done
	}
	if len(placed) != 1 {
		t.Fatal("no copy was made")
	}
	for {
		must.OK(t, db.Sync())
		if room, _ := db.Room(); room >= o.Reserve {
			break
		}
		if t.Context().Err() != nil {
			t.Fatal("the reserve is not whole")
		}
		time.Sleep(time.Millisecond) //sleep: the file that was replaced goes when its readers do
	}
	if db.Size() > 8<<20 {
		t.Errorf("%d bytes", db.Size())
	}
}

// TestShrinkNotOnALowDisk: no copy begins without room for it and two reserves, nor of a file that is mostly used.
func TestShrinkNotOnALowDisk(t *testing.T) {
	dir := smallDisk(t, 96<<10)
	begun := 0
	atShrink(t, func(string) { begun++ })
	o := shrinkOptions(t)
	o.FlushEvery = time.Hour
	db := mustOpen(t, filepath.Join(dir, "n"), o)
	m := newModel()
	db.Record(m.apply(300))
	must.OK(t, db.Sync())
	wasteful := func(want bool) {
		t.Helper()
		if got := db.wasteful(db.file); got != want {
			room, _ := freeBytes(db.file.os)
			t.Errorf("with room for %d and a reserve of %d: %v, want %v", room, db.o.Reserve, got, want)
		}
	}
	wasteful(false)
	must.OK(t, bloat(db, 8<<20))
	wasteful(true)
	used := db.file.end - int64(db.file.bolt.Stats().FreePageN+db.file.bolt.Stats().PendingPageN)*int64(os.Getpagesize())
	for reserve, least := range map[int64]int64{1 << 20: used + 1<<19, 16 << 20: used + 32<<20} { // the first gives back much more than it takes
		db.o.Reserve = reserve
		fill(t, dir, int(least)/os.Getpagesize())
		wasteful(false)
		fill(t, dir, int(least)/os.Getpagesize()+1)
		wasteful(true)
	}
	db.o.ShrinkBytes = 1 << 30
	wasteful(false)
	db.o.ShrinkBytes = 1 << 20
	db.waiting.Store(true)
	wasteful(false)
	db.waiting.Store(false)
	must.OK(t, db.Close())
	if begun != 0 {
		t.Errorf("%d steps", begun)
	}
}

// TestInUse: free pages and the reserve are not in use.
func TestInUse(t *testing.T) {
	db := mustOpen(t, stateDir(t, 300), Options{Reserve: 4 << 20, Fatal: noFatal(t)})
	defer db.Close()
	before := db.InUse()
	if info, err := os.Stat(filepath.Join(db.dir, stateFile)); err != nil || before <= 0 || before > info.Size()-4<<20 || db.Size() != info.Size() {
		t.Errorf("%d of %d bytes are in use: %v, %v", before, db.Size(), info, err)
	}
	must.OK(t, bloat(db, 8<<20))
	m := newModel()
	m.apply(300)
	db.Record(m.apply(1)) // what the last transaction frees is free with the next one
	must.OK(t, db.Sync())
	if now := db.InUse(); now > before+1<<20 || db.Size() < 8<<20 {
		t.Errorf("%d of %d bytes are in use, before it had free pages %d", now, db.Size(), before)
	}
}

// TestWasteful: a copy is made when it takes less than two thirds of the file, and what is allocated behind the pages counts, but for the
// reserve and the step that files grow by.
func TestWasteful(t *testing.T) {
	db := mustOpen(t, t.TempDir(), Options{FlushEvery: time.Hour, Reserve: 1 << 20, ShrinkBytes: 1})
	db.Record(newModel().apply(300))
	must.OK(t, db.Sync())
	f := db.file
	s := f.bolt.Stats()
	used := f.end - int64(s.FreePageN+s.PendingPageN)*int64(os.Getpagesize())
	kept := db.o.Reserve + db.largestStep()
	for _, c := range []struct {
		size, least int64 // of the file, and what has to be free
		want        bool
	}{
		{used, 1, false},
		{used + kept, 1, false},
		{used*3/2 + kept, 1, false},
		{used*3/2 + kept + 2, 1, true},
		{used*3/2 + kept + 2, used/2 + 1, true},
		{used*3/2 + kept + 2, used/2 + 3, false},
	} {
		f.size, db.o.ShrinkBytes = max(f.end, c.size), c.least
		if got := db.wasteful(f); got != c.want {
			t.Errorf("%d bytes used of %d, %d have to be free: %v", used, f.size, c.least, got)
		}
	}
	must.OK(t, db.Close())
}

// childShrink makes a copy.
func childShrink(dir string) error {
	placed := make(chan bool, 10)
	before := failpoint
	failpoint = func(name string) {
		before(name)
		if name == "shrink.placed" {
			placed <- true
		}
	}
	db, err := Open(dir, Options{FlushEvery: time.Hour, ShrinkBytes: 1 << 20, Reserve: smallReserve})
	if err != nil {
		return err
	}
	m := newModel()
	db.Record(m.apply(300))
	if err := errors.Join(db.Sync(), bloat(db, 8<<20)); err != nil {
		return err
	}
	db.kick <- struct{}{}
	<-placed
	db.Record(m.apply(10))
	return db.Close()
}

// TestKillWhileShrinking: a kill at any step leaves the file or its copy, and nothing beside it after the next start.
func TestKillWhileShrinking(t *testing.T) {
	root := t.TempDir()
	names := failpoints(t, "shrink", filepath.Join(root, "all"))
	killed := 0
	for i, name := range names {
		if !strings.HasPrefix(name, "shrink.") && name != "rename."+stateFile {
			continue
		}
		dir := filepath.Join(root, strconv.Itoa(i))
		if out, err := child(t, "shrink", dir, fmt.Sprintf("%s=%d", childKill, i+1)).CombinedOutput(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		db := mustOpen(t, dir, Options{})
		if s := mustLoad(t, db); s.Applied() < 300 && strings.HasPrefix(name, "shrink.") {
			t.Fatalf("killed at %s: state at %d", name, s.Applied())
		}
		must.OK(t, db.file.bolt.View(checkTree))
		must.OK(t, db.Close())
		if names := fileNames(t, dir); !slices.Equal(names, []string{stateFile}) {
			t.Errorf("killed at %s: %v are left", name, names)
		}
		killed++
	}
	if killed < 5 {
		t.Fatalf("%d kills: %v", killed, names)
	}
}
