package playground

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/words"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/proto"
)

// lacks asks a node that serves and is not ready for the cluster's status. lack is set if
// it cannot be ready before others run, and says which and how to start them; missing is
// what else keeps it. lostData says that it never can: see there.
func (w *wait) lacks(ctx context.Context, n *Node) (lack, missing string, lostData bool) {
	st, ok := n.clusterStatus(ctx, w.client)
	if !ok {
		return "", "", false
	}
	// Others may have been started meanwhile.
	now, err := readCluster(w.c.dir)
	if err != nil {
		return "", "", false
	}
	now.refresh()
	if st.Waiting != "" {
		for _, other := range now.runningNodes() {
			if other.Name != n.Name {
				seen, ok := other.clusterStatus(ctx, w.client)
				lostData = lostData || ok && n.isReplacedIn(seen, st.AnsweredBy)
			}
		}
	}
	return now.lackOf(n.Name, st), missingOf(st), lostData
}

// clusterStatus is the cluster's status as a node has it.
func (n *Node) clusterStatus(ctx context.Context, client *http.Client) (st membership.ClusterStatus, ok bool) {
	code, body, err := n.get(ctx, client, membership.AdminPath+"status")
	ok = err == nil && code == http.StatusOK && json.Unmarshal(body, &st) == nil
	return st, ok
}

// isReplacedIn reports whether a cluster has a member at the node's address that is another than the
// one that the node is now. Only the leader's word counts: others may not know yet that the member was
// removed.
func (n *Node) isReplacedIn(st membership.ClusterStatus, id proto.NodeID) bool {
	return st.Leader != "" && st.Leader == st.AnsweredBy && slices.ContainsFunc(st.Members, func(m membership.MemberStatus) bool {
		return m.PeerAddress == n.peerForOthers() && m.ID != id
	})
}

// lackOf says what keeps the cluster from a quorum, or from its first start, as long as
// the processes that run now are all: "" if they suffice.
func (c *cluster) lackOf(name string, st membership.ClusterStatus) string {
	stopped := c.stopped()
	if st.Waiting != "" {
		if c.formed() || len(stopped) == 0 {
			return "" // it joins, or they are about to meet
		}
		return fmt.Sprintf("The cluster has never started: %s waits for all nodes, and %s\n%s", name, notRunning(stopped), c.startThem(stopped))
	}
	var can, cannot []string
	for _, m := range st.Members {
		n := c.find(func(n *Node) bool { return n.Peer == m.PeerAddress }) // it may have no name yet
		switch {
		case !m.Voter:
		case n != nil && n.Running():
			can = append(can, n.Name)
		case n != nil:
			cannot = append(cannot, n.Name+" is stopped")
		case m.Error == "": // a member that is none of the playground's
			can = append(can, m.Name)
		default:
			cannot = append(cannot, m.Name+": "+m.Error)
		}
	}
	voters := len(can) + len(cannot)
	need := voters/2 + 1
	if voters == 0 || len(can) >= need {
		return ""
	}
	text := fmt.Sprintf("The cluster has no quorum yet: of %d voters %s, and %d are needed; %s", voters, runs(can), need, strings.Join(cannot, ", "))
	if len(stopped) > 0 {
		text += "\n" + c.startThem(stopped)
	}
	return text
}

// missingOf says why members do not answer.
func missingOf(st membership.ClusterStatus) string {
	if st.Waiting != "" {
		return st.Waiting
	}
	var out []string
	for _, m := range st.Members {
		if m.Error != "" {
			out = append(out, m.Name+": "+m.Error)
		}
	}
	return strings.Join(out, "; ")
}

// stopped are the names of the nodes that do not run, and could.
func (c *cluster) stopped() []string {
	return namesOf(c.those(func(n *Node) bool { return !n.Running() && !n.removed() }))
}

func (c *cluster) startThem(names []string) string {
	return fmt.Sprintf("Start the rest:  %s dev start %s --data-dir %s", self(), strings.Join(names, " "), rel(c.dir))
}

func notRunning(names []string) string {
	if len(names) == 1 {
		return names[0] + " is stopped"
	}
	return words.And(names) + " are stopped"
}

func runs(names []string) string {
	switch len(names) {
	case 0:
		return "none runs"
	case 1:
		return names[0] + " runs"
	}
	return words.And(names) + " run"
}
