package serviceaccount

import (
	"fmt"
	"testing"

	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
)

// TestOldVersions: who changes an account again and again, and uses it, has one of its versions
// kept.
func TestOldVersions(t *testing.T) {
	store := memstore.New()
	defer func() { must.Close(t, store) }()
	s := accounts{state: state.New(store)}
	for i := range 10 {
		value := fmt.Sprintf(`{"metadata":{"name":"a","annotations":{"n":"%d"}}}`, i)
		if _, err := store.Propose(t.Context(), &proto.Write{Table: "serviceaccounts", Key: "n/a", Op: proto.Op_OP_PUT, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got, err := s.here("n", "a")
			if err != nil || got.Metadata.Annotations["n"] != fmt.Sprint(i) {
				t.Errorf("version %d: %+v, %v", i, got, err)
			}
		}
	}
	if len(s.decoded) != 1 {
		t.Errorf("%d are kept of one account", len(s.decoded))
	}
}
