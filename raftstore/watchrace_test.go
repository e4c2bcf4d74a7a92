package raftstore

import (
	"context"
	"encoding/binary"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// TestWatchDoesNotWaitForItself: a watch that begins while its table grows gets
// its first wake from whoever is first, and Watch returns in any case. The number
// of rounds is what it takes to see the two meet; a busy machine makes fewer.
func TestWatchDoesNotWaitForItself(t *testing.T) {
	h := newHub(mvcc.New())
	defer h.close()
	stop, growing := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(growing)
		for {
			select {
			case <-stop:
				return
			default:
				h.published(0, []disk.Added{{Table: "t"}})
			}
		}
	}()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for i, end := 0, time.Now().Add(10*time.Second); i < 1_000_000 && time.Now().Before(end); i++ {
			w, err := h.watch("t", 0, mvcc.Interest{})
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
	case <-time.After(30 * time.Second):
		t.Error("a watch waits for a reader of its own wake")
	}
	close(stop)
	<-growing
}

// TestWakeIsNotLostToAnEarlierPoke applies writes one at a time while the hub's
// rounds run all the time, as they do when batches follow closely, and demands that
// each write wakes its watcher. A table that is marked before its version is
// published can be looked at too early, and is not looked at again.
func TestWakeIsNotLostToAnEarlierPoke(t *testing.T) {
	db, err := disk.Open(filepath.Join(t.TempDir(), "db"), disk.Options{Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	state, err := db.Load()
	if err != nil {
		t.Fatal(err)
	}
	h := newHub(state)
	defer h.close()
	f := &fsm{db: db, hub: h, waiters: &waiters{}, fatal: func(err error) { t.Error(err) }, applied: func() {}}
	w, err := h.watch("t", 0, mvcc.Interest{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		for {
			select {
			case h.poke <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	})
	seen := make(chan proto.Revision, 1)
	wg.Go(func() {
		buf := make([]*mvcc.Version, 4)
		for {
			select {
			case <-w.Wake():
			case <-ctx.Done():
				return
			}
			n, _, err := w.Next(buf)
			if err != nil {
				t.Error(err)
			}
			for _, v := range buf[:n] {
				select {
				case seen <- v.Revision:
				case <-ctx.Done():
					return
				}
			}
		}
	})
	for i := range 500 {
		// The watched table's write is the first of its batch: long before the rest is
		// applied, and all of it published.
		var logs []*raft.Log
		for j := range 64 {
			index := uint64(i*64 + j + 1)
			id := binary.LittleEndian.AppendUint64(make([]byte, 8, 16), index)
			write := &proto.Write{RequestId: id, Table: "t", Key: "k", Op: proto.Op_OP_PUT, Value: []byte("{}")}
			if j > 0 {
				write.Table = "u"
			}
			entry, err := proto.Encode(proto.KindWrite, write)
			if err != nil {
				t.Fatal(err)
			}
			logs = append(logs, &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: entry})
		}
		f.ApplyBatch(logs)
		select {
		case rev := <-seen:
			if rev != proto.Revision(logs[0].Index) {
				t.Fatalf("batch %d: the watcher read %d", i, rev)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("batch %d woke nobody", i)
		}
	}
}

// A received state replaces the old one while the hub looks through a batch of it.
// The batch's deletion has emptied the table, and the new state, whose floor is that
// very revision, does not have the table any more: a watcher of one key must not be
// moved across the deletion as if it did not concern it.
func TestRoundAfterTheTableIsGone(t *testing.T) {
	const emptied = 100
	old := mvcc.New()
	apply := func(at proto.RaftIndex, kind proto.Kind, m proto.Message) mvcc.Result {
		t.Helper()
		b, err := proto.Encode(kind, m)
		noError(t, err)
		r, err := old.Apply(at, 1, b)
		noError(t, err)
		old.Publish()
		return r
	}
	apply(50, proto.KindWrite, write("a/k", "v"))
	apply(emptied-1, proto.KindNewTerm, &proto.NewTerm{Term: 1})
	for _, only := range interesting() {
		h := newHub(old)
		w, err := h.watch("t", emptied-1, only)
		noError(t, err)
		var buf [8]*mvcc.Version
		if n, at, err := w.Next(buf[:]); n != 0 || at != emptied-1 || err != nil {
			t.Fatal(n, at, err)
		}
		h.close() // its goroutine: the test makes the rounds

		received := mvcc.New()
		noError(t, received.LoadState(&proto.StateRecord{Applied: 500, Floor: emptied}))
		received.Publish()
		h.state.Store(received) // the first line of replace
		h.published(emptied, []disk.Added{{Table: "t"}})
		h.round()
		if n, at, err := w.Next(buf[:]); !errors.Is(err, mvcc.ErrCompacted) {
			t.Errorf("%+v: %d events up to %d, %v, want %v", only, n, at, err, mvcc.ErrCompacted)
		}
	}
}
