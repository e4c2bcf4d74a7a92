package replication

import (
	"testing"

	"github.com/hashicorp/raft"
)

// TestNothingGoesAheadOfAFastDisk: where it would not help it is not sent.
func TestNothingGoesAheadOfAFastDisk(t *testing.T) {
	var w WriteTime
	for range 100 {
		w.Observe(aheadFrom / 2)
	}
	if w.Long() {
		t.Error("half of the time is long")
	}
	for range 100 {
		w.Observe(2 * aheadFrom)
	}
	if !w.Long() {
		t.Error("twice the time is not long")
	}
}

// TestMayGoAhead: which entries do.
func TestMayGoAhead(t *testing.T) {
	command := func(size int) *raft.Log { return &raft.Log{Type: raft.LogCommand, Data: make([]byte, size)} }
	for name, row := range map[string]struct {
		logs []*raft.Log
		want bool
	}{
		"a command":            {[]*raft.Log{command(1)}, true},
		"as much as may be":    {[]*raft.Log{command(aheadBytes / 2), command(aheadBytes / 2)}, true},
		"one byte more":        {[]*raft.Log{command(aheadBytes), command(1)}, false},
		"a configuration":      {[]*raft.Log{{Type: raft.LogConfiguration}}, false},
		"a noop behind others": {[]*raft.Log{command(1), {Type: raft.LogNoop}}, false},
	} {
		if got := mayGoAhead(row.logs); got != row.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
