package raftstore

import (
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/raftstore/disk"
)

// voterFor returns a node that has voted for the leader of this term, by request.
func (c *cluster) voterFor(l *testNode) *testNode {
	c.t.Helper()
	for _, m := range c.nodes {
		term, _ := m.log.GetUint64([]byte("LastVoteTerm"))
		cand, _ := m.log.Get([]byte("LastVoteCand"))
		if m != l && term == l.node.Raft().CurrentTerm() && l.rpc.DecodePeer(cand) == raft.ServerAddress(l.addr) {
			return m
		}
	}
	c.t.Fatalf("nobody has voted for %s in term %d", l.id, l.node.Raft().CurrentTerm())
	return nil
}

// asks sends a request for a vote that compares badly with every log that has an
// entry, in a term, from one node, and names it by addr. It returns the answer.
func (c *cluster) asks(from, voter *testNode, term uint64, addr []byte) bool {
	c.t.Helper()
	var resp raft.RequestVoteResponse
	must.OK(c.t, from.rpc.RequestVote(raft.ServerID(voter.id), raft.ServerAddress(voter.addr), &raft.RequestVoteRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(from.id), Addr: addr},
		Term:      term, LeadershipTransfer: true,
	}, &resp))
	return resp.Granted
}

// A vote belongs to the node that it was given to. Another node that has its address
// by now (both were started again) must not get it a second time in the same term:
// for a repetition logs are not compared.
func TestVoteBelongsToANode(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	term, voter := l.node.Raft().CurrentTerm(), c.voterFor(l)
	var third *testNode
	for _, m := range c.nodes {
		if m != l && m != voter {
			third = m
		}
	}
	if c.asks(third, voter, term, third.rpc.EncodePeer(raft.ServerID(third.id), raft.ServerAddress(l.addr))) {
		t.Errorf("%s has voted for %s in term %d, and now for %s, whose log is empty", voter.id, l.id, term, third.id)
	}
	if !c.asks(l, voter, term, l.rpc.EncodePeer(raft.ServerID(l.id), raft.ServerAddress(l.addr))) {
		t.Errorf("%s, whose answer was lost, does not get its vote again", l.id)
	}
	// What raft says of the leader is an address that can be dialled.
	for _, m := range c.nodes {
		c.eventually("the leader is known", func() error { return m.WaitApplied(c.ctx(), l.Applied()) })
		if id, addr := m.Leader(); id != l.id || addr != l.addr {
			t.Errorf("%s knows the leader as %s at %s, it is %s at %s", m.id, id, addr, l.id, l.addr)
		}
	}
}

// The power fails when raft has stored the term of its vote and not the candidate: the
// node has not voted in that term, and compares logs with anyone who asks.
func TestVoteIsNotTorn(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	voter := c.voterFor(l)
	_, err := l.Propose(c.ctx(), write("k", "v"))
	must.OK(t, err)
	must.OK(t, voter.WaitApplied(c.ctx(), l.Applied()))
	term := l.node.Raft().CurrentTerm() + 5
	c.close(voter)
	log, err := disk.OpenLog(voter.dir, disk.LogOptions{})
	must.OK(t, err)
	must.OK(t, log.SetUint64([]byte("CurrentTerm"), term))  // somebody else asks in that term,
	must.OK(t, log.SetUint64([]byte("LastVoteTerm"), term)) // and is to get the vote
	must.OK(t, log.Close())
	c.open(voter)
	if c.asks(l, voter, term, l.rpc.EncodePeer(raft.ServerID(l.id), raft.ServerAddress(l.addr))) {
		t.Errorf("%s gave the vote of term %d to the candidate of its vote before, without a look at its log", voter.id, term)
	}
}
