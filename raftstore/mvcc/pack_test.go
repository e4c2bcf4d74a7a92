package mvcc

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

func packAll(s *State) {
	for s.Pack(s.Applied(), s.Applied()) {
	}
}

// versions are those of a table, by revision.
func versions(t *testing.T, s *State, table string) (out []*Version) {
	t.Helper()
	c, err := s.Table(table).Watch(s.Floor())
	must.OK(t, err)
	out = make([]*Version, 1_000_000)
	n, err := c.Next(out, s.Applied())
	must.OK(t, err)
	return out[:n]
}

// TestPackedValues: what is packed says the same, takes less, and can be read by way of few others.
func TestPackedValues(t *testing.T) {
	const keys, rounds = 30, 40
	l := &log{TB: t, s: New()}
	for round := range rounds {
		for i := range keys {
			w := memoryWrite(i, round)
			if round == rounds-1 && i < 3 {
				w.Op, w.Value, w.Limits = proto.Op_OP_DELETE, nil, nil
			}
			l.entry(proto.Encode(proto.KindWrite, w))
		}
	}
	l.s.Publish()
	all := versions(t, l.s, "core/configmaps")
	var want [][]byte
	var size int64
	for _, v := range all {
		want = append(want, bytes.Clone(v.Value()))
		size += v.Size()
	}
	before := all[keys].Value() // a reader that holds bytes
	packAll(l.s)
	var superseded, newest, deepest int
	for i, v := range all {
		if got := v.Value(); !bytes.Equal(got, want[i]) || v.ValueSize() != len(got) || string(v.AppendValue([]byte("x"))) != "x"+string(got) {
			t.Fatalf("%s at %d is %s, want %s", v.Key, v.Revision, got, want[i])
		}
		size -= v.Size()
		var depth int
		for v := v; v.packed.Load() != nil && v.packed.Load().next != nil; v = v.packed.Load().next {
			depth++
		}
		deepest = max(deepest, depth)
		switch p := v.packed.Load(); {
		case depth >= longestRun:
			t.Errorf("%s at %d is read by way of %d others", v.Key, v.Revision, depth)
		case p == nil: // a template, or a run's end that none fits
		case v.raw.Load() != nil:
			t.Errorf("%s at %d has its value twice", v.Key, v.Revision)
		case p.next != nil && len(p.delta) < 100:
			superseded++
		case p.next == nil && len(p.delta) < 1150:
			newest++
		}
	}
	if deepest != longestRun-1 {
		t.Errorf("no value is read by way of more than %d others, %d might be", deepest, longestRun-1)
	}
	if size != 0 {
		t.Errorf("the sizes differ by %d bytes", size)
	}
	if at := keys * (rounds - 1); superseded < at*9/10 || newest < keys-tableTemplates {
		t.Errorf("%d of %d superseded versions are packed by their successors, %d of %d by templates", superseded, at, newest, keys)
	}
	if !bytes.Equal(before, want[keys]) {
		t.Error("bytes have changed that somebody holds")
	}
	// Written again: the base of what is packed by it is packed in turn.
	for i := range keys {
		l.entry(proto.Encode(proto.KindWrite, memoryWrite(i, rounds)))
	}
	l.s.Publish()
	packAll(l.s)
	for i, v := range all {
		if got := v.Value(); !bytes.Equal(got, want[i]) {
			t.Fatalf("%s at %d is %s, want %s", v.Key, v.Revision, got, want[i])
		}
	}
	if err := l.s.Check(); err != nil {
		t.Error(err)
	}
}

// unlike makes random values: nothing in them is alike.
func unlike() func(n int) []byte {
	rng := rand.NewChaCha8([32]byte{1})
	return func(n int) []byte {
		b := make([]byte, n)
		rng.Read(b)
		return b
	}
}

// TestWhatIsNotPacked: there is nothing to save, or each read would cost too much, or nothing is alike.
func TestWhatIsNotPacked(t *testing.T) {
	random := unlike()
	s := New()
	w := &batchWriter{t: t, s: s}
	write := func(key string, value []byte) {
		w.apply(proto.Encode(proto.KindWrite, &proto.Write{Table: "t", Key: key, Op: proto.Op_OP_PUT, Value: value}))
	}
	large := random(largeValue + 1)
	for i := range 2 {
		write("small", []byte("small"))
		write("empty", nil)
		write("large", large)
		write("other", random(2000+i))
	}
	for i := range 10 * freshTemplate {
		write(fmt.Sprint("unlike", i), random(2000))
	}
	s.Publish()
	packAll(s)
	for _, v := range versions(t, s, "t") {
		if v.packed.Load() != nil {
			t.Errorf("%s at %d is packed", v.Key, v.Revision)
		}
	}
	if n := len(s.Table("t").templates); n != tableTemplates {
		t.Errorf("the table has %d templates", n)
	}
}

