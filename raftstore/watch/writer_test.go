package watch

import (
	"encoding/binary"
	"sync"
	"testing"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// writer is a state and its hub. It applies entries one at a time, and then does what
// the store does after each batch.
type writer struct {
	*Hub
	t testing.TB

	mu    sync.Mutex
	index proto.RaftIndex
}

// newWriter returns a writer whose hub ends with the test.
func newWriter(t testing.TB) *writer {
	w := &writer{Hub: New(mvcc.New()), t: t}
	t.Cleanup(w.Close)
	w.apply(proto.KindNewTerm, &proto.NewTerm{Term: 1})
	w.apply(proto.KindCluster, &proto.Cluster{ClusterId: "c", FeatureVersion: mvcc.FeatureVersion})
	return w
}

func (w *writer) apply(kind proto.Kind, m proto.Message) mvcc.Result {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.index++
	if write, ok := m.(*proto.Write); ok {
		write.Since = uint64(w.applied())
		if len(write.RequestId) == 0 {
			write.RequestId = binary.BigEndian.AppendUint64(make([]byte, proto.RequestIDSize-8, proto.RequestIDSize), uint64(w.index))
		}
	}
	came := Now()
	entry, err := proto.Encode(kind, m)
	if err != nil {
		w.t.Error(err)
	}
	state := w.State()
	r, err := state.Apply(w.index, 1, entry)
	if err != nil {
		w.t.Error(err)
	}
	state.Publish()
	var grown []string
	if r.Version != nil {
		grown = append(grown, r.Table.Name())
	}
	w.Published(proto.Revision(w.index), grown, came)
	return r
}

func (w *writer) write(p *proto.Write) mvcc.Result {
	w.t.Helper()
	return w.apply(proto.KindWrite, p)
}

func (w *writer) compact(floor proto.Revision) {
	w.t.Helper()
	w.apply(proto.KindCompact, &proto.Compact{Floor: uint64(floor)})
}

func (w *writer) applied() proto.Revision { return w.State().Applied() }
