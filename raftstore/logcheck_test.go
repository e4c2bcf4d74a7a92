package raftstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
)

// A voter without its log has forgotten its vote and what it helped to commit.
// A snapshot beside it must not make the node look sound.
func TestLogThatDoesNotFitTheSnapshot(t *testing.T) {
	t.Parallel()
	const logFile, metaFile = "raft.db", "snapshot.meta"
	for _, tt := range []struct {
		name   string
		damage func(t *testing.T, dir, oldMeta string)
		want   error
	}{
		{"raft.db is gone", func(t *testing.T, dir, _ string) {
			must.OK(t, os.Remove(filepath.Join(dir, logFile)))
		}, disk.ErrLogLost},
		{"raft.db is empty", func(t *testing.T, dir, _ string) {
			must.OK(t, os.Truncate(filepath.Join(dir, logFile), 0))
		}, disk.ErrLogLost},
		{"snapshot.meta is gone", func(t *testing.T, dir, _ string) {
			must.OK(t, os.Remove(filepath.Join(dir, metaFile)))
		}, disk.ErrDamaged},
		{"snapshot.meta is an old copy", func(t *testing.T, dir, oldMeta string) {
			copyTo(t, oldMeta, filepath.Join(dir, metaFile))
		}, disk.ErrDamaged},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, 1, func(cfg *Config) {
				cfg.Limits.TrailingLogs, cfg.Limits.SnapshotThreshold = 16, 32
				cfg.Timing.SnapshotInterval = 20 * time.Millisecond
			})
			n := c.leader()
			writeUntilCut := func(at uint64) {
				t.Helper()
				c.eventually("the log is cut", func() error {
					if _, err := n.Propose(c.ctx(), write("k", "v")); err != nil {
						return err
					}
					if first, err := n.log.FirstIndex(); err != nil || first <= at {
						return fmt.Errorf("the log begins at %d: %w", first, err)
					}
					return nil
				})
			}
			writeUntilCut(1)
			old := filepath.Join(t.TempDir(), "old")
			copyTo(t, filepath.Join(n.dir, metaFile), old)
			writeUntilCut(uint64(n.Applied()) + 200)
			store := n.Store
			c.close(n)
			tt.damage(t, n.dir, old)
			cfg := store.cfg
			s, err := Open(cfg)
			if err == nil {
				must.OK(t, s.Close())
			}
			if !errors.Is(err, tt.want) {
				t.Fatalf("opened with %v, want %v", err, tt.want)
			}
		})
	}
}

// State that this node's log never held, and no snapshot covers, shows that the log was
// lost too, and so does an empty directory of a node that knows its cluster.
func TestLogThatDoesNotFitTheState(t *testing.T) {
	t.Parallel()
	const logFile, segmentDir, stateFile = "raft.db", "raft-log", "state.db"
	for _, tt := range []struct {
		name   string
		damage func(t *testing.T, dir, old string)
		member bool // node.json knows the cluster
		want   error
	}{
		{"raft.db is gone, and there was no snapshot yet", func(t *testing.T, dir, _ string) {
			must.OK(t, os.Remove(filepath.Join(dir, logFile)))
		}, false, disk.ErrLogLost},
		{"raft.db is an old copy", func(t *testing.T, dir, old string) {
			copyTo(t, old, filepath.Join(dir, logFile))
		}, false, disk.ErrLogLost},
		{"raft-log is gone", func(t *testing.T, dir, _ string) {
			must.OK(t, os.RemoveAll(filepath.Join(dir, segmentDir)))
		}, false, disk.ErrLogLost},
		{"raft-log is an old copy", func(t *testing.T, dir, old string) {
			must.OK(t, os.RemoveAll(filepath.Join(dir, segmentDir)))
			must.OK(t, os.CopyFS(filepath.Join(dir, segmentDir), os.DirFS(old+".entries")))
		}, false, disk.ErrLogLost},
		{"raft.db and raft-log are old copies", func(t *testing.T, dir, old string) {
			copyTo(t, old, filepath.Join(dir, logFile))
			must.OK(t, os.RemoveAll(filepath.Join(dir, segmentDir)))
			must.OK(t, os.CopyFS(filepath.Join(dir, segmentDir), os.DirFS(old+".entries")))
		}, false, disk.ErrLogLost},
		{"all are gone", func(t *testing.T, dir, _ string) {
			must.OK(t, os.Remove(filepath.Join(dir, logFile)))
			must.OK(t, os.RemoveAll(filepath.Join(dir, segmentDir)))
			must.OK(t, os.Remove(filepath.Join(dir, stateFile)))
		}, true, disk.ErrLogLost},
		{"all are gone, of a node that never was a member", func(t *testing.T, dir, _ string) {
			must.OK(t, os.Remove(filepath.Join(dir, logFile)))
			must.OK(t, os.RemoveAll(filepath.Join(dir, segmentDir)))
			must.OK(t, os.Remove(filepath.Join(dir, stateFile)))
		}, false, nil},
		{"state.db is gone, and so is raft.db", func(t *testing.T, dir, _ string) {
			must.OK(t, os.Remove(filepath.Join(dir, logFile)))
			must.OK(t, os.Remove(filepath.Join(dir, stateFile)))
		}, false, disk.ErrLogLost},
		{"state.db is gone: the log brings it back", func(t *testing.T, dir, _ string) {
			must.OK(t, os.Remove(filepath.Join(dir, stateFile)))
		}, true, nil},
		{"nothing happened", func(*testing.T, string, string) {}, true, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, 1, nil)
			n := c.leader()
			writeSome := func() {
				t.Helper()
				for i := range 20 {
					_, err := n.Propose(c.ctx(), write("k", fmt.Sprint(i)))
					must.OK(t, err)
				}
			}
			writeSome()
			c.close(n)
			old := filepath.Join(t.TempDir(), "old")
			copyTo(t, filepath.Join(n.dir, logFile), old)
			must.OK(t, os.CopyFS(old+".entries", os.DirFS(filepath.Join(n.dir, segmentDir))))
			c.open(n)
			c.leader()
			writeSome()
			cfg := n.cfg
			c.close(n)
			tt.damage(t, n.dir, old)
			if tt.member {
				cfg.Cluster = func() proto.ClusterID { return "test" }
			}
			s, err := Open(cfg)
			if err == nil {
				must.OK(t, s.Close())
			}
			if !errors.Is(err, tt.want) {
				t.Fatalf("opened with %v, want %v", err, tt.want)
			}
		})
	}
}

// ofLog reports whether a durable change is one of the log or its stable store.
func ofLog(file string) bool { return file == "raft.db" || filepath.Dir(file) == "raft-log" }

func copyTo(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	must.OK(t, err)
	must.OK(t, os.WriteFile(to, b, 0o600))
}