// TestBoundsOfPacking goes over the bounds of sizes, and of how much has to be saved: of a superseded
// value a quarter, and half of what is left if a template has packed it; of the newest one a tenth,
// and what it takes to say by what it is packed.
func TestBoundsOfPacking(t *testing.T) {
	random := unlike()
	// beside is a value that has the first bytes of another one, and is unlike it after them.
	beside := func(value []byte, alike int) []byte {
		return append(bytes.Clone(value[:alike]), random(len(value)-alike)...)
	}
	value := random(largeValue + 1)
	short := value[:4000]
	half := beside(short, 2000) // of which a template packs half
	for _, c := range []struct {
		what string
		// The values of a key, and of one before it in the same table.
		template, value, next []byte
		packed                string // what by: a template, the next one, or nothing
	}{
		{"by the next one", nil, short, short, "next"},
		{"the smallest value by the next one", nil, value[:smallValue], value[:smallValue], "next"},
		{"less than that", nil, value[:smallValue-1], value[:smallValue-1], ""},
		{"the largest value by the next one", nil, value[:largeValue], value[:largeValue], "next"},
		{"more than that", nil, value, value[:largeValue], ""},
		{"a value before one that is too large", nil, value[:largeValue], value, ""},
		{"a value that the next one has a quarter of", nil, short, beside(short, 1050), "next"},
		{"one that it has less of", nil, short, beside(short, 1000), ""},
		{"by a template", short, short, nil, "template"},
		{"the smallest value by a template", value[:smallValue], value[:smallValue], nil, "template"},
		{"less than that", value[:smallValue-1], value[:smallValue-1], nil, ""},
		{"the largest template", value[:largeTemplate], value[:largeTemplate], nil, "template"},
		{"more than that", value[:largeTemplate+1], value[:largeTemplate+1], nil, ""},
		{"a value that a template has a tenth of", short, beside(short, 490), nil, "template"},
		{"one that it has less of", short, beside(short, 440), nil, ""},
		{"a value by a template, for the next one has no half of the rest", short, half, beside(half, 2960), "template"},
		{"by the next one, which has half of it", short, half, beside(half, 3040), "next"},
	} {
		s := New()
		w := &batchWriter{t: t, s: s}
		for i, value := range [][]byte{c.template, c.value, c.next} {
			if value != nil {
				w.apply(proto.Encode(proto.KindWrite, &proto.Write{Table: "t", Key: fmt.Sprint("k", min(i, 1)), Op: proto.Op_OP_PUT, Value: value}))
			}
			s.Publish()
			packAll(s)
		}
		_, v := s.Table("t").newest("k1")
		if c.next != nil {
			v = v.Prev()
		}
		by := ""
		switch p := v.packed.Load(); {
		case p != nil && p.next != nil:
			by = "next"
		case p != nil:
			by = "template"
		}
		if by != c.packed || !bytes.Equal(v.Value(), c.value) {
			t.Errorf("%s: it is packed by %q, want %q", c.what, by, c.packed)
		}
	}
}

// TestPackForgets: the room for a delta is used again, unless it is so much that it is not to be kept for ever.
func TestPackForgets(t *testing.T) {
	random := unlike()
	s := New()
	w := &batchWriter{t: t, s: s}
	for _, size := range []int{4000, 2 * largeTemplate} { // of which three fifths are in the delta
		for range 2 {
			value := append(make([]byte, size*2/5), random(size*3/5)...)
			w.apply(proto.Encode(proto.KindWrite, &proto.Write{Table: "t", Key: "k", Op: proto.Op_OP_PUT, Value: value}))
		}
		s.Publish()
		packAll(s)
		if kept := cap(s.packing.room); (kept > 0) != (size < largeTemplate) {
			t.Errorf("behind a value of %d bytes, %d are kept", size, kept)
		}
	}
}

