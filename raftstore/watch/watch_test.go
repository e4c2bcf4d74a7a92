package watch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// interesting are the interests of the watchers in these tests.
func interesting() []mvcc.Interest {
	all := []mvcc.Interest{{}, {Prefix: "a/"}, {Prefix: "b/"}, {Key: "a/0", Prefix: "a/"}, {Key: "never/there"}}
	for _, value := range []string{"", "x", "y", "z"} {
		all = append(all, mvcc.Interest{Field: mvcc.Pair{Name: "f", Value: value}})
	}
	return append(all, mvcc.Interest{Field: mvcc.Pair{Name: "g", Value: "x"}})
}

func randomWrite(r *rand.Rand) *proto.Write {
	w := &proto.Write{Table: "t", Key: fmt.Sprintf("%c/%d", 'a'+r.IntN(3), r.IntN(4)), Op: proto.Op_OP_PUT, Value: []byte(`{}`)}
	if r.IntN(4) == 0 {
		w.Op, w.Value = proto.Op_OP_DELETE, nil
		return w
	}
	for _, name := range []string{"f", "g"} {
		if value := [...]string{"", "x", "y", "z"}[r.IntN(4)]; value != "" {
			w.Fields = append(w.Fields, &proto.Attribute{Name: name, Value: value})
		}
	}
	return w
}

// TestNarrowWatchersMissNothing has watchers of every interest come, read only when
// they are woken, and go, while random writes go on and the floor follows. Each must
// read exactly the part of the history that its interest covers, in order.
func TestNarrowWatchersMissNothing(t *testing.T) {
	const writes, rounds = 4000, 12
	m := newWriter(t)
	var (
		mu      sync.Mutex
		history []*mvcc.Version // as the writer saw it, with what was before
		end     proto.Revision
	)
	start := m.applied()
	var wg sync.WaitGroup
	for i, only := range interesting() {
		for reader := range 2 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), uint64(reader)))
				after := start
				for round := range rounds {
					// The last round goes on to the end, the others break off somewhere.
					until := start + proto.Revision(writes*(round+1)/rounds)
					if round == rounds-1 {
						until = start + writes
					}
					got, read, err := followOnly(t.Context(), m, only, after, until, 1+random.IntN(9))
					if err != nil {
						t.Errorf("%+v: round %d, after %d: %v", only, round, after, err)
						return
					}
					mu.Lock()
					var want []proto.Revision
					for _, v := range history {
						if v.Revision > after && v.Revision <= read && only.Canonical().Concerns(v) {
							want = append(want, v.Revision)
						}
					}
					mu.Unlock()
					if fmt.Sprint(got) != fmt.Sprint(want) {
						t.Errorf("%+v: (%d, %d]: read %v, want %v", only, after, read, got, want)
						return
					}
					after = read
				}
			})
		}
	}
	random := rand.New(rand.NewPCG(3, 4))
	for range writes {
		mu.Lock() // a reader must not be ahead of the note
		r := m.write(randomWrite(random))
		if r.Version != nil {
			history = append(history, r.Version)
		}
		end = proto.Revision(r.Index)
		mu.Unlock()
	}
	if end != start+writes {
		t.Errorf("the last write is %d, want %d", end, start+writes)
	}
	// A reader that waits for a wake that concerns it waits for this one.
	for _, only := range interesting() {
		w := &proto.Write{Table: "t", Key: "a/last", Op: proto.Op_OP_PUT, Value: []byte(`{}`)}
		switch {
		case only.Key != "":
			w.Key = only.Key
		case only.Field.Name != "":
			w.Fields = []*proto.Attribute{{Name: only.Field.Name, Value: only.Field.Value}}
		case only.Prefix != "":
			w.Key = only.Prefix + "last"
		}
		mu.Lock()
		r := m.write(w)
		history = append(history, r.Version)
		mu.Unlock()
	}
	wg.Wait()
}

