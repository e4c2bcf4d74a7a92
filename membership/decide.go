package membership

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quorate/quorate/proto"
)

// view is what a node without a cluster knows after a round of Hello.
type view struct {
	self   *proto.Member
	expect int
	// known are the discovered peers, sorted, this node included.
	known []*proto.Member
	// answers are by the address that was asked.
	answers map[string]*proto.HelloResponse
	// join are the addresses from the command line.
	join []string
	// strangers are addresses of nodes with another secret. No decision follows from them.
	strangers []string
}

type actionKind int

const (
	actWait      actionKind = iota
	actBootstrap            // with servers and cluster
	actJoin                 // cluster, through the node at address
)

// action is what to do next. For actWait, reason says for what.
type action struct {
	kind    actionKind
	servers []Server
	cluster proto.ClusterID
	address string
	adopted bool // somebody else has bootstrapped these servers already
	reason  string
}

// decide is the whole policy of forming a cluster: join first, bootstrap only
// when told and when no peer knows a cluster. It is a pure function.
func decide(v view) action {
	if a, ok := decideJoin(v); ok {
		return a
	}
	if v.expect == 0 {
		return action{reason: fmt.Sprintf("no cluster found at %s; this node is not to start one", orNone(v.join))}
	}
	if len(v.known) < v.expect {
		return action{reason: fmt.Sprintf("%d of %d expected nodes have been found: %s", len(v.known), v.expect, names(v.known))}
	}
	servers := serversOf(v.known)
	byID := map[string]*proto.HelloResponse{}
	for _, r := range v.answers {
		byID[r.Self.GetNodeId()] = r
	}
	for _, p := range v.known {
		if p.NodeId == v.self.NodeId {
			continue
		}
		r := byID[p.NodeId]
		switch {
		case r == nil:
			return action{reason: fmt.Sprintf("%s at %s does not answer", p.Name, p.PeerAddress)}
		case int(r.BootstrapExpect) != v.expect:
			return action{reason: fmt.Sprintf("%s expects %d nodes, this one %d: give all the same --bootstrap-expect", p.Name, r.BootstrapExpect, v.expect)}
		case !sameServers(serversOf(r.Known), servers):
			return action{reason: fmt.Sprintf("%s knows other nodes: %s", p.Name, names(r.Known))}
		}
	}
	if found := covered(v, servers); len(v.join) > 0 && 2*found <= len(v.join) {
		return action{reason: fmt.Sprintf("only %d of the %d join addresses have been reached", found, len(v.join))}
	}
	return action{kind: actBootstrap, servers: servers, cluster: clusterOf(servers)}
}

// decideJoin handles answers from nodes that have a cluster.
func decideJoin(v view) (action, bool) {
	var cluster, address, starts string
	for _, addr := range slices.Sorted(maps.Keys(v.answers)) {
		r := v.answers[addr]
		switch {
		case r.ClusterId == "":
			continue
		case cluster != "" && r.ClusterId != cluster:
			return action{reason: fmt.Sprintf("the join addresses lead to different clusters, %s and %s", cluster, r.ClusterId)}, true
		}
		cluster = r.ClusterId
		if len(r.Known) > 0 {
			address = cmp.Or(address, addr)
		} else {
			starts = cmp.Or(starts, r.Self.GetName())
		}
	}
	if cluster == "" {
		return action{}, false
	}
	// A member whose first configuration includes this node has bootstrapped
	// before it did. To write the same entry is safe as long as that
	// configuration is still the first one, which the cluster's id proves.
	for _, r := range v.answers {
		servers := membersAsServers(r.Known)
		if r.ClusterId != "" && string(clusterOf(servers)) == r.ClusterId &&
			slices.ContainsFunc(servers, func(s Server) bool { return string(s.ID) == v.self.NodeId }) {
			return action{kind: actBootstrap, servers: servers, cluster: proto.ClusterID(r.ClusterId), adopted: true}, true
		}
	}
	if address == "" {
		// It may write a first configuration that includes this node, or wait for the
		// leader that has let it in. Neither could let another one in.
		return action{reason: fmt.Sprintf("%s has chosen cluster %s, and not its members yet", starts, cluster)}, true
	}
	return action{kind: actJoin, cluster: proto.ClusterID(cluster), address: address}, true
}

// covered counts the join addresses that lead to one of the servers. With the
// same list on all nodes, two sets that each cover more than half of it share a
// node, and that node agrees to one of them only.
func covered(v view, servers []Server) int {
	n := 0
	for _, addr := range v.join {
		id := proto.NodeID(v.answers[addr].GetSelf().GetNodeId())
		if addr == v.self.PeerAddress {
			id = proto.NodeID(v.self.NodeId)
		}
		if slices.ContainsFunc(servers, func(s Server) bool { return s.ID == id }) {
			n++
		}
	}
	return n
}

func membersAsServers(members []*proto.Member) []Server {
	out := serversOf(members)
	for _, p := range members {
		for i := range out {
			if string(out[i].ID) == p.NodeId {
				out[i].Voter = p.Voter
			}
		}
	}
	return out
}

func names(members []*proto.Member) string {
	var out []string
	for _, p := range members {
		out = append(out, p.Name)
	}
	return orNone(out)
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "(none)"
	}
	return strings.Join(list, ", ")
}
