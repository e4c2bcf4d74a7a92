package peer

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/proto"
)

// cpu reports the process's CPU time per operation, both ends of a call
// together. It is the figure to watch: the clock also counts what else runs.
func cpu(b *testing.B) {
	b.Helper()
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	b.ReportAllocs()
	b.Cleanup(func() {
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
		used := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
		b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-µs/op")
	})
}

func BenchmarkUnary(b *testing.B) {
	a := newAuthority(b)
	server, _ := startHost(b, a, "b", nil)
	client, _ := startHost(b, a, "a", nil)
	p := peerOf(b, client, "b", server.Addr())
	ctx := b.Context()
	if _, err := p.LeaderLost(ctx, &proto.LeaderLostRequest{}); err != nil {
		b.Fatal(err)
	}
	cpu(b)
	for b.Loop() {
		if _, err := p.LeaderLost(ctx, &proto.LeaderLostRequest{Term: 1}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkExchange(b *testing.B) {
	a := newAuthority(b)
	server, _ := startHost(b, a, "b", nil)
	client, _ := startHost(b, a, "a", nil)
	s, err := peerOf(b, client, "b", server.Addr()).Exchange(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	entry := bytes.Repeat([]byte("e"), 1536)
	round := func() {
		if err := s.Send(&proto.PeerRequest{Id: 1, Request: &proto.PeerRequest_Propose{Propose: entry}}); err != nil {
			b.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			b.Fatal(err)
		}
	}
	round()
	cpu(b)
	for b.Loop() {
		round()
	}
}

func BenchmarkAppendEntries(b *testing.B) {
	for _, entries := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(entries), func(b *testing.B) {
			a := newAuthority(b)
			server, _ := startHost(b, a, "b", nil)
			client, _ := startHost(b, a, "a", nil)
			client.Found("b", "b", server.Addr())
			from, at := NewTransport(client), NewTransport(server)
			at.Admit(nil)
			defer from.Close()
			defer at.Close()
			go func() {
				for r := range at.Consumer() {
					if r.Command == nil {
						return
					}
					r.Respond(&raft.AppendEntriesResponse{Term: 1, Success: true}, nil)
				}
			}()
			req := &raft.AppendEntriesRequest{
				RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("a"), Addr: []byte(client.Addr())},
				Term:      3, PrevLogEntry: 100, PrevLogTerm: 3, LeaderCommitIndex: 100,
			}
			for i := range entries {
				req.Entries = append(req.Entries, &raft.Log{Index: 101 + uint64(i), Term: 3, Data: bytes.Repeat([]byte("e"), 1536), AppendedAt: time.Now()})
			}
			var resp raft.AppendEntriesResponse
			if err := from.AppendEntries("b", "b", req, &resp); err != nil {
				b.Fatal(err)
			}
			cpu(b)
			for b.Loop() {
				if err := from.AppendEntries("b", "b", req, &resp); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
