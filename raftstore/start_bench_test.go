package raftstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
)

// BenchmarkStart starts a node of one with so many entries of 1.4 KB behind its newest
// snapshot, which are all in state.db, as after SIGTERM. state-ms is the time in which the
// state is loaded, log-ms that in which the log is opened and verified, open-ms the whole of
// Open, with both of them and NewRaft, and write-ms the time from there to a write: the
// election, which takes 10 to 30 ms, and Raft's replay.
func BenchmarkStart(b *testing.B) {
	for _, n := range []int{1_000, 20_000, 60_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newCluster(b, 1, func(cfg *Config) {
				cfg.Timing.Heartbeat, cfg.Timing.Election, cfg.Timing.Lease = 10*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond
				cfg.Timing.SnapshotInterval = time.Hour
				cfg.Limits.SnapshotThreshold = 1 << 40
			})
			m := c.leader()
			fill(b, m, n)
			c.close(m)
			var state, log, open, write time.Duration
			b.ResetTimer()
			for range b.N {
				state += took(func() {
					db, err := disk.Open(m.dir, disk.Options{})
					must.OK(b, err)
					_, err = db.Load()
					must.OK(b, err)
					must.OK(b, db.Close())
				})
				log += took(func() {
					l, err := disk.OpenLog(m.dir, disk.LogOptions{})
					must.OK(b, err)
					must.OK(b, l.Close())
				})
				open += took(func() { c.open(m) })
				write += took(func() {
					for {
						if _, err := m.Propose(context.Background(), entry(0)); err == nil {
							return
						}
					}
				})
				c.close(m)
			}
			for name, d := range map[string]time.Duration{"state-ms": state, "log-ms": log, "open-ms": open, "write-ms": write} {
				b.ReportMetric(float64(d)/float64(time.Millisecond)/float64(b.N), name)
			}
		})
	}
}

func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// entry is a write of 1.4 KB to one of 1,000 keys.
func entry(i int) *proto.Write {
	value := make([]byte, 1400)
	r := rand.NewChaCha8([32]byte{byte(i), byte(i >> 8), byte(i >> 16)})
	_, _ = r.Read(value)
	return write(fmt.Sprint(i%1000), string(value))
}

// fill makes so many writes.
func fill(b *testing.B, m *testNode, n int) {
	b.Helper()
	var writers sync.WaitGroup
	for w := range 64 {
		writers.Go(func() {
			for i := w; i < n; i += 64 {
				if _, err := m.Propose(context.Background(), entry(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
}
