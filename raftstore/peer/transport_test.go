package peer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/internal/pipes"
)

// join returns the transport of a new node whose address is its id.
func join(p *pipes.Network, id raft.ServerID) *Transport {
	same := func(_ raft.ServerID, a raft.ServerAddress) raft.ServerAddress { return a }
	return NewTransportOn(p.Join(raft.ServerAddress(id)), same, 2*time.Second, slog.New(slog.DiscardHandler), false)
}

// pair returns two transports; handle answers b's requests.
func pair(t *testing.T, p *pipes.Network, handle func(raft.RPC)) (a, b *Transport) {
	a, b = join(p, "a"), join(p, "b")
	serveWith(b, handle)
	return a, b
}

func serveWith(b *Transport, handle func(raft.RPC)) {
	go func() {
		for {
			select {
			case rpc := <-b.Consumer():
				handle(rpc)
			case <-b.done:
				return
			}
		}
	}()
}

func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t, pipes.New(), func(rpc raft.RPC) {
			switch req := rpc.Command.(type) {
			case *raft.AppendEntriesRequest:
				rpc.Respond(&raft.AppendEntriesResponse{Term: req.Term + 1, LastLog: uint64(len(req.Entries)), Success: true}, nil)
			case *raft.RequestVoteRequest:
				rpc.Respond(&raft.RequestVoteResponse{Term: req.Term + 2, Granted: req.LeadershipTransfer}, nil)
			case *raft.RequestPreVoteRequest:
				rpc.Respond(&raft.RequestPreVoteResponse{Term: req.Term + 3, Granted: true}, nil)
			case *raft.TimeoutNowRequest:
				rpc.Respond(nil, errors.New("expected command, but not now"))
			}
		})
		defer a.Close()
		defer b.Close()
		var append raft.AppendEntriesResponse
		if err := a.AppendEntries("b", "b", &raft.AppendEntriesRequest{Term: 1, Entries: []*raft.Log{{Index: 1}}}, &append); err != nil || append.Term != 2 || append.LastLog != 1 || !append.Success {
			t.Errorf("AppendEntries: %v, %+v", err, append)
		}
		var vote raft.RequestVoteResponse
		if err := a.RequestVote("b", "b", &raft.RequestVoteRequest{RPCHeader: ofA, Term: 1, LeadershipTransfer: true}, &vote); err != nil || vote.Term != 3 || !vote.Granted {
			t.Errorf("RequestVote: %v, %+v", err, vote)
		}
		var pre raft.RequestPreVoteResponse
		if err := a.RequestPreVote("b", "b", &raft.RequestPreVoteRequest{Term: 1}, &pre); err != nil || pre.Term != 4 {
			t.Errorf("RequestPreVote: %v, %+v", err, pre)
		}
		// An error of the peer arrives with its text, which raft looks at, and
		// leaves the stream usable.
		if err := a.TimeoutNow("b", "b", &raft.TimeoutNowRequest{}, &raft.TimeoutNowResponse{}); err == nil || err.Error() != "expected command, but not now" {
			t.Errorf("TimeoutNow: %v", err)
		}
		if n := len(a.open); n != 1 {
			t.Errorf("four calls, one after the other, took %d streams", n)
		}
		if err := a.RequestVote("c", "c", &raft.RequestVoteRequest{RPCHeader: ofA}, &vote); err == nil {
			t.Error("a call to nobody succeeded")
		}
	})
}

// TestNoAnswer: a call to a peer that does not answer ends in time, and its
// stream is not used again: the late answer would be taken for another's.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		var late []raft.RPC
		a, b := pair(t, pipes.New(), func(rpc raft.RPC) {
			if n++; n == 1 {
				late = append(late, rpc)
				return
			}
			rpc.Respond(&raft.RequestVoteResponse{Term: 2}, nil)
		})
		defer a.Close()
		defer b.Close()
		var resp raft.RequestVoteResponse
		began := time.Now()
		if err := a.RequestVote("b", "b", &raft.RequestVoteRequest{RPCHeader: ofA}, &resp); err == nil {
			t.Error("a call without an answer succeeded")
		}
		if d := time.Since(began); d != 2*time.Second {
			t.Errorf("it took %v", d)
		}
		if err := a.RequestVote("b", "b", &raft.RequestVoteRequest{RPCHeader: ofA}, &resp); err != nil || resp.Term != 2 {
			t.Errorf("the next call: %v, %+v", err, resp)
		}
		late[0].Respond(&raft.RequestVoteResponse{Term: 1}, nil)
		synctest.Wait()
		if err := a.RequestVote("b", "b", &raft.RequestVoteRequest{RPCHeader: ofA}, &resp); err != nil || resp.Term != 2 {
			t.Errorf("after the late answer: %v, %+v", err, resp)
		}
	})
}

