package raftstore

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
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
	must.OK(t, l.RemoveServer(c.ctx(), stranger.id, index))
	conn, err := stranger.host.Conn(l.id, l.addr)
	must.OK(t, err)
	stream, err := proto.NewPeerClient(conn).Exchange(c.ctx())
	must.OK(t, err)
	frame, err := proto.Encode(proto.KindWrite, write("k", "stranger"))
	must.OK(t, err)
	ask := func(req *proto.PeerRequest) *proto.PeerResponse {
		t.Helper()
		must.OK(t, stream.Send(req))
		resp, err := stream.Recv()
		must.OK(t, err)
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