// TestTemplatesOfDroppedTables: the templates of tables that were dropped are not counted.
func TestTemplatesOfDroppedTables(t *testing.T) {
	s := New()
	w := &batchWriter{t: t, s: s}
	write := func(op proto.Op, table, key string) {
		value := append(bytes.Repeat([]byte("the same in all of them "), 20), table+key...)
		if op == proto.Op_OP_DELETE {
			value = nil
		}
		w.apply(proto.Encode(proto.KindWrite, &proto.Write{Table: table, Key: key, Op: op, Value: value}))
	}
	for i := range mostTemplates + 10 {
		table := fmt.Sprint("kind", i)
		write(proto.Op_OP_PUT, table, "k")
		s.Publish()
		packAll(s)
		write(proto.Op_OP_DELETE, table, "k")
		s.Publish()
		w.apply(proto.Encode(proto.KindCompact, &proto.Compact{Floor: uint64(s.Applied())}))
		s.Publish()
	}
	if n := s.tables.Load().Len(); n != 0 {
		t.Fatalf("%d tables are left", n)
	}
	write(proto.Op_OP_PUT, "last", "a")
	write(proto.Op_OP_PUT, "last", "b")
	s.Publish()
	packAll(s)
	packed := 0
	for _, v := range versions(t, s, "last") {
		if v.packed.Load() != nil {
			packed++
		}
	}
	if packed != 1 || s.packing.templates > 20 { // they are counted again at the bound
		t.Errorf("%d of two alike values are packed, %d templates are counted", packed, s.packing.templates)
	}
}

// TestQueue: what is taken comes in order, is no more than there is room for, and ends before the first
// that stays; what is left comes next, with what was added meanwhile.
func TestQueue(t *testing.T) {
	var q queue[int]
	added, want := 0, 0
	for round, room := range []int{1, 0, 5, queuePiece, 2, 2*queuePiece + 1, queuePiece - 8, 10 * queuePiece} {
		for range queuePiece + 3 {
			q.add(added)
			added++
		}
		for stay := range 2 { // first one stays that there would be room for, then none
			end := min(added, want+room)
			stays := func(int) bool { return false }
			if first := want + room/2; stay == 0 {
				end, stays = min(added, first), func(n int) bool { return n >= first }
			}
			taken := q.take(make([]int, 0, room), stays)
			if len(taken) != end-want {
				t.Fatalf("round %d: %d are taken into room for %d, want %d", round, len(taken), room, end-want)
			}
			for _, n := range taken {
				if n != want {
					t.Fatalf("round %d: %d, want %d", round, n, want)
				}
				want++
			}
		}
	}
	if want != added || len(q.pieces) > 0 {
		t.Errorf("%d of %d were taken, %d pieces are kept", want, added, len(q.pieces))
	}
}

// waiting is how much waits for Pack.
func (u *unpacked) waiting() (olds, fresh, live int) { return u.old.len(), u.fresh.len(), u.live.len() }

// TestNobodyPacks: what waits for a goroutine that does not run is let go with the history. Where one runs and lags,
// it is told of what is live, and of nothing else that the floor has passed.
func TestNobodyPacks(t *testing.T) {
	for _, packs := range []bool{false, true} {
		s := New()
		w := &batchWriter{t: t, s: s}
		if packs {
			s.Pack(0, 0)
		}
		const live = 5
		for i := range live {
			w.put(fmt.Sprint("live", i), i)
		}
		for i := range 3*queuePiece - live {
			w.put("k", i)
		}
		w.compact(2 * queuePiece)
		s.Publish()
		wantLive := 0
		if packs {
			wantLive = live
		}
		if olds, fresh, n := s.unpacked.waiting(); olds != queuePiece || fresh != queuePiece || n != wantLive {
			t.Errorf("packs %v: %d, %d and %d wait, want %d twice, and %d", packs, olds, fresh, n, queuePiece, wantLive)
		}
		for s.Pack(s.Applied(), s.Applied()) {
		}
		if olds, fresh, n := s.unpacked.waiting(); olds+fresh+n > 0 {
			t.Errorf("packs %v: %d, %d and %d wait behind Pack", packs, olds, fresh, n)
		}
	}
}

// TestPackLags: where Pack comes to nothing, what waits is bounded by what is live and by the history, whatever is written,
// superseded and deleted.
func TestPackLags(t *testing.T) {
	s := New()
	w := &batchWriter{t: t, s: s}
	s.Pack(0, 0)
	const keys, rounds = 2 * queuePiece, 20
	for round := range rounds {
		at := s.Applied()
		for i := range keys {
			w.put(fmt.Sprint("k", i), round) // supersedes
		}
		for i := range keys {
			key := fmt.Sprint("round ", round, " k", i)
			w.put(key, i)
			w.apply(proto.Encode(proto.KindWrite, &proto.Write{Table: "t", Key: key, Op: proto.Op_OP_DELETE}))
		}
		w.compact(at)
		s.Publish()
		olds, fresh, live := s.unpacked.waiting()
		if inHistory := int(s.Applied() - at); olds > inHistory || fresh > inHistory || live > 3*keys {
			t.Fatalf("round %d: %d, %d and %d wait; the history has %d, and %d keys are live", round, olds, fresh, live, inHistory, keys)
		}
	}
	w.compact(s.Applied())
	for s.Pack(s.Applied(), s.Applied()) {
	}
	if olds, fresh, live := s.unpacked.waiting(); olds+fresh+live > 0 {
		t.Errorf("%d, %d and %d wait behind Pack", olds, fresh, live)
	}
}