// followOnly reads a watcher, waiting for Wake alone, until it has read up to a
// revision.
func followOnly(ctx context.Context, m *writer, only mvcc.Interest, after, until proto.Revision, size int) (got []proto.Revision, read proto.Revision, err error) {
	w, err := m.Watch("t", after, only)
	if err != nil {
		return nil, after, err
	}
	defer w.Close()
	buf := make([]*mvcc.Version, size)
	for read = after; ; {
		n := size
		for n == size {
			if n, read, err = w.Next(buf); err != nil {
				return got, read, err
			}
			for _, v := range buf[:n] {
				got = append(got, v.Revision)
			}
		}
		if read >= until {
			return got, read, nil
		}
		select {
		case <-w.Wake():
		case <-time.After(2 * time.Minute):
			return got, read, errors.New("no wake came")
		case <-ctx.Done():
			return got, read, ctx.Err()
		}
	}
}

// TestQuietWatcherOutlivesTheFloor: what does not concern a watcher cannot make it
// too old, however far the floor goes, and whether or not it reads meanwhile.
func TestQuietWatcherOutlivesTheFloor(t *testing.T) {
	m := newWriter(t)
	random := rand.New(rand.NewPCG(5, 6))
	var watchers []*Watcher
	only := append(interesting()[3:4], mvcc.Interest{Prefix: "quiet/"}, mvcc.Interest{Field: mvcc.Pair{Name: "f", Value: "rare"}})
	for _, i := range only {
		w, err := m.Watch("t", m.applied(), i)
		must.OK(t, err)
		watchers = append(watchers, w)
	}
	other, err := m.Watch("other", m.applied(), mvcc.Interest{})
	must.OK(t, err)
	watchers = append(watchers, other)
	buf := make([]*mvcc.Version, 8)
	for _, w := range watchers {
		defer w.Close()
		if n, _, err := w.Next(buf); n != 0 || err != nil {
			t.Fatalf("%+v: %d, %v", w.only, n, err)
		}
		<-w.Wake()
	}
	for range 1000 {
		w := randomWrite(random)
		w.Key = "busy/" + w.Key[2:]
		m.write(w)
	}
	awaitRouted(t, m)
	m.compact(m.applied())
	for _, w := range watchers {
		select {
		case <-w.Wake():
			t.Errorf("%+v was woken", w.only)
		default:
		}
		// A write that concerns this watcher and no other.
		write := &proto.Write{Table: w.table, Key: "x/y", Op: proto.Op_OP_PUT, Value: []byte(`{}`)}
		switch {
		case w.only.Key != "":
			write.Key = w.only.Key
		case w.only.Field.Name != "":
			write.Fields = []*proto.Attribute{{Name: w.only.Field.Name, Value: w.only.Field.Value}}
		case w.only.Prefix != "":
			write.Key = w.only.Prefix + "y"
		}
		r := m.write(write)
		select {
		case <-w.Wake():
		case <-time.After(10 * time.Second):
			t.Fatalf("%+v: no wake", w.only)
		}
		if n, read, err := w.Next(buf); n != 1 || read < r.Revision || err != nil || buf[0].Revision != r.Revision {
			t.Errorf("%+v: %d events up to %d, %v", w.only, n, read, err)
		}
	}
}

// awaitRouted waits until the hub has told everybody about everything.
func awaitRouted(t *testing.T, m *writer) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); proto.Revision(m.routed.Load()) < m.applied(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the hub does not follow")
		}
	}
}

// TestUnreadWatcherIsTooOld: the floor ends a watcher that has something to read
// below it, and only that one.
func TestUnreadWatcherIsTooOld(t *testing.T) {
	m := newWriter(t)
	for _, only := range []mvcc.Interest{{}, {Key: "a/0"}, {Prefix: "a/"}, {Field: mvcc.Pair{Name: "f", Value: "x"}}} {
		w, err := m.Watch("t", m.applied(), only)
		must.OK(t, err)
		defer w.Close()
		for range 3 {
			m.write(&proto.Write{Table: "t", Key: "a/0", Op: proto.Op_OP_PUT, Value: []byte(`{}`),
				Fields: []*proto.Attribute{{Name: "f", Value: "x"}}})
		}
		awaitRouted(t, m)
		m.compact(m.applied())
		if n, _, err := w.Next(make([]*mvcc.Version, 2)); !errors.Is(err, mvcc.ErrCompacted) {
			t.Errorf("%+v: %d, %v, want ErrCompacted", only, n, err)
		}
	}
}

