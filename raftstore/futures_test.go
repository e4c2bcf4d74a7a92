package raftstore

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// Nobody waits for Raft once it has ended: Close returns behind the last of those that gave it entries,
// though it may have left some without an answer.
func TestFuturesEnd(t *testing.T) {
	for round := range 5 {
		c, hang := hungLog(t, func(cfg *Config) { cfg.Limits.MaxAppendEntries = 64 })
		m := c.leader()
		var frames [][]byte
		for i := range 20 {
			frame, err := proto.Encode(proto.KindWrite, write(fmt.Sprint(i), "v"))
			must.OK(t, err)
			frames = append(frames, frame)
		}
		hang.Lock()
		release := sync.OnceFunc(hang.Unlock)
		defer release() // if the test ends early: the cluster's end waits for the disk
		var futures []raft.ApplyFuture
		for _, frame := range frames {
			f := m.node.Raft().Apply(proto.InTerm(frame, proto.Term(m.node.Raft().CurrentTerm())), 0)
			endsWith(f, m.node.Ended())
			futures = append(futures, f)
		}
		var writers sync.WaitGroup
		for i := range 20 {
			writers.Go(func() {
				if _, err := m.Propose(t.Context(), write("w", fmt.Sprint(i))); err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrUnknownOutcome) {
					t.Errorf("round %d: a proposal at Close: %v", round, err)
				}
			})
		}
		c.eventually("proposals are under way", func() error {
			if n := m.proposals.applying.Load(); n < 20 {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
		end := m.node.Raft().Shutdown() // its main loop finds this and entries when the disk goes on, and takes either
		release()
		must.OK(t, end.Error())
		c.close(m)
		for i, f := range futures {
			_ = f.Error() // for ever, without endsWith
			if i == 19 {
				t.Logf("round %d: the last one: %v", round, f.Error())
			}
		}
		writers.Wait()
	}
}
