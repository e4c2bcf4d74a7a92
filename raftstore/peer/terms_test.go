package peer

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/internal/pipes"
)

// TestEarlierTerm: what no leader of its term can send is neither sent nor handed to
// raft; what a leader sends of its own and of earlier terms is.
func TestEarlierTerm(t *testing.T) {
	entries := func(terms ...uint64) (out []*raft.Log) {
		for i, term := range terms {
			out = append(out, &raft.Log{Index: uint64(i + 1), Term: term})
		}
		return out
	}
	for _, row := range []struct {
		name string
		req  any
		good bool
	}{
		{"own term", &raft.AppendEntriesRequest{Term: 3, PrevLogTerm: 3, Entries: entries(3, 3)}, true},
		{"earlier entries", &raft.AppendEntriesRequest{Term: 3, PrevLogTerm: 1, Entries: entries(1, 2)}, true},
		{"heartbeat", &raft.AppendEntriesRequest{Term: 3}, true},
		{"later entry", &raft.AppendEntriesRequest{Term: 3, PrevLogTerm: 3, Entries: entries(3, 4)}, false},
		{"behind a later entry", &raft.AppendEntriesRequest{Term: 3, PrevLogTerm: 4}, false},
		{"no entry", &raft.AppendEntriesRequest{Term: 3, Entries: []*raft.Log{{Index: 1, Term: 3}, {Index: 2, Term: 3, Type: 0xff}}}, false},
		{"snapshot", &raft.InstallSnapshotRequest{Term: 3, LastLogTerm: 3}, true},
		{"later snapshot", &raft.InstallSnapshotRequest{Term: 3, LastLogTerm: 4}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			handed := 0
			a, b := pair(t, pipes.New(), func(rpc raft.RPC) {
				handed++
				switch rpc.Command.(type) {
				case *raft.AppendEntriesRequest:
					rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
				case *raft.InstallSnapshotRequest:
					rpc.Respond(&raft.InstallSnapshotResponse{Success: true}, nil)
				}
			})
			defer a.Close()
			defer b.Close()
			check := func(way string, err error) {
				t.Helper()
				refused := err != nil && (strings.Contains(err.Error(), errLaterTerm.Error()) || strings.Contains(err.Error(), errNoEntry.Error()))
				if refused == row.good || row.good && err != nil {
					t.Errorf("%s, %s: %v", row.name, way, err)
				}
			}
			switch req := row.req.(type) {
			case *raft.AppendEntriesRequest:
				check("sent", a.AppendEntries("b", "b", req, &raft.AppendEntriesResponse{}))
				line, err := a.AppendEntriesPipeline("b", "b")
				must.OK(t, err)
				_, err = line.AppendEntries(req, &raft.AppendEntriesResponse{})
				check("sent in a pipeline", err)
				line.Close()
				synctest.Wait()
				sent := handed
				s, err := a.dial("b")
				must.OK(t, err)
				check("received", s.call(rpcTimeout, kindAppendEntries, req, &raft.AppendEntriesResponse{}))
				a.drop(s)
				if want := map[bool]int{true: 3}[row.good]; handed != want {
					t.Errorf("%s: %d messages were handed to raft, %d of them after the sender's check, want %d", row.name, handed, sent, want)
				}
			case *raft.InstallSnapshotRequest:
				check("sent", a.InstallSnapshot("b", "b", req, &raft.InstallSnapshotResponse{}, strings.NewReader("")))
				if want := map[bool]int{true: 1}[row.good]; handed != want {
					t.Errorf("%s: %d messages were handed to raft, want %d", row.name, handed, want)
				}
			}
		})
	}
}

// TestCommitIsBounded: the commit index of a message is not beyond its last entry,
// on either side.
func TestCommitIsBounded(t *testing.T) {
	for _, row := range []struct{ prev, entries, commit, want uint64 }{
		{0, 0, 0, 0}, {5, 0, 5, 5}, {5, 0, 9, 5}, {5, 2, 6, 6}, {5, 2, 9, 7},
	} {
		synctest.Test(t, func(t *testing.T) {
			var got []uint64
			a, b := pair(t, pipes.New(), func(rpc raft.RPC) {
				got = append(got, rpc.Command.(*raft.AppendEntriesRequest).LeaderCommitIndex)
				rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
			})
			defer a.Close()
			defer b.Close()
			message := func() *raft.AppendEntriesRequest {
				req := &raft.AppendEntriesRequest{Term: 1, PrevLogEntry: row.prev, PrevLogTerm: 1, LeaderCommitIndex: row.commit}
				for i := range row.entries {
					req.Entries = append(req.Entries, &raft.Log{Index: row.prev + 1 + i, Term: 1})
				}
				return req
			}
			must.OK(t, a.AppendEntries("b", "b", message(), &raft.AppendEntriesResponse{}))
			line, err := a.AppendEntriesPipeline("b", "b")
			must.OK(t, err)
			if _, err := line.AppendEntries(message(), &raft.AppendEntriesResponse{}); err != nil {
				t.Fatal(err)
			}
			<-line.Consumer()
			line.Close()
			s, err := a.dial("b")
			must.OK(t, err)
			must.OK(t, s.call(rpcTimeout, kindAppendEntries, message(), &raft.AppendEntriesResponse{}))
			a.drop(s)
			if want := []uint64{row.want, row.want, row.want}; !slices.Equal(got, want) {
				t.Errorf("%+v: raft was handed commit indexes %d", row, got)
			}
		})
	}
}
