package raftstore

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// TestRaftLogKeys: the Raft library's lines have our key for errors.
func TestRaftLogKeys(t *testing.T) {
	var lines strings.Builder
	l := newRaftLogger(slog.New(slog.NewTextHandler(&lines, nil)))
	l.Error("failed to heartbeat", "peer", "error", "error", errors.New("a reason"))
	if got := lines.String(); !strings.Contains(got, `peer=error err="a reason"`) {
		t.Errorf("%s", got)
	}
}
