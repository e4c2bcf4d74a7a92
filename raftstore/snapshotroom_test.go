package raftstore

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/peer"
)

// TestSnapshotRoom: a snapshot is received when it may fit. One that has found no room on its way is followed by a pause, unless there is
// more room.
func TestSnapshotRoom(t *testing.T) {
	const mib = 1 << 20
	var r snapshotRoom
	at := time.Now()
	for i, step := range []struct {
		after      time.Duration
		size, free int64
		admitted   bool
		becomes    error
	}{
		{0, 100 * mib, 99 * mib, false, nil},
		{0, 100 * mib, 100 * mib, true, disk.ErrNoRoom},
		{29 * time.Second, 100 * mib, 112 * mib, false, nil},
		{2 * time.Second, 100 * mib, 100 * mib, true, disk.ErrNoRoom}, // the next pause is a minute
		{59 * time.Second, 100 * mib, 100 * mib, false, nil},
		{0, 100 * mib, 113 * mib, true, disk.ErrNoRoom},
		{119 * time.Second, 100 * mib, 113 * mib, false, nil},
		{2 * time.Second, 100 * mib, 113 * mib, true, errors.New("the connection broke")},
		{0, 100 * mib, 113 * mib, true, disk.ErrNoRoom},
		{239 * time.Second, 100 * mib, 113 * mib, false, nil},
		{2 * time.Second, 100 * mib, 113 * mib, true, disk.ErrNoRoom},
		{301 * time.Second, 100 * mib, 113 * mib, true, disk.ErrNoRoom}, // five minutes at most
		{0, 100 * mib, 200 * mib, true, nil},
		{0, 100 * mib, 100 * mib, true, disk.ErrNoRoom},
		{31 * time.Second, 100 * mib, 100 * mib, true, nil},
	} {
		at = at.Add(step.after)
		err := r.admit(at, step.size, step.free)
		if (err == nil) != step.admitted || err != nil && !errors.Is(err, disk.ErrNoRoom) {
			t.Errorf("step %d: %v", i, err)
		}
		if err == nil {
			r.received(at, step.becomes)
			err = step.becomes
		}
		lacks := int64(0)
		if err != nil { // a broken connection says nothing new
			lacks = step.size
		}
		if got := r.lacking(at); got != lacks {
			t.Errorf("step %d: it lacks %d bytes, want %d", i, got, lacks)
		}
		if got := r.lacking(at.Add(time.Minute)); got != 0 {
			t.Errorf("step %d: it lacks %d bytes a minute later", i, got)
		}
	}
}

// sentSnapshots counts snapshots and their bytes.
type sentSnapshots struct {
	*peer.Transport
	calls, bytes *atomic.Int64
}

func (s sentSnapshots) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	defer s.calls.Add(1)
	return s.Transport.InstallSnapshot(id, to, req, resp, countedReader{data, s.bytes})
}

type countedReader struct {
	io.Reader
	bytes *atomic.Int64
}

func (r countedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.bytes.Add(int64(n))
	return n, err
}

// lagBehindTheLog has a node miss more than the logs of the others have, and returns it. It does not run.
func lagBehindTheLog(t *testing.T, c *cluster) *testNode {
	t.Helper()
	away := c.other(c.leader())
	c.close(away)
	leader := c.leader()
	c.eventually("the logs are cut behind what the node has", func() error {
		for i := range 20 {
			if _, err := leader.Propose(c.ctx(), write(fmt.Sprint(i), strings.Repeat("x", 64<<10))); err != nil {
				return err
			}
		}
		for _, m := range c.nodes {
			if m.Store == nil {
				continue
			}
			// A message that is repeated to the node holds the first ones that it has missed.
			if first, err := m.log.FirstIndex(); err != nil || first <= 2*uint64(m.cfg.Limits.MaxAppendEntries) {
				return fmt.Errorf("the log of %s begins at %d (%v)", m.id, first, err)
			}
		}
		return nil
	})
	return away
}

// TestSnapshotIsRefusedBeforeItIsSent: no byte of a snapshot goes to a node whose disk has no room for it, and it gets the snapshot when there
// is room.
func TestSnapshotIsRefusedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	var calls, bytes, free atomic.Int64
	free.Store(1 << 40)
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.Transport = sentSnapshots{cfg.Transport.(*peer.Transport), &calls, &bytes}
		cfg.Limits = Limits{TrailingLogs: 1, SnapshotThreshold: 8, SnapshotLogBytes: 1, ReserveBytes: 256 << 10, MaxAppendEntries: 8}
		cfg.Timing.SnapshotInterval = 20 * time.Millisecond
		cfg.TestHooks.Free = free.Load
	})
	away := lagBehindTheLog(t, c)
	free.Store(64 << 10) // the snapshot has one value at least, and more
	calls.Store(0)
	c.open(away)
	c.eventually("the snapshot is offered", func() error {
		if calls.Load() == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	c.eventually("the node says that it lacks room for a snapshot", func() error {
		if own, _ := away.Disk(); own.GetSnapshotBytes() <= 64<<10 {
			return fmt.Errorf("%v", own)
		}
		return nil
	})
	if n := bytes.Load(); n > 0 {
		t.Errorf("%d bytes were sent", n)
	}
	if n := away.Counters().SnapshotsInstalled; n > 0 {
		t.Errorf("%d snapshots were installed", n)
	}
	free.Store(1 << 40)
	c.sameHash()
	c.eventually("a snapshot is installed", func() error {
		if away.Counters().SnapshotsInstalled == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	c.eventually("it lacks nothing", func() error {
		if own, _ := away.Disk(); own.GetSnapshotBytes() != 0 {
			return fmt.Errorf("%v", own)
		}
		return nil
	})
}
