package node

import (
	"context"
	"errors"
	"strings"

	"github.com/quorate/quorate/apiserver/controllers"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/proto"
)

// memberObjects is the cluster as its objects show it.
func (n *Node) memberObjects() controllers.Members {
	return controllers.Members{
		List: func() ([]controllers.MemberSeen, error) {
			list, err := n.manager.Members()
			var out []controllers.MemberSeen
			for i := range list.Members {
				out = append(out, memberSeen(&list.Members[i]))
			}
			return out, err
		},
		Ask: func(ctx context.Context) ([]controllers.MemberSeen, error) {
			st, err := n.manager.Look(ctx)
			var out []controllers.MemberSeen
			for i := range st.Members {
				m := &st.Members[i]
				seen := memberSeen(&m.MemberInfo)
				seen.Down, seen.Why = st.NotReady(m)
				seen.Version, seen.FeatureVersion = m.Version, int64(m.FeatureVersion)
				seen.Applied, seen.Lag = m.Applied, m.Lag
				seen.DiskSpace, seen.LostEntries, seen.WrongState = string(m.DiskSpace), m.LostEntries, st.WrongStates[m.ID].Found
				out = append(out, seen)
			}
			return out, err
		},
		Remove: func(ctx context.Context, id string) error {
			err := n.manager.Remove(ctx, proto.NodeID(id))
			if errors.Is(err, membership.ErrRefused) {
				return &controllers.RemovalRefused{Why: strings.TrimPrefix(err.Error(), membership.ErrRefused.Error()+": ")}
			}
			return err
		},
	}
}

func memberSeen(m *membership.MemberInfo) controllers.MemberSeen {
	return controllers.MemberSeen{
		ID: string(m.ID), Name: m.Name, PeerAddress: m.PeerAddress, APIAddress: m.APIAddress, Voter: m.Voter, Leader: m.Leader,
	}
}
