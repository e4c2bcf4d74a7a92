package podsecurity

import (
	"fmt"
	"testing"

	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
)

// TestOldVersions: of a namespace that changes again and again one version is kept.
func TestOldVersions(t *testing.T) {
	store := memstore.New()
	defer func() { must.Close(t, store) }()
	s := namespaces{state: state.New(store)}
	const label = "pod-security.kubernetes.io/enforce"
	for i := range 10 {
		w := &proto.Write{
			Table: "namespaces", Key: "n", Op: proto.Op_OP_PUT, Value: []byte("{}"),
			Labels: []*proto.Attribute{{Name: label, Value: fmt.Sprint("level", i)}},
		}
		if _, err := store.Propose(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got, err := s.GetNamespace(t.Context(), "n")
			if err != nil || got.Labels[label] != fmt.Sprint("level", i) {
				t.Errorf("version %d: %+v, %v", i, got, err)
			}
		}
	}
	if len(s.kept) != 1 {
		t.Errorf("%d are kept of one namespace", len(s.kept))
	}
}