// TestPeerRestarted: idle streams to a peer that was restarted cost no call.
func TestPeerRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipes.New()
		answer := func(rpc raft.RPC) {
			time.Sleep(time.Millisecond)
			rpc.Respond(&raft.RequestVoteResponse{Granted: true}, nil)
		}
		a, b := pair(t, p, answer)
		defer a.Close()
		calls := make(chan error, 3)
		call := func() {
			var resp raft.RequestVoteResponse
			calls <- a.RequestVote("b", "b", &raft.RequestVoteRequest{RPCHeader: ofA}, &resp)
		}
		for range 2 {
			for range 3 { // three streams at once
				go call()
			}
			for range 3 {
				if err := <-calls; err != nil {
					t.Error(err)
				}
			}
			b.Close()
			b = join(p, "b")
			serveWith(b, answer)
		}
		go call()
		if err := <-calls; err != nil {
			t.Errorf("first call after the restart: %v", err)
		}
		b.CloseStreams()
		go call()
		if err := <-calls; err != nil {
			t.Errorf("first call after CloseStreams: %v", err)
		}
		b.Close()
	})
}

// Raft stops taking answers after one that refuses or has a newer term, and only
// looks for that between two sends: these must not wait for it to take more.
// Otherwise replication to the peer stands still, and so does Raft's shutdown.
func TestPipelineWithoutConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t, pipes.New(), func(rpc raft.RPC) {
			rpc.Respond(&raft.AppendEntriesResponse{Success: false}, nil)
		})
		defer a.Close()
		defer b.Close()
		p, err := a.AppendEntriesPipeline("b", "b")
		must.OK(t, err)
		defer p.Close()
		sent := make(chan int)
		go func() {
			for i := range 10 {
				if _, err := p.AppendEntries(&raft.AppendEntriesRequest{}, &raft.AppendEntriesResponse{}); err != nil {
					t.Error(err)
				}
				sent <- i
			}
		}()
		for range 10 {
			select {
			case <-sent:
			case <-time.After(time.Minute):
				t.Fatal("a send waits for somebody to take the answers")
			}
		}
	})
}

func TestPipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		a, b := pair(t, pipes.New(), func(rpc raft.RPC) {
			req := rpc.Command.(*raft.AppendEntriesRequest)
			switch req.Term {
			case 100:
				<-hold
			case 200:
				rpc.Respond(nil, errors.New("refused"))
				return
			}
			rpc.Respond(&raft.AppendEntriesResponse{Term: req.Term, Success: true}, nil)
		})
		defer a.Close()
		defer b.Close()
		defer close(hold)
		open := func() raft.AppendPipeline {
			p, err := a.AppendEntriesPipeline("b", "b")
			must.OK(t, err)
			return p
		}
		send := func(p raft.AppendPipeline, term uint64) error {
			_, err := p.AppendEntries(&raft.AppendEntriesRequest{Term: term}, &raft.AppendEntriesResponse{})
			return err
		}

		p := open()
		go func() {
			for i := range uint64(50) {
				if err := send(p, i); err != nil {
					t.Errorf("send %d: %v", i, err)
				}
			}
		}()
		for i := range uint64(50) { // in order
			f := <-p.Consumer()
			if f.Error() != nil || f.Response().Term != i || f.Request().Term != i || f.Start().IsZero() {
				t.Errorf("answer %d: %v, %+v", i, f.Error(), f.Response())
			}
		}
		p.Close()
		if err := send(p, 1); err == nil {
			t.Error("sent on a closed pipeline")
		}

		// What fails is no sign of life: nothing comes out of Consumer.
		for term, what := range map[uint64]string{100: "no answer", 200: "a refusal"} {
			p := open()
			var errs []error
			for len(errs) < 5 && (len(errs) == 0 || errs[len(errs)-1] == nil) {
				errs = append(errs, send(p, term))
			}
			if errs[0] != nil || errs[len(errs)-1] == nil {
				t.Errorf("%s: sends gave %v, want the first to pass and a later one to fail", what, errs)
			}
			select {
			case f := <-p.Consumer():
				t.Errorf("%s: handed on %+v, %v", what, f.Response(), f.Error())
			case <-time.After(time.Minute):
			}
			p.Close()
		}
	})
}

