package membership

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/proto"
)

// TestDecideJoin: a node writes the first configuration of a cluster that includes it, joins
// one that does not, and does neither before a member has said which of them it is.
func TestDecideJoin(t *testing.T) {
	member := func(name string) *proto.Member {
		return &proto.Member{NodeId: name, Name: name, PeerAddress: name + ":1", Voter: true}
	}
	members := func(names string) (out []*proto.Member) {
		for name := range strings.FieldsSeq(names) {
			out = append(out, member(name))
		}
		return out
	}
	abc := string(clusterOf(serversOf(members("a b c"))))
	hello := func(name, cluster, known string) *proto.HelloResponse {
		return &proto.HelloResponse{Self: member(name), ClusterId: cluster, Known: members(known), BootstrapExpect: 3}
	}
	for _, row := range []struct {
		name    string
		answers []*proto.HelloResponse
		decided bool
		kind    actionKind
		address string
		reason  string
	}{
		{name: "nobody has a cluster", answers: []*proto.HelloResponse{hello("b", "", "b c")}},
		{name: "a member's first configuration includes this node",
			answers: []*proto.HelloResponse{hello("b", abc, "a b c"), hello("c", "", "a b c")}, decided: true, kind: actBootstrap},
		{name: "another one's has changed since",
			answers: []*proto.HelloResponse{hello("b", abc, "b c d"), hello("c", abc, "b c d")}, decided: true, kind: actJoin, address: "b:1"},
		{name: "one has chosen its cluster, and not written the configuration yet",
			answers: []*proto.HelloResponse{hello("b", abc, ""), hello("c", "", "a b c")}, decided: true, reason: "b has chosen cluster " + abc},
		{name: "one has, and another has written it",
			answers: []*proto.HelloResponse{hello("b", abc, ""), hello("c", abc, "a b c")}, decided: true, kind: actBootstrap},
		{name: "one waits for the leader, and another is a member",
			answers: []*proto.HelloResponse{hello("b", "other", ""), hello("c", "other", "c d")}, decided: true, kind: actJoin, address: "c:1"},
		{name: "two clusters",
			answers: []*proto.HelloResponse{hello("b", "one", "b"), hello("c", "other", "c")}, decided: true, reason: "different clusters, one and other"},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := view{self: member("a"), expect: 3, answers: map[string]*proto.HelloResponse{}}
			for _, r := range row.answers {
				v.answers[r.Self.PeerAddress] = r
			}
			got, ok := decideJoin(v)
			if ok != row.decided || got.kind != row.kind || got.address != row.address || !strings.Contains(got.reason, row.reason) {
				t.Errorf("%v %+v", ok, got)
			}
			if (got.reason == "") != (row.reason == "") {
				t.Errorf("the reason is %q", got.reason)
			}
		})
	}
}
