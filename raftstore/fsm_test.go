package raftstore

import (
	"context"
	"encoding/binary"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/watch"
)

// TestWakeIsNotLostToAnEarlierPoke applies writes one at a time while the hub's
// rounds run all the time, as they do when batches follow closely, and demands that
// each write wakes its watcher. A table that is marked before its version is
// published can be looked at too early, and is not looked at again.
func TestWakeIsNotLostToAnEarlierPoke(t *testing.T) {
	db, err := disk.Open(filepath.Join(t.TempDir(), "db"), disk.Options{Fatal: func(err error) { t.Error(err) }})
	must.OK(t, err)
	defer db.Close()
	state, err := db.Load()
	must.OK(t, err)
	h := watch.New(state)
	defer h.Close()
	f := &fsm{db: db, hub: h, waiters: &waiters{}, fatal: func(err error) { t.Error(err) }, applied: func() {}}
	w, err := h.Watch("t", 0, mvcc.Interest{})
	must.OK(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	round, unlisten := h.Listen()
	defer unlisten()
	wg.Go(func() {
		for {
			h.Published(0, nil, watch.Now()) // brings nothing: it only makes the hub look
			select {
			case <-round:
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
	batches := 500
	if testing.Short() {
		batches = 100
	}
	for i := range batches {
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
			must.OK(t, err)
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
