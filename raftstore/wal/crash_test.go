package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
)

// image is the content of a directory.
type image map[string][]byte

func imageOf(t testing.TB, dir string) image {
	t.Helper()
	files, err := os.ReadDir(dir)
	must.OK(t, err)
	out := image{}
	for _, f := range files {
		out[f.Name()], err = os.ReadFile(filepath.Join(dir, f.Name()))
		must.OK(t, err)
	}
	return out
}

func (m image) write(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, b := range m {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), b, fileMode))
	}
	return dir
}

// atMost is how many random losses a test makes: n, and in the short form a quarter.
func atMost(n int) int {
	if testing.Short() {
		return n / 4
	}
	return n
}

// TestTorn loses the power in the middle of a batch: any of its sectors may be on the
// disk. Everything before the batch is there afterwards, and of the batch a beginning; and
// the log goes on, so that the next start finds nothing of the torn batch.
func TestTorn(t *testing.T) {
	cases := []struct {
		name         string
		before       int // batches
		n, size      int // of the torn batch
		segmentBytes int
		zeros        bool // in the torn batch's data
	}{
		{"one entry", 3, 1, 2000, 64 << 10, false},
		{"many entries", 3, 8, 700, 64 << 10, false},
		{"small entries", 5, 30, 40, 64 << 10, false},
		{"the first batch", 0, 3, 900, 64 << 10, false},
		{"one that begins a segment", 9, 2, 1500, 8 << 10, false},
		{"one that is longer than a segment", 2, 1, 20_000, 8 << 10, false},
		{"one entry with zeros", 3, 1, 3000, 64 << 10, true},
		{"many entries with zeros", 3, 5, 1400, 64 << 10, true},
		{"one with zeros that is longer than a segment", 2, 1, 20_000, 8 << 10, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(len(c.name)), 1))
			dir, o := t.TempDir(), Options{SegmentBytes: c.segmentBytes}
			w, err := Open(dir, o)
			must.OK(t, err)
			next := uint64(1)
			var known []*raft.Log
			for range c.before {
				batch := entries(rng, 1, next, 1+rng.IntN(2), 800)
				must.OK(t, w.StoreLogs(batch))
				known = append(known, batch...)
				next += uint64(len(batch))
			}
			must.OK(t, w.Close())
			var before, after image
			o.Commit = func(_ string, change func() error) error {
				before = imageOf(t, dir)
				defer func() { after = imageOf(t, dir) }()
				return change()
			}
			w, err = Open(dir, o)
			must.OK(t, err)
			batch := entries(rng, 1, next, c.n, c.size)
			for _, l := range batch {
				if c.zeros {
					clear(l.Data[30 : len(l.Data)-30])
				}
			}
			must.OK(t, w.StoreLogs(batch))
			known = append(known, batch...)
			must.OK(t, w.Close())
			o.Commit = nil
			kept := map[int]int{}
			for range atMost(200) {
				torn := image{}
				share := rng.IntN(6)
				for name, b := range after {
					old := append(bytes.Clone(before[name]), make([]byte, max(0, len(b)-len(before[name])))...)
					for at := 0; at < len(b); at += sector {
						if rng.IntN(5) < share {
							copy(old[at:min(at+sector, len(b))], b[at:])
						}
					}
					torn[name] = old
				}
				kept[surviveTear(t, torn.write(t), o, known, int(next)-1)]++
			}
			if len(kept) < 2 {
				t.Errorf("all tears left as many entries: %v", kept)
			}
		})
	}
}

// surviveTear opens a torn log twice, with an append in between, and returns how many
// entries of the torn batch are there.
func surviveTear(t *testing.T, dir string, o Options, known []*raft.Log, acknowledged int) int {
	t.Helper()
	w, err := Open(dir, o)
	must.OK(t, err)
	last := w.LastIndex()
	if int(last) < acknowledged || int(last) > len(known) {
		t.Fatalf("the log ends at %d; %d were acknowledged of %d", last, acknowledged, len(known))
	}
	m := &model{logs: map[uint64]*raft.Log{}}
	m.store(known[:last])
	m.check(t, w)
	more := entries(rand.New(rand.NewPCG(last, 2)), 2, last+1, 2, 100)
	must.OK(t, w.StoreLogs(more))
	m.store(more)
	must.OK(t, w.Close())
	w, err = Open(dir, o)
	must.OK(t, err)
	m.check(t, w)
	must.OK(t, w.Close())
	return int(last) - acknowledged
}

