package raftstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// Raft drops committed batches that wait for the state machine when it shuts
// down, and never answers their futures. Neither Close nor a caller may hang on
// one.
func TestCloseUnderLoad(t *testing.T) {
	for round := range 3 {
		c := newCluster(t, 1, func(cfg *Config) { cfg.Limits.MaxAppendEntries = 2 })
		m := c.leader()
		// A state machine that lags, so that batches wait for it.
		applied := m.fsm.applied
		//sleep: a state machine that lags is what is tested
		m.fsm.applied = func() { time.Sleep(2 * time.Millisecond); applied() }
		var writers sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		for w := range 32 {
			writers.Add(1)
			go func() {
				defer writers.Done()
				ctx := ctx
				if w%2 == 0 {
					ctx = context.Background()
				}
				for i := 0; ; i++ {
					if _, err := m.store.Load().Propose(ctx, write(fmt.Sprint(w), fmt.Sprint(i))); err != nil {
						if !errors.Is(err, ErrClosed) && !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrNoLeader) && ctx.Err() == nil {
							t.Errorf("a proposal at Close: %v", err)
						}
						return
					}
				}
			}()
		}
		c.eventually("load", func() error {
			if m.Applied() < 20 {
				return errors.New("not yet")
			}
			return nil
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.close(m)
			writers.Wait()
		}()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatalf("round %d: Close or a caller hangs on a proposal that Raft never answers", round)
		}
		cancel()
	}
}

// Raft receives a snapshot on its main loop and looks at nothing else until it
// has it all. Close does not wait for that.
func TestCloseWhileReceiving(t *testing.T) {
	c := newCluster(t, 1, nil)
	m, z := c.leader(), c.add("z")
	data, stop := io.Pipe()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		var resp raft.InstallSnapshotResponse
		// It ends with the stream, or with the test.
		_ = z.rpc.InstallSnapshot("a", raft.ServerAddress(m.addr), &raft.InstallSnapshotRequest{
			RPCHeader:       raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("z"), Addr: []byte(z.addr)},
			SnapshotVersion: 1, Term: 100, LastLogIndex: 1000, LastLogTerm: 99, Size: 1 << 20,
			Configuration: raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: "a", Address: raft.ServerAddress(m.addr)}}}),
		}, &resp, data)
	}()
	c.eventually("the snapshot begins", func() error {
		if m.node.Raft().CurrentTerm() < 100 {
			return errors.New("not yet")
		}
		return nil
	})
	began := time.Now()
	c.close(m)
	//wall: a snapshot that is never sent would hold Close for ever
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("Close took %s", took)
	}
	stop.Close()
	<-sent
}
