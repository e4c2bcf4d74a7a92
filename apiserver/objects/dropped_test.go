package objects_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/quorate/quorate/apiserver/objects/objectstest"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// TestExactReadOfADroppedTable: a read at a revision that is not compacted finds what there was, also in the moment in which
// the table is dropped. The number of rounds is what it takes to see the two meet.
func TestExactReadOfADroppedTable(t *testing.T) {
	rounds := 20_000
	if testing.Short() {
		rounds = 5_000
	}
	s := objectstest.NewStore(t, objectstest.Options{})
	exact := consistency.Plan{Mode: consistency.Exact}
	ended := make(chan struct{})
	var reading sync.WaitGroup
	for name, read := range map[string]func(at proto.Revision) error{
		"get": func(at proto.Revision) error { _, _, err := s.Find("t", "k", exact, at); return err },
		"list": func(at proto.Revision) error {
			_, _, err := s.Scan("t", exact, at, mvcc.Query{})
			return err
		},
	} {
		reading.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				at := s.Memory.Applied()
				if err := read(at); errors.Is(err, mvcc.ErrCompacted) && s.Memory.State().Floor() > at {
					continue
				} else if err != nil {
					t.Errorf("%s at %d, with the floor at %d: %v", name, at, s.Memory.State().Floor(), err)
					return
				}
			}
		})
	}
	for range rounds {
		for _, op := range []proto.Op{proto.Op_OP_PUT, proto.Op_OP_DELETE} {
			if _, err := s.Memory.Propose(t.Context(), &proto.Write{Table: "t", Key: "k", Op: op, Value: []byte("{}")}); err != nil {
				t.Fatal(err)
			}
		}
		must.OK(t, s.Memory.Compact(t.Context(), s.Memory.Applied()))
	}
	close(ended)
	reading.Wait()
}