func TestInstallSnapshot(t *testing.T) {
	for name, c := range map[string]struct {
		size, sent int64
		pause      time.Duration // of the reader, halfway
		ok         bool
	}{
		"empty":              {0, 0, 0, true},
		"small":              {10, 10, 0, true},
		"large":              {5 << 20, 5 << 20, 0, true},
		"slow but alive":     {5 << 20, 5 << 20, 25 * time.Second, true},
		"stalled":            {5 << 20, 5 << 20, 70 * time.Second, false},
		"shorter than it is": {5 << 20, 3 << 20, 0, false},
		"longer than it is":  {1 << 20, 2 << 20, 0, true}, // the rest is not sent
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				data := bytes.Repeat([]byte("snapshot"), int(c.sent/8)+1)[:c.sent]
				a, b := pair(t, pipes.New(), func(rpc raft.RPC) {
					req, ok := rpc.Command.(*raft.InstallSnapshotRequest)
					if !ok {
						rpc.Respond(&raft.RequestVoteResponse{}, nil)
						return
					}
					half, err := io.ReadAll(io.LimitReader(rpc.Reader, req.Size/2))
					time.Sleep(c.pause)
					rest, err2 := io.ReadAll(rpc.Reader)
					if err := errors.Join(err, err2); err != nil {
						rpc.Respond(nil, err)
						return
					}
					same := bytes.Equal(append(half, rest...), data[:min(int64(len(data)), req.Size)])
					rpc.Respond(&raft.InstallSnapshotResponse{Term: req.Term, Success: same}, nil)
				})
				defer a.Close()
				defer b.Close()
				var resp raft.InstallSnapshotResponse
				err := a.InstallSnapshot("b", "b", &raft.InstallSnapshotRequest{Term: 4, Size: c.size}, &resp, bytes.NewReader(data))
				if (err == nil && resp.Success) != c.ok {
					t.Errorf("%v, %+v", err, resp)
				}
				time.Sleep(2 * time.Minute) // the peer's pause and deadlines
				if err := a.RequestVote("b", "b", &raft.RequestVoteRequest{RPCHeader: ofA}, &raft.RequestVoteResponse{}); err != nil {
					t.Errorf("a call afterwards: %v", err)
				}
			})
		})
	}
}

// TestLargeBatch: a follower far behind gets large entries in bounded batches,
// and all of them.
func TestLargeBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		a, b := pair(t, pipes.New(), func(rpc raft.RPC) {
			req := rpc.Command.(*raft.AppendEntriesRequest)
			size := 0
			for _, l := range req.Entries {
				got = append(got, fmt.Sprint(l.Index))
				size += len(l.Data)
			}
			if size > maxBatch {
				t.Errorf("%d bytes in one batch", size)
			}
			rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
		})
		defer a.Close()
		defer b.Close()
		var all []*raft.Log
		for i := range 20 {
			all = append(all, &raft.Log{Index: uint64(i), Data: make([]byte, 3<<19)})
		}
		for next, rounds := 0, 0; next < len(all); rounds++ {
			req := &raft.AppendEntriesRequest{Entries: all[next:]} // as raft does
			must.OK(t, a.AppendEntries("b", "b", req, &raft.AppendEntriesResponse{}))
			next += len(req.Entries)
			if rounds > len(all) {
				t.Fatal("no progress")
			}
		}
		if len(got) != len(all) {
			t.Errorf("%d of %d entries arrived: %v", len(got), len(all), got)
		}
	})
}

// TestMalformedStream: a peer that speaks something else loses its stream, and
// nothing reaches Raft.
func TestMalformedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipes.New()
		a, b := pair(t, p, func(raft.RPC) { t.Error("a malformed request reached the consumer") })
		defer a.Close()
		defer b.Close()
		for _, bytes := range []string{"\x00\x00\x00\x00\x00", "\x00\x00\x00\x01\x40x", "\xff\xff\xff\xff\x01", "\x00\x00\x00\x02\x01\xff\xff"} {
			c, err := a.layer.Dial("b", time.Second)
			must.OK(t, err)
			if _, err := c.Write([]byte(bytes)); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("%q: %v, want the stream closed", bytes, err)
			}
		}
	})
}

// ofA is the header of a's requests.
var ofA = raft.RPCHeader{ID: []byte("a"), Addr: []byte("a@h:1")}
