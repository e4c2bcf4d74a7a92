package regress

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/must"
)

// TestVoteIsGivenToAnAddress: a voter remembers the address that it voted for, as its
// transport encodes it, and gives its vote to who says that address in the same term,
// without comparing logs. Addresses move between nodes.
//
// Scenario: one node was elected in term T, and wrote. Another one, whose log is empty,
// stands in T as well, from the address that the first one had.
//
// Cure: peer.Transport encodes the id with the address, and names each candidate by
// the id of its certificate.
func TestVoteIsGivenToAnAddress(t *testing.T) {
	for _, row := range []struct {
		name    string
		network func() func(raft.ServerID) transport
		cured   bool
	}{
		{"library", func() func(raft.ServerID) transport { return newPipes().library }, false},
		{"ours", func() func(raft.ServerID) transport { return newPipes().ours }, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				granted := secondVote(t, row.network(), false)
				if !row.cured {
					pitfall(t, granted, "a vote was given to one node only")
				} else if granted {
					t.Error("cure: a vote of one term was given to two nodes")
				}
			})
		})
	}
	// The same candidate may ask again: its answer was lost.
	virtual(t, func(t *testing.T) {
		if !secondVote(t, newPipes().ours, true) {
			t.Error("the node that has the vote did not get it again")
		}
	})
}

// secondVote asks a voter for the vote that it has given to the leader, from the
// leader's address: the leader itself does, or the third node.
func secondVote(t *testing.T, network func(raft.ServerID) transport, itself bool) bool {
	c := start(t, setup{network: network}, "a", "b", "c")
	defer c.stop()
	leader := c.leader()
	c.write(leader, "w")
	//sleep: in virtual time: the helper opens the bubble
	time.Sleep(time.Second) // its majority was there before the third node's answer
	term := leader.raft.CurrentTerm()
	var voter, asks *node
	for _, n := range c.nodes {
		vote, _ := n.logs.Get([]byte("LastVoteCand"))
		of, _ := n.logs.GetUint64([]byte("LastVoteTerm"))
		switch {
		case n == leader:
		case voter == nil && of == term && n.net.DecodePeer(vote) == leader.addr:
			voter = n
		default:
			asks = n
		}
	}
	if voter == nil {
		t.Fatalf("setup: nobody has voted for %s in term %d", leader.id, term)
	}
	if itself {
		asks = leader
	}
	var resp raft.RequestVoteResponse
	must.OK(t, asks.net.transport.RequestVote(voter.id, voter.addr, &raft.RequestVoteRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(asks.id), Addr: asks.net.EncodePeer(asks.id, leader.addr)},
		Term:      term, LeadershipTransfer: true,
	}, &resp))
	return resp.Granted
}
