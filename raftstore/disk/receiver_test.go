package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"google.golang.org/protobuf/encoding/protowire"
)

// pieces reads a few bytes at a time.
type pieces struct {
	from io.Reader
	rng  *rand.Rand
}

func (p pieces) Read(b []byte) (int, error) { return p.from.Read(b[:min(len(b), 1+p.rng.IntN(700))]) }

// forged is a stream of records with all checksums right.
func forged(t testing.TB, header []byte, payloads ...[]byte) []byte {
	t.Helper()
	size := len(streamPreamble) + frameHead + len(header) + trailerSize
	for _, p := range payloads {
		size += frameHead + len(p)
	}
	var f frames
	b := f.preamble(make([]byte, 0, size)) // the race detector watches each copy of megabytes
	b = f.frame(b, header, checksum(header))
	for _, p := range payloads {
		b = f.frame(b, p, checksum(p))
		if proto.Kind(p[1])&proto.KindIgnorable == 0 {
			f.count++
		}
	}
	return f.trailer(b)
}

func encoded(t testing.TB, kind proto.Kind, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Encode(kind, m)
	must.OK(t, err)
	return b
}

// TestReceivedState: the state that was made on the way is the one in the file, whatever pieces it came in.
func TestReceivedState(t *testing.T) {
	for _, n := range []int{0, 1, 39, 400, 3000} {
		stream := backup(t, n)
		for seed := range uint64(3) {
			dir := t.TempDir()
			db := mustOpen(t, dir, Options{})
			var in *Incoming
			var err error
			if seed == 0 {
				in, err = db.Receive(bytes.NewReader(stream))
			} else {
				in, err = db.Receive(pieces{bytes.NewReader(stream), rand.New(rand.NewPCG(seed, 9))})
			}
			must.OK(t, err)
			if in.loaded == nil || in.size != int64(len(stream)) {
				t.Fatalf("%d entries: %v, %d bytes of %d", n, in.loaded, in.size, len(stream))
			}
			must.OK(t, checkState(in.loaded))
			s, err := db.Replace(in)
			must.OK(t, err)
			if in.loaded != nil || dump(s) != dump(mustLoad(t, db)) {
				t.Fatalf("%d entries: the state and its file differ", n)
			}
			var again bytes.Buffer
			_, err = db.WriteBackup(&again, nil)
			must.OK(t, err)
			if !bytes.Equal(again.Bytes(), stream) {
				t.Fatalf("%d entries: it is sent on as something else", n)
			}
			must.OK(t, db.Close())
		}
	}
}

// TestLongFrames: frames that are longer than a batch, and such as end where it does.
func TestLongFrames(t *testing.T) {
	var payloads [][]byte
	at := uint64(0)
	add := func(size int) {
		at++
		payloads = append(payloads, encoded(t, proto.KindVersionRecord, &proto.VersionRecord{
			Revision: at, CreateRevision: at, Table: "t0", Key: fmt.Sprintf("k%d", at), Value: bytes.Repeat([]byte{byte(at)}, size),
		}))
	}
	for _, size := range []int{10, batchBytes - 300, 1, 2, 3, batchBytes, 5, 3 * batchBytes, 5 << 20, 6, batchBytes / 2, batchBytes / 2, batchBytes / 2} {
		add(size)
	}
	for d := range 120 { // around the end of a batch
		add(batchBytes - 60 + d)
	}
	stream := forged(t, encoded(t, proto.KindStateRecord, &proto.StateRecord{Applied: at, AppliedTerm: 1, Versions: at}), payloads...)
	db := mustOpen(t, t.TempDir(), Options{})
	in, err := db.Receive(bytes.NewReader(stream))
	must.OK(t, err)
	s, err := db.Replace(in)
	must.OK(t, err)
	page, err := s.Table("t0").Range(mvcc.Query{At: s.Applied()})
	must.OK(t, err)
	if len(page.Versions) != int(at) {
		t.Fatalf("%d of %d", len(page.Versions), at)
	}
	for _, v := range page.Versions {
		if value := v.Value(); bytes.Count(value, []byte{byte(v.Revision)}) != len(value) {
			t.Fatalf("revision %d has another value", v.Revision)
		}
	}
	again := bytes.NewBuffer(make([]byte, 0, len(stream)))
	_, err = db.WriteBackup(again, nil)
	must.OK(t, err)
	if !bytes.Equal(again.Bytes(), stream) {
		t.Fatal("it is sent on as something else")
	}
}