// TestPackConcurrently packs beside the writer and readers: what is read as of any revision is what
// was written, no matter who holds it and however it is kept.
func TestPackConcurrently(t *testing.T) {
	const keys = 8
	rounds := 300
	if testing.Short() {
		rounds = 100
	}
	s := New()
	w := &batchWriter{t: t, s: s}
	body := func(key string, n int) string {
		return strings.Repeat("what all of them say and none of them means, ", 8) + key + fmt.Sprintf(" for the %d. time", n)
	}
	put := func(i, n int) {
		key := fmt.Sprint("k", i)
		// The uid says which body the version has.
		w.apply(proto.Encode(proto.KindWrite, &proto.Write{Table: "t", Key: key, Op: proto.Op_OP_PUT, Uid: fmt.Sprint(n), Value: []byte(body(key, n))}))
	}
	for i := range keys {
		put(i, 0)
	}
	s.Publish()
	var done atomic.Bool
	var wg sync.WaitGroup
	right := func(v *Version) bool {
		var n int
		if _, err := fmt.Sscan(v.UID, &n); err != nil {
			t.Error(err)
			return false
		}
		if got, want := string(v.Value()), body(v.Key, n); got != want || string(v.AppendValue(nil)) != want {
			t.Errorf("%s at %d is %q, want %q", v.Key, v.Revision, got, want)
			return false
		}
		return true
	}
	wg.Go(func() { // packs
		for !done.Load() {
			at := s.Applied()
			s.Pack(at-min(at, keys), at-min(at, 5*keys))
		}
	})
	for range 2 { // reads as of some revision, and the versions before
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, 1))
			for !done.Load() {
				at := s.Applied()
				page, err := s.Table("t").Range(Query{At: at - min(at, proto.Revision(rng.IntN(100)))})
				if err != nil && !errors.Is(err, ErrCompacted) {
					t.Error(err)
				}
				for _, v := range page.Versions {
					for ; v != nil; v = v.Prev() {
						if !right(v) || v.Record("t").Revision == 0 {
							return
						}
					}
				}
			}
		})
	}
	wg.Go(func() { // watches, and is behind
		for c := (*Cursor)(nil); !done.Load(); {
			var buf [7]*Version
			if c == nil {
				c, _ = s.Table("t").Watch(s.Floor())
				continue
			}
			n, err := c.Next(buf[:], s.Applied())
			if err != nil {
				c = nil
			}
			for _, v := range buf[:n] {
				if !right(v) {
					return
				}
			}
		}
	})
	for n := range rounds {
		for i := range keys {
			put(i, n+1)
		}
		if n%20 == 19 {
			w.compact(proto.Revision(w.index) - 60*keys/2)
		}
		s.Publish()
	}
	done.Store(true)
	wg.Wait()
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	packAll(s)
	packed := 0
	for _, v := range versions(t, s, "t") {
		if right(v) && v.packed.Load() != nil {
			packed++
		}
	}
	if packed < keys {
		t.Errorf("%d versions are packed", packed)
	}
}

// TestValueWhileItIsPacked reads a value in the very moment in which it is packed, many times.
func TestValueWhileItIsPacked(t *testing.T) {
	base := bytes.Repeat([]byte("what all of them say, "), 10)
	like := &template{value: base, index: &deltaIndex{}}
	like.index.reset(base)
	delta := string(like.index.append(nil, base, len(base)))
	var now atomic.Pointer[Version]
	var reads atomic.Int64
	var done atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !done.Load() {
				if v := now.Load(); v != nil {
					if got := v.Value(); !bytes.Equal(got, base) {
						t.Errorf("it is %q", got)
						return
					}
					if reads.Add(1)%64 == 0 {
						runtime.Gosched()
					}
				}
			}
		})
	}
	versions := 3000
	if testing.Short() {
		versions = 1000
	}
	for range versions {
		v := (&Version{Key: "k"}).SetValue(base)
		before := reads.Load()
		now.Store(v)
		for reads.Load() < before+2 && !t.Failed() {
			runtime.Gosched()
		}
		v.pack(&packed{like: like, delta: delta})
	}
	done.Store(true)
	wg.Wait()
}
