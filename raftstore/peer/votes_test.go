//lint:file-ignore SA1019 raft 1.7 still falls back on a field that it deprecates

package peer

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/pipes"
)

func TestPeerCoding(t *testing.T) {
	var tr Transport
	for _, row := range []struct {
		id      raft.ServerID
		addr    raft.ServerAddress
		encoded string
	}{
		{"a", "127.0.0.1:7000", "a@127.0.0.1:7000"},
		{"node-1.zone_2", "[fe80::1%eth0]:7000", "node-1.zone_2@[fe80::1%eth0]:7000"},
		{"a", "", "a@"},
	} {
		got := tr.EncodePeer(row.id, row.addr)
		if string(got) != row.encoded {
			t.Errorf("%s at %s: encoded %q, want %q", row.id, row.addr, got, row.encoded)
		}
		if back := tr.DecodePeer(got); back != row.addr {
			t.Errorf("%s at %s: decoded %q", row.id, row.addr, back)
		}
	}
}

// TestCandidateIsNamed: raft sees each vote request under the id and address of the
// node that sent it, and none in another node's name.
func TestCandidateIsNamed(t *testing.T) {
	for _, row := range []struct {
		name     string
		id, addr string
		want     string // "" if it is turned away
	}{
		{"by its id and address", "a", "a@h:1", "a@h:1"},
		{"by an address alone", "a", "h:1", ""},
		{"by nothing", "a", "", ""},
		{"in another node's name", "a", "b@h:1", ""},
		{"an id that goes on", "a", "a.b@h:1", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			var seen string
			a, b := pair(t, pipes.New(), func(rpc raft.RPC) {
				seen = string(rpc.Command.(*raft.RequestVoteRequest).Addr)
				rpc.Respond(&raft.RequestVoteResponse{Granted: true}, nil)
			})
			defer a.Close()
			defer b.Close()
			var resp raft.RequestVoteResponse
			err := a.RequestVote("b", "b", &raft.RequestVoteRequest{
				RPCHeader: raft.RPCHeader{ID: []byte(row.id), Addr: []byte(row.addr)},
			}, &resp)
			if refused := err != nil && strings.Contains(err.Error(), ErrWrongNode.Error()); refused != (row.want == "") || !refused && err != nil {
				t.Errorf("%s: %v", row.name, err)
			}
			if seen != row.want || resp.Granted != (row.want != "") {
				t.Errorf("%s: raft saw %q, granted %v, want %q", row.name, seen, resp.Granted, row.want)
			}
		})
	}
}
