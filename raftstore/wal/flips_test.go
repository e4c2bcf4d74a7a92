package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
)

// noticed reports whether a segment that is the only one is damaged, as load finds it.
func noticed(b []byte) bool {
	h, begun, err := readHeader(b, 1)
	if err == nil && begun {
		var end int
		if end, err = scan(b, h.format, 1, func(uint32, int, frame) error { return nil }); err == nil {
			_, err = torn(b, h.format, 1, end)
		}
	}
	return errors.Is(err, ErrDamaged)
}

// flipped flips one bit of the first segment at a time, and opens the log, which is refused or whole. Where
// that many opens would take long, damage that is noticed in the bytes is opened one time in every.
func flipped(t *testing.T, dir string, o Options, bits []int, every int, m *model) (refused int) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, nameOf(1)), os.O_RDWR, 0)
	must.OK(t, err)
	defer f.Close()
	whole, err := os.ReadFile(f.Name())
	must.OK(t, err)
	for i, bit := range bits {
		at, flip := int64(bit/8), byte(1)<<(bit%8)
		b := whole[at : at+1 : at+1]
		if every > 1 {
			b[0] ^= flip
			ok := noticed(whole)
			if b[0] ^= flip; ok && i%every != 0 {
				refused++
				continue
			}
		}
		_, err = f.WriteAt([]byte{b[0] ^ flip}, at)
		must.OK(t, err)
		w, err := Open(dir, o)
		switch {
		case err == nil:
			if last := w.LastIndex(); last != m.last {
				t.Errorf("bit %d of byte %d: the log ends at %d, want %d", bit%8, at, last, m.last)
			} else {
				m.check(t, w)
			}
			must.OK(t, w.Close())
		case errors.Is(err, ErrDamaged):
			refused++
		default:
			t.Errorf("bit %d of byte %d: %v", bit%8, at, err)
		}
		_, err = f.WriteAt(b, at)
		must.OK(t, err)
	}
	return refused
}

func upTo(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

// TestEveryFlip flips each bit that was ever synced: the newest batch was acknowledged, and damage
// in it is not taken for a tear.
func TestEveryFlip(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 1))
	data := func(parts ...[]byte) []*raft.Log {
		return []*raft.Log{{Index: 4, Term: 1, Data: bytes.Join(parts, nil)}}
	}
	a := bytes.Repeat([]byte("a"), 150)
	few := make([]byte, 1200) // a sector of them has one bit that is set
	for i := 100; i < len(few); i += sector {
		few[i] = 1
	}
	for _, row := range []struct {
		name  string
		batch []*raft.Log
	}{
		{"one entry", entries(rng, 1, 4, 1, 300)},
		{"three entries", entries(rng, 1, 4, 3, 200)},
		{"an entry with zeros", data(a, make([]byte, 1200), a)},
		{"an entry with few bits", data(a, few, a)},
		{"an entry without data", []*raft.Log{{Index: 4, Term: 1}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir, o := t.TempDir(), Options{SegmentBytes: 4 << 10}
			w := mustOpen(t, dir, o)
			m := &model{logs: map[uint64]*raft.Log{}}
			for _, batch := range [][]*raft.Log{entries(rand.New(rand.NewPCG(6, 1)), 1, 1, 3, 60), row.batch} {
				must.OK(t, w.StoreLogs(batch))
				m.store(batch)
			}
			end := int(w.tail().end)
			must.OK(t, w.Close())
			bits := upTo(8 * end)
			if refused := flipped(t, dir, o, bits, 16, m); refused != len(bits) {
				t.Errorf("%d of %d flips are refused", refused, len(bits))
			}
		})
	}
}

// TestFlipsOfNotes: a truncation and a cut do not get lost either, wherever a sector begins in their frames.
func TestFlipsOfNotes(t *testing.T) {
	for shift := 0; shift < frameHead+frameTail; shift += 8 {
		dir, o := t.TempDir(), Options{SegmentBytes: 4 << 10}
		w := mustOpen(t, dir, o)
		m := &model{logs: map[uint64]*raft.Log{}}
		// The frame of the note begins that many bytes before a sector.
		logs := []*raft.Log{framed(1, 400), framed(2, 400), framed(3, 2*sector-headerSize-800-shift)}
		must.OK(t, w.StoreLogs(logs))
		m.store(logs)
		must.OK(t, w.DeleteRange(3, 3))
		m.remove(3, 3)
		end := int(w.tail().end)
		must.OK(t, w.Close())
		var bits []int
		for bit := 8 * (2*sector - shift); bit < 8*end; bit++ {
			bits = append(bits, bit)
		}
		if refused := flipped(t, dir, o, bits, 1, m); refused != len(bits) {
			t.Errorf("%d of %d flips are refused in a truncation %d bytes before a sector", refused, len(bits), shift)
		}
	}
}