// TestDamage flips a bit anywhere, cuts a file off, or loses one: the log is refused, or
// nothing of it is missing.
func TestDamage(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 1))
	dir, o := t.TempDir(), Options{SegmentBytes: 8 << 10}
	w, err := Open(dir, o)
	must.OK(t, err)
	m := &model{logs: map[uint64]*raft.Log{}}
	for i := range uint64(30) {
		batch := entries(rng, i, 1+i*3, 3, rng.IntN(900))
		must.OK(t, w.StoreLogs(batch))
		m.store(batch)
		if i == 20 {
			must.OK(t, w.DeleteRange(m.last-1, m.last))
			must.OK(t, w.StoreLogs(batch[1:]))
		}
	}
	ends := map[string]int{}
	for _, s := range w.segments {
		ends[s.name] = int(s.end)
	}
	must.OK(t, w.Close())
	good := imageOf(t, dir)
	if len(good) < 5 {
		t.Fatalf("%d segments", len(good))
	}
	try := func(what string, bad image, noticed bool) (refused bool) {
		t.Helper()
		w, err := Open(bad.write(t), o)
		if err == nil {
			m.check(t, w)
			must.OK(t, w.Close())
			if noticed {
				t.Errorf("%s was not noticed", what)
			}
		} else if refused = errors.Is(err, ErrDamaged); !refused {
			t.Errorf("%s: %v", what, err)
		}
		return refused
	}
	if try("nothing", good, false) {
		t.Fatal("a log without damage was refused")
	}
	with := func(name string, b []byte) image {
		bad := image{}
		for n, c := range good {
			bad[n] = c
		}
		if bad[name] = b; b == nil {
			delete(bad, name)
		}
		return bad
	}
	for name, b := range good {
		end := ends[name]
		for range atMost(60) {
			if end == 0 {
				break // prepared
			}
			at := rng.IntN(end)
			flipped := bytes.Clone(b)
			flipped[at] ^= 1 << rng.IntN(8)
			try(fmt.Sprintf("a flip at %d of %s, which ends at %d", at, name, end), with(name, flipped), true)
			cut := rng.IntN(len(b))
			try(fmt.Sprintf("%s cut at %d", name, cut), with(name, b[:cut]), true)
			if end < len(b) {
				flipped := bytes.Clone(b)
				flipped[end+rng.IntN(len(b)-end)] ^= 1 << rng.IntN(8)
				try("a flip in what is not written yet", with(name, flipped), false)
			}
		}
		if name != nameOf(1) && ends[name] > 0 && ends[nameOf(w.segments[len(w.segments)-1].number)] != end {
			try(name+" is gone", with(name, nil), true)
			other := nameOf(1)
			try(name+" is a copy of "+other, with(name, good[other]), true)
		}
	}
}

// TestDamagedLengths: a length that no segment and no frame can have is damage, and neither
// memory is asked for nor counted beyond 32 bits.
func TestDamagedLengths(t *testing.T) {
	head := make([]byte, frameHead)
	head[4] = kindEntry
	binary.LittleEndian.PutUint16(head[6:], headMark)
	for size, want := range map[uint32]int{
		0: frameHead + frameTail, 5: frameHead + 8 + frameTail, maxBytes - 64: frameHead + maxBytes - 63 + frameTail, maxBytes - 63: 0, 1 << 31: 0, 1<<32 - 1: 0,
	} {
		binary.LittleEndian.PutUint32(head, size)
		if got := frameLength(head); got != want {
			t.Errorf("a frame of size %d is %d long, want %d", size, got, want)
		}
	}
	dir := t.TempDir()
	must.OK(t, mustOpen(t, dir, Options{}).Close())
	must.OK(t, os.Truncate(filepath.Join(dir, nameOf(1)), 1<<40))
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
}

// TestDamageIsFoundByReading: a flip behind the start is noticed by who reads the entry.
func TestDamageIsFoundByReading(t *testing.T) {
	dir := t.TempDir()
	w := mustOpen(t, dir, Options{})
	must.OK(t, w.StoreLogs(entries(rand.New(rand.NewPCG(1, 1)), 1, 1, 3, 500)))
	f, err := os.OpenFile(filepath.Join(dir, nameOf(1)), os.O_RDWR, 0)
	must.OK(t, err)
	defer f.Close()
	b := make([]byte, 1)
	_, err = f.ReadAt(b, int64(w.segments[0].places[1].at)+100)
	must.OK(t, err)
	_, err = f.WriteAt([]byte{b[0] ^ 4}, int64(w.segments[0].places[1].at)+100)
	must.OK(t, err)
	for index, damaged := range map[uint64]bool{1: false, 2: true, 3: false} {
		var l raft.Log
		if err := w.GetLog(index, &l); errors.Is(err, ErrDamaged) != damaged {
			t.Errorf("entry %d: %v", index, err)
		}
	}
}

// FuzzSegment gives any bytes for the segments of a log: it is opened or refused, and what
// was opened can be written to, and holds that when it is opened again.
func FuzzSegment(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 1))
	b := header{number: 1, size: 512}.append(nil)
	for i, l := range entries(rng, 1, 5, 3, 30) {
		at := uint32(len(b))
		b = appendFrame(b, 1, at, at, []byte{kindEntry, kindEntry, kindCut}[i], l)
	}
	f.Add(b, []byte{})
	f.Add(append(b, make([]byte, 100)...), header{number: 2, follows: 6, end: uint64(len(b))}.append(nil))
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, one, two []byte) {
		in := image{nameOf(1): one}
		if len(two) > 0 {
			in[nameOf(2)] = two
		}
		dir, o := in.write(t), Options{SegmentBytes: 4 << 10}
		w, err := Open(dir, o)
		if err != nil {
			return
		}
		last := w.LastIndex()
		for i := w.FirstFrom(0); i > 0 && i <= last && i < w.FirstFrom(0)+100; i++ {
			var l raft.Log
			if err := w.GetLog(i, &l); err != nil && !errors.Is(err, raft.ErrLogNotFound) {
				t.Fatalf("entry %d: %v", i, err)
			}
		}
		if last >= 1<<63 || w.first >= 1<<63 {
			must.OK(t, w.Close())
			return
		}
		more := entries(rng, 9, max(last, w.first)+1, 1, 20)
		must.OK(t, w.StoreLogs(more))
		must.OK(t, w.Close())
		w, err = Open(dir, o)
		must.OK(t, err)
		var l raft.Log
		must.OK(t, w.GetLog(more[0].Index, &l))
		if !bytes.Equal(l.Data, more[0].Data) {
			t.Fatal("another entry")
		}
		must.OK(t, w.Close())
	})
}
