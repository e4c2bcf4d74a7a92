package memstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	storeerrors "github.com/quorate/quorate/raftstore/errors"
	"github.com/quorate/quorate/raftstore/memstore"
	"github.com/quorate/quorate/raftstore/storetest"
)

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Store {
		m := memstore.New()
		t.Cleanup(func() { _ = m.Close() })
		return m
	})
}

func TestClose(t *testing.T) {
	m := memstore.New()
	w := &proto.Write{Table: "t", Key: "k", Op: proto.Op_OP_PUT, Value: []byte("v")}
	r, err := m.Propose(t.Context(), w)
	must.OK(t, err)
	waiting := make(chan error, 1)
	go func() { waiting <- m.WaitApplied(context.Background(), r.Revision+1) }()
	must.OK(t, errors.Join(m.Close(), m.Close()))
	if err := <-waiting; !errors.Is(err, storeerrors.ErrClosed) {
		t.Errorf("a wait during Close: %v", err)
	}
	w.RequestId = nil
	if _, err := m.Propose(t.Context(), w); !errors.Is(err, storeerrors.ErrClosed) {
		t.Errorf("propose after Close: %v", err)
	}
	if _, err := m.ReadIndex(t.Context()); !errors.Is(err, storeerrors.ErrClosed) || m.Role() != "shutdown" {
		t.Errorf("read index after Close: %v, %s", err, m.Role())
	}
	if v, err := m.State().Table("t").Get("k", r.Revision); err != nil || v == nil {
		t.Errorf("read after Close: %+v, %v", v, err)
	}
}