// TestReceivedAndDoesNotFit: what is sound as a file and no state is refused when it is to be
// the state, as at a start, with the reason.
func TestReceivedAndDoesNotFit(t *testing.T) {
	header := func(m *proto.StateRecord) []byte { return encoded(t, proto.KindStateRecord, m) }
	record := func(r uint64) []byte {
		return encoded(t, proto.KindVersionRecord, &proto.VersionRecord{Revision: r, CreateRevision: 1, Table: "t0", Key: "k"})
	}
	for name, row := range map[string]struct {
		stream []byte
		why    error
	}{
		"a field of a later release in the header": {
			forged(t, protowire.AppendVarint(protowire.AppendTag(header(&proto.StateRecord{Applied: 5}), 1000, protowire.VarintType), 1)), proto.ErrUnknownKind,
		},
		"a field of a later release in a record": {
			forged(t, header(&proto.StateRecord{Applied: 5, Versions: 1}), protowire.AppendVarint(protowire.AppendTag(record(1), 1000, protowire.VarintType), 1)), ErrDamaged,
		},
		"the version before is missing": {
			forged(t, header(&proto.StateRecord{Applied: 5, Versions: 1}), record(2)), ErrDamaged,
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := mustOpen(t, stateDir(t, 100), Options{})
			in, err := db.Receive(bytes.NewReader(row.stream))
			must.OK(t, err)
			if in.loaded != nil {
				t.Fatal("it fits")
			}
			if _, err := db.Replace(in); !errors.Is(err, row.why) {
				t.Fatalf("%v, want %v", err, row.why)
			}
			if s := mustLoad(t, db); s.Applied() != 100 {
				t.Fatalf("state.db is at %d", s.Applied())
			}
		})
	}
}

// TestReceiveFails: who fails in the middle leaves neither a file nor a goroutine that waits, and the
// reader's own error is the one that is returned.
func TestReceiveFails(t *testing.T) {
	stream := backup(t, 3000)
	broken := errors.New("broken")
	for at := 0; at < len(stream); at += 1 + len(stream)/23 {
		db := mustOpen(t, t.TempDir(), Options{})
		_, err := db.Receive(io.MultiReader(bytes.NewReader(stream[:at]), failing{broken}))
		if !errors.Is(err, broken) {
			t.Fatalf("cut at %d: %v", at, err)
		}
		bad := bytes.Clone(stream)
		bad[at] ^= 0x40
		if _, err := db.Receive(bytes.NewReader(bad)); !refused(err) {
			t.Fatalf("flipped at %d: %v", at, err)
		}
		if names := fileNames(t, db.dir); len(names) != 1 {
			t.Fatal(names)
		}
		must.OK(t, db.Close())
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// FuzzReceive: what is received is what a backup may be, in whatever pieces it comes, and has the
// same state.
func FuzzReceive(f *testing.F) {
	good := backup(f, 60)
	f.Add(good, uint64(1), uint32(0), byte(0))
	f.Add(good[:len(good)/2], uint64(2), uint32(5), byte(1))
	f.Add(backup(f, 0), uint64(3), uint32(9), byte(0))
	f.Add([]byte(streamPreamble), uint64(4), uint32(0), byte(0))
	f.Fuzz(func(t *testing.T, b []byte, seed uint64, at uint32, flip byte) {
		b = bytes.Clone(b)
		if int(at) < len(b) {
			b[at] ^= flip
		}
		resealed(b)
		want := parsed(b)
		_, _, fits := Inspect(bytes.NewReader(b))
		dir := t.TempDir()
		in, err := receive(dir, pieces{bytes.NewReader(b), rand.New(rand.NewPCG(seed, 9))}, commitAtOnce)
		if (err == nil) != (want == nil) {
			t.Fatalf("received: %v; parsed: %v", err, want)
		}
		if err != nil {
			if names := fileNames(t, dir); len(names) != 0 {
				t.Fatal(names)
			}
			return
		}
		if (in.loaded != nil) != (fits == nil) {
			t.Fatalf("on the way: %v; inspected: %v", in.loaded, fits)
		}
		must.OK(t, os.Rename(filepath.Join(dir, incomingFile), filepath.Join(dir, stateFile)))
		db := mustOpen(t, dir, Options{})
		s, err := db.Load()
		if (err == nil) != (in.loaded != nil) {
			t.Fatalf("loaded: %v; on the way: %v", err, in.loaded)
		}
		if err == nil && dump(s) != dump(in.loaded) {
			t.Fatal("the state and its file differ")
		}
		must.OK(t, db.Close())
	})
}

// parsed parses a stream as backups are.
func parsed(b []byte) error {
	p, err := newParser(bytes.NewReader(b))
	for err == nil {
		_, _, err = p.next(new(proto.VersionRecord))
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// resealed sets the checksums of a stream's frames, as far as it has any, and its digest.
func resealed(b []byte) {
	var f frames
	if len(b) < len(streamPreamble) {
		return
	}
	_ = f.preamble(nil)
	at := len(streamPreamble)
	for ; at+frameHead <= len(b); f.count++ {
		n := int(binary.BigEndian.Uint32(b[at:]))
		if n == 0 || n > len(b)-at-frameHead {
			break
		}
		binary.BigEndian.PutUint32(b[at+4:], checksum(b[at+frameHead:at+frameHead+n]))
		_, _ = f.digest.Write(b[at : at+frameHead])
		at += frameHead + n
	}
	if len(b)-at == trailerSize {
		binary.BigEndian.PutUint64(b[at+12:], f.digest.Sum64())
		binary.BigEndian.PutUint32(b[at+20:], checksum(b[at:at+20]))
	}
}
