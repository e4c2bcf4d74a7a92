package mvcc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// TestConcurrentReaders lets readers run against the one writer and verifies
// what the package promises them:
//
//  1. Repeatable reads: what is read as of N is the same each time, however far
//     the writer has gone, until the floor passes N.
//  2. No half batches: entries that are published together are seen together.
//  3. Marks do not go back.
//  4. A cursor returns every version of its table once and in order, and none
//     above the mark it was given.
//  5. A read as of N between the floor and the mark never misses a key, and one
//     below the floor says so rather than return less.
//
// The writer moves "left" and "right" in one batch, always to equal bodies, and
// counts each batch up, so that a reader can tell.
func TestConcurrentReaders(t *testing.T) {
	const window = 60
	batches := 1500
	if testing.Short() {
		batches = 500
	}
	s := New()
	var done atomic.Bool
	var wg sync.WaitGroup
	keys := make([]string, 20)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%02d", i)
	}
	w := &batchWriter{t: t, s: s}
	w.put("left", 0)
	w.put("right", 0)
	for _, k := range keys {
		w.put(k, 0)
	}
	s.Publish()
	start := s.Applied()
	table := s.Table("t")

	for g := range 3 {
		wg.Go(func() { readRepeatedly(t, s, table, len(keys)+2, rand.New(rand.NewPCG(uint64(g), 3)), &done) })
	}
	for g, room := range []int{1, 16, 400} {
		c, err := table.Watch(start)
		must.OK(t, err)
		wg.Go(func() { followConcurrently(t, s, table, c, room, g == 0, &done) })
	}
	for i := range batches {
		w.put("left", i)
		w.put(keys[i%len(keys)], i)
		w.put("right", i)
		if i%10 == 9 && w.index > window*3 {
			w.compact(proto.Revision(w.index) - window*3)
		}
		s.Publish()
	}
	done.Store(true)
	wg.Wait()
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

type batchWriter struct {
	t     *testing.T
	s     *State
	index proto.RaftIndex
}

func (w *batchWriter) put(key string, n int) {
	body := fmt.Sprint(n)
	w.apply(proto.Encode(proto.KindWrite, &proto.Write{Table: "t", Key: key, Op: proto.Op_OP_PUT, Uid: body, Value: []byte(body)}))
}

func (w *batchWriter) compact(floor proto.Revision) {
	w.apply(proto.Encode(proto.KindCompact, &proto.Compact{Floor: uint64(floor)}))
}

func (w *batchWriter) apply(entry []byte, err error) {
	w.index++
	if err == nil {
		_, err = w.s.Apply(w.index, 1, entry)
	}
	if err != nil {
		w.t.Error(err)
	}
}

func readRepeatedly(t *testing.T, s *State, table *Table, keys int, rng *rand.Rand, done *atomic.Bool) {
	var mark proto.Revision
	for !done.Load() {
		now := s.Applied()
		if now < mark { // 3
			t.Errorf("the mark went back from %d to %d", mark, now)
			return
		}
		mark = now
		at := now - min(now, proto.Revision(rng.IntN(250)))
		first, err := table.Range(Query{At: at})
		if errors.Is(err, ErrCompacted) {
			if s.Floor() <= at {
				t.Errorf("compacted at %d with floor %d", at, s.Floor())
				return
			}
			continue
		}
		if err != nil || (at == now && len(first.Versions) != keys) { // 5
			t.Errorf("range at %d: %d keys, %v", at, len(first.Versions), err)
			return
		}
		if at == now { // 2
			left, err1 := table.Get("left", at)
			right, err2 := table.Get("right", at)
			if err := errors.Join(err1, err2); err != nil {
				if !errors.Is(err, ErrCompacted) {
					t.Errorf("get at %d: %v", at, err)
				}
			} else if left.UID != right.UID {
				t.Errorf("at %d: left is %s, right is %s", at, left.UID, right.UID)
				return
			}
		}
		again, err := table.Range(Query{At: at, Limit: 1 + rng.IntN(keys)}) // 1
		if errors.Is(err, ErrCompacted) {
			continue
		}
		if err != nil || len(again.Versions)+int(again.Remaining) != len(first.Versions) {
			t.Errorf("at %d: first %d keys, then %d and %d, %v", at, len(first.Versions), len(again.Versions), again.Remaining, err)
			return
		}
		for i, v := range again.Versions {
			if first.Versions[i] != v || v.Revision > at {
				t.Errorf("at %d: first %s at %d, then %s at %d", at, first.Versions[i].Key, first.Versions[i].Revision, v.Key, v.Revision)
				return
			}
		}
	}
}

func followConcurrently(t *testing.T, s *State, table *Table, c *Cursor, room int, slow bool, done *atomic.Bool) {
	buf := make([]*Version, room)
	last, left := c.After(), -1
	for {
		finished := done.Load()
		upTo := s.Applied()
		n, err := c.Next(buf, upTo)
		if errors.Is(err, ErrCompacted) { // 5
			if s.Floor() <= c.After() {
				t.Errorf("cursor at %d: compacted with floor %d", c.After(), s.Floor())
				return
			}
			if finished {
				return
			}
			// Begin again, as a client would.
			last, left = s.Applied(), -1
			if c, err = table.Watch(last); err != nil && !errors.Is(err, ErrCompacted) {
				t.Error(err)
				return
			}
			if c == nil { // the floor was faster once more
				c = &Cursor{table: table, after: last}
			}
			continue
		}
		if err != nil {
			t.Error(err)
			return
		}
		for _, v := range buf[:n] { // 4
			if v.Revision <= last || v.Revision > upTo {
				t.Errorf("event %d after %d, up to %d", v.Revision, last, upTo)
				return
			}
			last = v.Revision
			if v.Key == "left" {
				var body int
				if _, err := fmt.Sscan(v.UID, &body); err != nil || (left >= 0 && body != left+1) {
					t.Errorf("batch %d came after batch %d, %v", body, left, err)
					return
				}
				left = body
			}
		}
		if n == 0 && finished {
			return
		}
		if slow && n > 0 && !finished {
			for s.Applied() < upTo+300 && !done.Load() { // falls behind the floor
				runtime.Gosched()
			}
		}
	}
}
