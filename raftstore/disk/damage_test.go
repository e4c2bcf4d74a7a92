package disk

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

func refused(err error) bool {
	return errors.Is(err, ErrDamaged) || errors.Is(err, proto.ErrFormat) || errors.Is(err, ErrBehind)
}

// flips calls f for copies of b with one bit flipped or the tail cut off: at
// each of the first places, then at random.
func flips(b []byte, n int, f func(what string, b []byte)) {
	rng := rand.New(rand.NewPCG(uint64(len(b)), 3))
	for i := range n {
		at := rng.IntN(len(b))
		if i < n/4 && i < len(b) {
			at = i
		}
		bad := bytes.Clone(b)
		bad[at] ^= 1 << rng.IntN(8)
		f("flip", bad)
		f("cut", bytes.Clone(b[:at]))
	}
	f("tail", append(bytes.Clone(b), 0))
}

func TestDamagedStream(t *testing.T) {
	good := backup(t, 120)
	must.OK(t, Verify(bytes.NewReader(good)))
	dir := t.TempDir()
	db := mustOpen(t, dir, Options{})
	n := 0
	flips(good, 120, func(what string, bad []byte) {
		if err := Verify(bytes.NewReader(bad)); !refused(err) {
			t.Fatalf("%s: %v", what, err)
		}
		if n++; n%20 != 0 {
			return
		}
		if _, err := db.Receive(bytes.NewReader(bad)); !refused(err) {
			t.Fatalf("receive, %s: %v", what, err)
		}
		if names := fileNames(t, dir); len(names) != 1 {
			t.Fatal(names)
		}
		at := filepath.Join(t.TempDir(), "d")
		if _, err := RestoreBackup(at, bytes.NewReader(bad), RestoreOptions{Cluster: "new", Configuration: testServers}); !refused(err) {
			t.Fatalf("restore, %s: %v", what, err)
		}
		if _, err := RestoreBackup(at, bytes.NewReader(good), RestoreOptions{Cluster: "new", Configuration: testServers}); err != nil {
			t.Fatalf("the directory is not usable after a bad backup: %v", err)
		}
	})
}