// TestFlippedSizes: the size of the newest frame does not decide by itself what was torn, in a segment of
// any length.
func TestFlippedSizes(t *testing.T) {
	for _, size := range []int{4 << 10, 1 << 20, DefaultSegmentBytes} {
		dir, o := t.TempDir(), Options{SegmentBytes: 4 << 10}
		w := mustOpen(t, dir, o)
		m := &model{logs: map[uint64]*raft.Log{}}
		logs := []*raft.Log{framed(1, 400), framed(2, 400), framed(3, 400)}
		storeEach(t, w, logs...)
		m.store(logs)
		at := int(w.tail().places[2].at)
		must.OK(t, w.Close())
		path := filepath.Join(dir, nameOf(1))
		must.OK(t, os.Truncate(path, int64(size)))
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		must.OK(t, err)
		_, err = f.WriteAt(header{number: 1, size: uint32(size)}.append(nil), 0)
		must.OK(t, errors.Join(err, f.Close()))
		var bits []int
		for bit := 0; bit < 32; bit += 1 + size>>22 { // opening a long one takes long
			bits = append(bits, 8*at+bit)
		}
		if refused := flipped(t, dir, o, bits, 1, m); refused != len(bits) {
			t.Errorf("%d of %d flips are refused in a segment of %d bytes", refused, len(bits), size)
		}
	}
}

// payloads are such as a client may choose to have sectors of zeros in a log, or next to zeros.
func payloads() map[string][]byte {
	words := func(n int) (b []byte) { // a sector of each mask
		for word := range uint32(n) {
			for range sector / 4 {
				b = binary.LittleEndian.AppendUint32(b, word)
			}
		}
		return b
	}
	one := make([]byte, 4*sector)
	one[700] = 1
	dense := bytes.Repeat([]byte("x"), 8*sector)
	clear(dense[3*sector : 5*sector])
	return map[string][]byte{
		"nothing":            nil,
		"a byte":             {0},
		"zeros":              make([]byte, 2000),
		"zeros, and one bit": one,
		"zeros inside":       dense,
		"the masks":          words(300),
		"half a mask":        words(300)[sector/2:],
		"ones":               bytes.Repeat([]byte{0xff}, 3000),
	}
}

// checkFrame encodes an entry, and reads it again; no sector inside the frame has few bits.
func checkFrame(t *testing.T, at uint32, l *raft.Log) {
	t.Helper()
	f := appendFrame(nil, 3, at, 40, kindEntry, l)
	if len(f) != frameSize(len(l.Extensions)+len(l.Data)) {
		t.Fatalf("%d bytes", len(f))
	}
	for o := int(-at % sector); o+sector <= len(f); o += sector {
		if sparse(f[o : o+sector]) {
			t.Fatalf("at %d: the sector at %d of %d has few bits", at, o, len(f))
		}
	}
	whole := bytes.Clone(f)
	got, length, ok := readFrame(f, 3, at)
	if !ok || length != len(f) || !bytes.Equal(got.log.Data, l.Data) || !bytes.Equal(got.log.Extensions, l.Extensions) {
		t.Fatalf("at %d: it is not read again: %v", at, ok)
	}
	if !bytes.Equal(f, whole) {
		t.Fatal("it was changed by reading it")
	}
	if _, _, ok := readFrame(f, 3, at+8); ok {
		t.Fatal("it is read at another place")
	}
}

// TestNoSectorOfZeros: whatever an entry has in it, and wherever it is, no sector of its frame looks like
// one that is missing, or nearly.
func TestNoSectorOfZeros(t *testing.T) {
	for name, b := range payloads() {
		t.Run(name, func(t *testing.T) {
			for at := uint32(headerSize); at < headerSize+sector; at += 8 {
				checkFrame(t, at, &raft.Log{Index: 7, Term: 2, Data: b})
				if len(b) > 9 {
					checkFrame(t, at, &raft.Log{Index: 7, Term: 2, Extensions: b[:9], Data: b[9:]})
				}
			}
		})
	}
}

func FuzzFrame(f *testing.F) {
	for _, b := range payloads() {
		f.Add(b[:min(len(b), 4<<10)], uint16(5), uint16(3))
	}
	f.Fuzz(func(t *testing.T, b []byte, at, extensions uint16) {
		n := min(int(extensions), len(b))
		checkFrame(t, 8*uint32(at), &raft.Log{Index: 1, Extensions: b[:n], Data: b[n:]})
	})
}

// TestMasked: an entry that was written with a mask is read from the file, and by the next start.
func TestMasked(t *testing.T) {
	dir := t.TempDir()
	w := mustOpen(t, dir, Options{})
	m := &model{logs: map[uint64]*raft.Log{}}
	for i := range uint64(5) {
		l := framed(i+1, 4000)
		clear(l.Data[i : 3000+i])
		storeEach(t, w, l)
		m.store([]*raft.Log{l})
	}
	m.check(t, w)
	must.OK(t, w.Close())
	m.check(t, mustOpen(t, dir, Options{}))
}

// TestLaterFormat: a segment of a later release's format is not damage.
func TestLaterFormat(t *testing.T) {
	b := header{number: 1, size: segmentBytes}.append(nil)
	b[len(magic)] = format + 1
	b = binary.LittleEndian.AppendUint32(b[:headerSize-4], crc32.Checksum(b[:headerSize-4], castagnoli))
	_, err := Open(image{nameOf(1): append(b, make([]byte, segmentBytes)...)}.write(t), Options{SegmentBytes: segmentBytes})
	if want := fmt.Sprintf("format %d is unknown, this release knows up to %d", format+1, format); err == nil || errors.Is(err, ErrDamaged) || !bytes.Contains([]byte(err.Error()), []byte(want)) {
		t.Errorf("%v, want %q", err, want)
	}
}
