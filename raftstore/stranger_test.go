package raftstore

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/proto"
)

// TestStrangers: who is not in the leader's configuration can neither write nor read
// through it, whatever its certificate. Between a removal and its record that is what
// keeps the removed node out.
func TestStrangers(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	stranger := c.other(l)
	index, _ := l.Members()
	if err := l.RemoveServer(c.ctx(), stranger.id, index); err != nil {
		t.Fatal(err)
	}
	conn, err := stranger.host.Conn(l.id, l.addr)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := proto.NewPeerClient(conn).Exchange(c.ctx())
	if err != nil {
		t.Fatal(err)
	}
	frame, err := proto.Encode(proto.KindWrite, write("k", "stranger"))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(req *proto.PeerRequest) *proto.PeerResponse {
		t.Helper()
		if err := stream.Send(req); err != nil {
			t.Fatal(err)
		}
		resp, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	term := l.node.Raft().CurrentTerm()
	p := ask(&proto.PeerRequest{Id: 1, Term: term, Request: &proto.PeerRequest_Propose{Propose: frame}}).GetPropose()
	if p.GetError() != proto.ProposeError_PROPOSE_INVALID || !strings.Contains(p.GetDetail(), "not a member") {
		t.Errorf("a proposal: %v", p)
	}
	read := &proto.PeerRequest_ReadIndex{ReadIndex: &proto.ReadIndexRequest{Term: term}}
	if r := ask(&proto.PeerRequest{Id: 2, Term: term, Request: read}); !strings.Contains(r.GetRefused(), "not a member") {
		t.Errorf("a read index: %v", r)
	}
	if table := l.State().Table("t"); table != nil {
		if v, _ := table.Get("k", l.Applied()); v != nil {
			t.Errorf("its write is there: %s", v.Value())
		}
	}
}
