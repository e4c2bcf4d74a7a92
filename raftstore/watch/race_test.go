package watch

import (
	"errors"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// TestWatchDoesNotWaitForItself: a watch that begins while its table grows gets
// its first wake from the hub or from Watch, and Watch returns in any case. The number
// of rounds is what it takes to see the two meet.
func TestWatchDoesNotWaitForItself(t *testing.T) {
	rounds := 1_000_000
	if testing.Short() {
		rounds = 100_000
	}
	h := New(mvcc.New())
	defer h.Close()
	stop, growing := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(growing)
		for {
			select {
			case <-stop:
				return
			default:
				h.Published(0, []string{"t"}, Now())
			}
		}
	}()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for range rounds {
			w, err := h.Watch("t", 0, mvcc.Interest{})
			if err != nil {
				t.Error(err)
				return
			}
			<-w.Wake()
			w.Close()
		}
	}()
	select {
	case <-watched:
	case <-time.After(5 * time.Minute):
		t.Error("a watch waits for a reader of its own wake")
	}
	close(stop)
	<-growing
}

// A received state replaces the old one while the hub looks through a batch of it.
// The batch's deletion has emptied the table, and the new state, whose floor is that
// very revision, does not have the table any more: a watcher of one key must not be
// moved across the deletion as if it did not concern it.
func TestRoundAfterTheTableIsGone(t *testing.T) {
	const emptied = 100
	old := newWriter(t)
	old.index = 49
	old.write(&proto.Write{Table: "t", Key: "a/k", Op: proto.Op_OP_PUT, Value: []byte("v")})
	old.index = emptied - 2
	old.apply(proto.KindNewTerm, &proto.NewTerm{Term: 1})
	for _, only := range interesting() {
		h := New(old.State())
		w, err := h.Watch("t", emptied-1, only)
		must.OK(t, err)
		var buf [8]*mvcc.Version
		if n, at, err := w.Next(buf[:]); n != 0 || at != emptied-1 || err != nil {
			t.Fatal(n, at, err)
		}
		h.Close() // its goroutine: the test makes the rounds

		received := mvcc.New()
		must.OK(t, received.LoadState(&proto.StateRecord{Applied: 500, Floor: emptied}))
		received.Publish()
		h.state.Store(received) // the first line of replace
		h.Published(emptied, []string{"t"}, Now())
		h.round()
		if n, at, err := w.Next(buf[:]); !errors.Is(err, mvcc.ErrCompacted) {
			t.Errorf("%+v: %d events up to %d, %v, want %v", only, n, at, err, mvcc.ErrCompacted)
		}
	}
}

// TestWatcherOutlivesItsTable: a table that is empty is dropped behind the floor, and made again by the next
// write. Who has read the deletion goes on, and who has not is too old.
func TestWatcherOutlivesItsTable(t *testing.T) {
	put := func(m *writer) proto.Revision {
		return m.write(&proto.Write{Table: "t", Key: "a/k", Op: proto.Op_OP_PUT, Value: []byte(`{}`),
			Fields: []*proto.Attribute{{Name: "f", Value: "x"}}}).Revision
	}
	for _, only := range []mvcc.Interest{{}, {Key: "a/k"}, {Prefix: "a/"}, {Field: mvcc.Pair{Name: "f", Value: "x"}}} {
		m := newWriter(t)
		put(m)
		follows, err := m.Watch("t", m.applied(), only)
		must.OK(t, err)
		defer follows.Close()
		late, err := m.Watch("t", m.applied(), only)
		must.OK(t, err)
		defer late.Close()
		buf := make([]*mvcc.Version, 4)
		next := func(want proto.Revision) {
			t.Helper()
			awaitRouted(t, m)
			n, _, err := follows.Next(buf)
			if n != 1 || err != nil || buf[0].Revision != want {
				t.Fatalf("%+v: %d events, %v, want one of revision %d", only, n, err, want)
			}
		}
		for round := range 4 {
			deleted := m.write(&proto.Write{Table: "t", Key: "a/k", Op: proto.Op_OP_DELETE}).Revision
			next(deleted)
			m.compact(m.applied())
			if m.State().Table("t") != nil {
				t.Fatal("the table is not dropped")
			}
			if round%2 == 0 {
				if n, _, err := follows.Next(buf); n != 0 || err != nil {
					t.Errorf("%+v: %d events of no table, %v", only, n, err)
				}
			}
			next(put(m))
		}
		if n, _, err := late.Next(buf); !errors.Is(err, mvcc.ErrCompacted) {
			t.Errorf("%+v: %d events, %v, want ErrCompacted", only, n, err)
		}
	}
}
