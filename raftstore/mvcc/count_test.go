package mvcc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// countSlowly looks at each key, from one on.
func countSlowly(t *Table, from string, q Query) (n int64) {
	t.shown.Load().keys.Ascend(&item{key: max(from, q.Prefix)}, func(it *item) bool {
		if !strings.HasPrefix(it.key, q.Prefix) {
			return false
		}
		if v := it.newest.Load().at(q.At); v != nil && !v.Deleted {
			n++
		}
		return true
	})
	return n
}

// lives writes and compacts at random: keys of three namespaces, and some without one, which
// are created, updated, deleted and created again. What is applied is published in batches.
type lives struct {
	t      testing.TB
	choose func(n int) int
	s      *State
	index  proto.RaftIndex
	stored map[proto.Revision]*proto.VersionRecord
}

func (l *lives) key() string {
	return []string{"a/", "b/", "ba/", ""}[l.choose(4)] + fmt.Sprintf("%03d", l.choose(60))
}

func (l *lives) apply(entry []byte, err error) {
	must.OK(l.t, err)
	l.index++
	r, err := l.s.Apply(l.index, 1, entry)
	must.OK(l.t, err)
	if r.Version != nil {
		l.stored[r.Version.Revision] = r.Version.Record("t")
	}
	for _, rev := range r.Removed {
		delete(l.stored, rev)
	}
}

func (l *lives) step() {
	switch n := l.choose(100); {
	case n < 2:
		now := int(l.s.Applied())
		window := 1 + l.choose(1000)
		l.apply(proto.Encode(proto.KindCompact, &proto.Compact{Floor: uint64(max(0, now-window))}))
	case n < 40:
		l.apply(proto.Encode(proto.KindWrite, &proto.Write{Table: "t", Key: l.key(), Op: proto.Op_OP_DELETE}))
	default:
		l.apply(proto.Encode(proto.KindWrite, &proto.Write{Table: "t", Key: l.key(), Op: proto.Op_OP_PUT, Value: []byte("x")}))
	}
}

// load replaces the state by what a disk would have of it.
func (l *lives) load() {
	l.s.Publish()
	next := New()
	must.OK(l.t, next.LoadState(l.s.StateRecord()))
	for rev := proto.Revision(1); rev <= l.s.Applied(); rev++ {
		if r := l.stored[rev]; r != nil {
			must.OK(l.t, next.LoadVersion(r))
		}
	}
	next.Publish()
	l.s = next
}

// look compares counts at any revision that can be read, and returns how many were compared and how many
// of these were fast.
func (l *lives) look(times int) (all, fast int) {
	t := l.s.Table("t")
	if t == nil {
		return 0, 0
	}
	for range times {
		applied, floor := l.s.Applied(), l.s.Floor()
		if applied < floor {
			return all, fast // the floor that is applied and not shown yet
		}
		q := Query{
			Prefix: []string{"", "a/", "b", "b/", "ba/", "c/", "\xff", "0"}[l.choose(8)],
			At:     applied - proto.Revision(l.choose(int(applied-floor)+1)),
			Limit:  1 + l.choose(30),
		}
		if l.choose(2) == 0 { // close to what is applied
			q.At = max(q.At, applied-min(applied, 4))
		}
		if l.choose(2) == 0 {
			q.From = l.key()
		}
		from := max(q.From, q.Prefix)
		if strings.HasPrefix(from, q.Prefix) {
			all++
			if n, ok := t.countLive(t.shown.Load(), from, q); ok {
				fast++
				if want := countSlowly(t, from, q); n != want {
					l.t.Fatalf("at %d, applied %d, floor %d: %d live keys with %q from %q on, want %d", q.At, applied, floor, n, q.Prefix, from, want)
				}
			}
		}
		page, err := t.Range(q)
		must.OK(l.t, err)
		want := max(0, countSlowly(t, from, q)-int64(q.Limit))
		if page.Remaining != want || page.More != (want > 0) {
			l.t.Fatalf("at %d, applied %d, floor %d: page %+v: %d remain, more is %v, want %d", q.At, applied, floor, q, page.Remaining, page.More, want)
		}
	}
	return all, fast
}

// TestCountLive compares what is counted by places in the trees with what a walk counts, at
// all revisions that can be read, while keys come, go and come again, what went is
// forgotten, and states are loaded; also where a batch is applied and not published yet.
func TestCountLive(t *testing.T) {
	all, fast, seeds := 0, 0, uint64(20)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 5))
		l := &lives{t: t, choose: rng.IntN, s: New(), stored: map[proto.Revision]*proto.VersionRecord{}}
		for i := range 4000 {
			l.step()
			if rng.IntN(5) == 0 {
				l.s.Publish()
			}
			if i%20 == 0 {
				a, f := l.look(4)
				all, fast = all+a, fast+f
			}
			if rng.IntN(1500) == 0 {
				l.load()
			}
		}
		l.s.Publish()
		must.OK(t, l.s.Check())
	}
	// Both ways of counting are tested, here by small tables with long histories.
	if fast < all/5 || fast == all {
		t.Fatalf("%d of %d counts were fast", fast, all)
	}
}

// FuzzCountLive is TestCountLive from bytes.
func FuzzCountLive(f *testing.F) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 6))
		b := make([]byte, 1500)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4096 {
			return
		}
		l := &lives{t: t, s: New(), stored: map[proto.Revision]*proto.VersionRecord{}}
		l.choose = func(n int) int {
			if len(b) == 0 {
				return 0
			}
			c := b[0]
			b = b[1:]
			return int(c) * n / 256
		}
		for len(b) > 0 {
			for range 1 + l.choose(8) {
				l.step()
			}
			if l.choose(4) > 0 {
				l.s.Publish()
			}
			l.look(2)
			if l.choose(16) == 15 {
				l.load()
			}
		}
	})
}

// TestCountWhileWriting has readers take pages while the writer goes on: what remains is what the
// whole list has behind the page, however far the writer has gone meanwhile.
func TestCountWhileWriting(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	l := &lives{t: t, choose: rng.IntN, s: New(), stored: map[proto.Revision]*proto.VersionRecord{}}
	for range 300 {
		l.step()
	}
	l.s.Publish()
	table := l.s.Table("t")
	var wg sync.WaitGroup
	var done atomic.Bool
	var compared atomic.Int64
	for g := range uint64(3) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(g, 8))
			for !done.Load() {
				applied := l.s.Applied()
				q := Query{At: applied - min(applied, proto.Revision(rng.IntN(100))), Limit: 1 + rng.IntN(20), Prefix: []string{"", "a/", "b"}[rng.IntN(3)]}
				page, err := table.Range(q)
				if errors.Is(err, ErrCompacted) {
					continue
				}
				whole, wholeErr := table.Range(Query{At: q.At, Prefix: q.Prefix})
				if errors.Is(wholeErr, ErrCompacted) {
					continue
				}
				if err != nil || wholeErr != nil || page.Remaining != int64(len(whole.Versions)-len(page.Versions)) {
					t.Errorf("page %+v of %d: %d remain, %v; the whole has %d, %v", q, len(page.Versions), page.Remaining, err, len(whole.Versions), wholeErr)
					return
				}
				compared.Add(1)
			}
		})
	}
	steps := 20_000
	if testing.Short() {
		steps = 4000
	}
	for i := 0; i < steps || compared.Load() < 200 && !t.Failed(); i++ {
		l.step()
		if rng.IntN(4) == 0 {
			l.s.Publish()
		}
	}
	done.Store(true)
	wg.Wait()
}