// records swapped, dropped or doubled with all their checksums right.
func TestForgedStream(t *testing.T) {
	good := backup(t, 120)
	var cuts []int // where frames begin
	for at := len(streamPreamble); at < len(good)-trailerSize; {
		cuts = append(cuts, at)
		at += frameHead + int(uint32(good[at])<<24|uint32(good[at+1])<<16|uint32(good[at+2])<<8|uint32(good[at+3]))
	}
	cuts = append(cuts, len(good)-trailerSize)
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	a, b, c := cuts[10], cuts[11], cuts[12]
	for name, bad := range map[string][]byte{
		"swapped":      join(good[:a], good[b:c], good[a:b], good[c:]),
		"dropped":      join(good[:a], good[b:]),
		"doubled":      join(good[:b], good[a:b], good[b:]),
		"header twice": join(good[:cuts[1]], good[cuts[0]:cuts[1]], good[cuts[1]:]),
		"no header":    join(good[:cuts[0]], good[cuts[1]:]),
		"last dropped": join(good[:cuts[len(cuts)-2]], good[cuts[len(cuts)-1]:]),
		"version 2":    join([]byte{2}, good[1:]),
	} {
		if err := Verify(bytes.NewReader(bad)); !refused(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDamagedStateFile: flips in unused bytes go unnoticed, everything else is
// refused, or is an older state. Never is it a wrong one (checkState), and
// never a panic.
func TestDamagedStateFile(t *testing.T) {
	// A received file has few free pages.
	dir := t.TempDir()
	_, err := receive(dir, bytes.NewReader(backup(t, 150)), commitAtOnce)
	must.OK(t, err)
	good, err := os.ReadFile(filepath.Join(dir, incomingFile))
	must.OK(t, err)
	must.OK(t, os.Remove(filepath.Join(dir, incomingFile)))
	var bad, older, same int
	flips(good, 80, func(what string, b []byte) {
		if what == "tail" {
			return // bbolt files may be longer than what is used
		}
		must.OK(t, os.WriteFile(filepath.Join(dir, stateFile), b, fileMode))
		n, err := openNode(dir)
		switch {
		case err != nil:
			if !refused(err) && !strings.Contains(err.Error(), "invalid database") &&
				!strings.Contains(err.Error(), "file size too small") && !strings.Contains(err.Error(), "checksum error") &&
				!strings.Contains(err.Error(), "version mismatch") {
				t.Errorf("%s: unclear error: %v", what, err)
			}
			bad++
			return
		case n.m.next-1 < 150:
			older++
		default:
			same++
		}
		must.OK(t, n.db.Close())
	})
	t.Logf("%d refused, %d older, %d in unused bytes", bad, older, same)
	if bad < 60 {
		t.Fatal("the damage was hardly noticed")
	}
}

// usedPages is a file of bbolt without what bbolt has grown it by, which is megabytes.
func usedPages(t testing.TB, b []byte) []byte {
	t.Helper()
	c := pageChecker{r: bytes.NewReader(b), size: int64(len(b))}
	_, _, err := c.meta()
	must.OK(t, err)
	return b[:int64(c.pages)*c.pageSize]
}

func TestDamagedIncomingAndMeta(t *testing.T) {
	// A node that was killed between receipt and Restore.
	dir := stateDir(t, 100)
	db := mustOpen(t, dir, Options{})
	s, err := NewSnapshotStore(db, dir)
	must.OK(t, err)
	n := &node{db: db, snaps: s}
	sink, err := n.create(300)
	must.OK(t, err)
	_, err = sink.Write(backup(t, 300))
	must.OK(t, err)
	must.OK(t, sink.Close())
	must.OK(t, db.Close())

	incoming, err := os.ReadFile(filepath.Join(dir, incomingFile))
	must.OK(t, err)
	metaBytes, err := os.ReadFile(filepath.Join(dir, metaFile))
	must.OK(t, err)
	state, err := os.ReadFile(filepath.Join(dir, stateFile))
	must.OK(t, err)
	state = usedPages(t, state) // it is written and read again for each flip
	try := func(in, m []byte) (uint64, error) {
		at := t.TempDir()
		must.OK(t, os.WriteFile(filepath.Join(at, stateFile), state, fileMode))
		must.OK(t, os.WriteFile(filepath.Join(at, incomingFile), in, fileMode))
		must.OK(t, os.WriteFile(filepath.Join(at, metaFile), m, fileMode))
		n, err := openNode(at)
		if err != nil {
			// Nothing was taken over, not even in part. A start writes a meta page, and allocates pages behind the last one.
			now, err2 := os.ReadFile(filepath.Join(at, stateFile))
			must.OK(t, err2)
			if behind := 2 * os.Getpagesize(); !bytes.Equal(now[behind:len(state)], state[behind:]) {
				t.Fatal("state.db was changed by a damaged snapshot")
			}
			return 0, err
		}
		must.OK(t, n.db.Close())
		return n.m.next - 1, nil
	}
	if at, err := try(incoming, metaBytes); err != nil || at != 300 {
		t.Fatalf("undamaged: at %d, %v", at, err)
	}
	bad := 0
	flips(incoming, 30, func(what string, b []byte) {
		at, err := try(b, metaBytes)
		if err != nil {
			bad++
		} else if at != 300 {
			t.Fatalf("incoming, %s: state at %d", what, at)
		}
	})
	if bad < 25 {
		t.Fatalf("only %d of the damaged files were refused", bad)
	}
	flips(metaBytes, len(metaBytes), func(what string, b []byte) {
		if _, err := decodeMeta(b); !refused(err) {
			t.Fatalf("meta, %s: %v", what, err)
		}
	})
	if _, err := try(incoming, metaBytes[:50]); !errors.Is(err, ErrDamaged) {
		t.Fatalf("cut meta: %v", err)
	}
	must.OK(t, os.Remove(filepath.Join(dir, incomingFile)))
	if _, err := openNode(dir); !errors.Is(err, ErrBehind) {
		t.Fatalf("incoming lost: %v", err)
	}
}

// A node whose disk garbles records must not send them to others.
func TestDamagedRecordIsNotSent(t *testing.T) {
	dir := stateDir(t, 100)
	path := filepath.Join(dir, stateFile)
	b, err := os.ReadFile(path)
	must.OK(t, err)
	rec := mustOpen(t, dir, Options{})
	v := mustLoad(t, rec).Table("t1").Latest()
	must.OK(t, rec.Close())
	at := bytes.Index(b, []byte("ns/k0"))
	if at < 0 || v == 0 {
		t.Fatal("no record found")
	}
	for ; at >= 0 && at < len(b); at++ { // every copy of it: pages are copied on write
		next := bytes.Index(b[at:], []byte("ns/k0"))
		if next < 0 {
			break
		}
		at += next
		b[at+4] ^= 4
	}
	must.OK(t, os.WriteFile(path, b, fileMode))
	var fatal error
	db := mustOpen(t, dir, Options{Fatal: func(err error) { fatal = err }})
	if _, err := db.Load(); !errors.Is(err, ErrDamaged) {
		t.Fatalf("load: %v", err)
	}
	if _, err := db.WriteBackup(io.Discard, nil); !errors.Is(err, ErrDamaged) || !errors.Is(fatal, ErrDamaged) {
		t.Fatalf("write: %v, fatal %v", err, fatal)
	}
}

func FuzzStream(f *testing.F) {
	good := backup(f, 60)
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte(streamPreamble))
	f.Add(backup(f, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		rec, stats, err := Inspect(bytes.NewReader(b))
		if err == nil && (stats.Versions != rec.Versions || stats.Bytes != int64(len(b))) {
			t.Fatalf("accepted %v %+v", rec, stats)
		}
	})
}

func FuzzMeta(f *testing.F) {
	f.Add([]byte(metaPreamble))
	f.Add(seal([]byte(metaPreamble + "\x00\x00\x00\x02{}")))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, seal(bytes.Clone(b))} {
			if m, err := decodeMeta(b); err == nil && (m.Index == 0 || m.raft().Index != m.Index) {
				t.Fatalf("accepted %+v", m)
			}
		}
	})
}

// FuzzPages: whatever is in the file, opening it ends without a panic.
func FuzzPages(f *testing.F) {
	good, err := os.ReadFile(filepath.Join(stateDir(f, 5), stateFile))
	must.OK(f, err)
	good = usedPages(f, good)
	must.OK(f, (&pageChecker{r: bytes.NewReader(good), size: int64(len(good))}).check())
	f.Add(good, uint32(3*4096), uint64(1))
	f.Add(good, uint32(4096), uint64(1)<<40)
	f.Fuzz(func(t *testing.T, b []byte, at uint32, x uint64) {
		b = bytes.Clone(b)
		for i := range 8 {
			if p := int(at) + i; p < len(b) {
				b[p] ^= byte(x >> (8 * i))
			}
		}
		c := pageChecker{r: bytes.NewReader(b), size: int64(len(b))}
		_ = c.check()
	})
}
