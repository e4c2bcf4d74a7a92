package apiserver

import (
	"log/slog"
	"testing"

	"github.com/quorate/quorate/apiserver/access/rbac"
	"github.com/quorate/quorate/raftstore/memstore"
)

// TestLongRunningKeepsNoState: what a request was allowed by keeps a state alive, which a node that takes a
// snapshot would hold beside the new one until the last stream ends.
func TestLongRunningKeepsNoState(t *testing.T) {
	roles := rbac.New(memstore.New(), slog.New(slog.DiscardHandler))
	for _, long := range []bool{false, true} {
		if none := markWhile(roles, long) == (rbac.Mark{}); none != long {
			t.Errorf("long-running: %t: nothing is kept: %t", long, none)
		}
	}
}