// TestLongChain: a key that has changed too often is read from the history.
func TestLongChain(t *testing.T) {
	m := newWriter(t)
	start := m.applied()
	const writes = 5000
	for i := range writes {
		m.write(&proto.Write{Table: "t", Key: fmt.Sprint("a/", i%2), Op: proto.Op_OP_PUT, Value: []byte(`{}`)})
		if i%2 == 1 {
			m.write(&proto.Write{Table: "t", Key: "a/1", Op: proto.Op_OP_PUT, Value: []byte(`{}`)})
		}
	}
	got, _, err := followOnly(t.Context(), m, mvcc.Interest{Key: "a/1"}, start, m.applied(), 128)
	if err != nil || len(got) != writes {
		t.Errorf("%d events, %v, want %d", len(got), err, writes)
	}
}

// BenchmarkWatchers writes under the eyes of 10,000 watchers: each of an object of
// its own, of one of 5,000 nodes, of one of 100 namespaces, or of all. "everything"
// is also what watchers of single objects cost without an index.
func BenchmarkWatchers(b *testing.B) {
	const watchers = 10_000
	for _, row := range []struct {
		name string
		only func(i int) mvcc.Interest
	}{
		{"object", func(i int) mvcc.Interest { return mvcc.Interest{Key: fmt.Sprintf("ns%d/%d", i%100, i)} }},
		{"field", func(i int) mvcc.Interest {
			return mvcc.Interest{Field: mvcc.Pair{Name: "spec.nodeName", Value: fmt.Sprint("node", i%5000)}}
		}},
		{"namespace", func(i int) mvcc.Interest { return mvcc.Interest{Prefix: fmt.Sprintf("ns%d/", i%100)} }},
		{"everything", func(int) mvcc.Interest { return mvcc.Interest{} }},
	} {
		b.Run(row.name, func(b *testing.B) {
			m := newWriter(b)
			ctx, cancel := context.WithCancel(b.Context())
			var wg sync.WaitGroup
			defer wg.Wait()
			defer cancel()
			var wakes, events atomic.Int64
			for i := range watchers {
				w, err := m.Watch("pods", m.applied(), row.only(i))
				if err != nil {
					b.Fatal(err)
				}
				defer w.Close()
				wg.Go(func() {
					buf := make([]*mvcc.Version, 128)
					for {
						select {
						case <-w.Wake():
						case <-ctx.Done():
							return
						}
						wakes.Add(1)
						n, _, err := w.Next(buf)
						if err != nil {
							b.Error(err)
						}
						events.Add(int64(n))
					}
				})
			}
			for wakes.Load() < watchers {
				time.Sleep(time.Millisecond)
			}
			wakes.Store(0)
			events.Store(0)
			b.ResetTimer()
			for n := range b.N {
				i := n % watchers
				m.write(&proto.Write{Table: "pods", Key: fmt.Sprintf("ns%d/%d", i%100, i), Op: proto.Op_OP_PUT, Value: []byte(`{}`),
					Fields: []*proto.Attribute{{Name: "spec.nodeName", Value: fmt.Sprint("node", i%5000)}}})
				want := int64(n+1) * map[string]int64{"object": 1, "field": 2, "namespace": watchers / 100, "everything": watchers}[row.name]
				for deadline := time.Now().Add(20 * time.Second); events.Load() < want; {
					if time.Now().After(deadline) {
						b.Fatalf("%d of %d events", events.Load(), want)
					}
					time.Sleep(10 * time.Microsecond)
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(wakes.Load())/float64(b.N), "wakes/op")
		})
	}
}
