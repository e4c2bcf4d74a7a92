package membership

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorate/quorate/proto"
)

// farBehind is how many entries a member may have applied less than are committed before it is not ready: about what a busy
// cluster commits in a second.
const farBehind = 5000

// NotReady says why a member is not ready, in a word and for a person; empty: it is.
func (st *ClusterStatus) NotReady(m *MemberStatus) (reason, why string) {
	wrong, isWrong := st.WrongStates[m.ID]
	switch {
	case isWrong:
		return "WrongState", wrong.Found
	case m.LostEntries != "":
		return "LostEntries", m.LostEntries
	case m.Error != "":
		return "NotAnswering", m.Error
	case m.Role == "leader" && m.ID == st.Leader:
		return "", ""
	case st.Leader == "" || m.LeaderID != string(st.Leader):
		return "NotFollowing", "it does not follow the leader"
	case m.DiskSpace == DiskReadOnly:
		return "DiskReadOnly", "its disk takes no writes"
	case m.DiskSpace == DiskNoRoom:
		return "DiskFull", "its disk has no room for the snapshot that it needs"
	case m.DiskSpace == DiskFull && st.othersHaveRoom():
		return "DiskFull", "its disk is full, and those of a majority have room: it does not keep up with them"
	case m.Lag > farBehind:
		return "Behind", fmt.Sprintf("it has applied %d entries less than are committed", m.Lag)
	}
	return "", ""
}

// othersHaveRoom reports whether the disks of a majority are not full: what they take, one that is full does not.
func (st *ClusterStatus) othersHaveRoom() bool {
	have := 0
	for i := range st.Members {
		if m := &st.Members[i]; m.Voter && m.Error == "" && m.DiskSpace != DiskFull && m.DiskSpace != DiskNoRoom && m.DiskSpace != DiskReadOnly {
			have++
		}
	}
	return have > st.Voters/2
}

// Remove removes a member by its id as the admin API does without force: a leader hands over first. Errors: ErrRefused, if that would
// endanger the cluster. Of one that is no member it is none.
func (c *changes) Remove(ctx context.Context, id proto.NodeID) error {
	ctx, cancel := context.WithTimeout(ctx, maxChangeTime)
	defer cancel()
	_, err := c.change(ctx, &proto.ChangeRequest{Kind: proto.ChangeKind_CHANGE_REMOVE, Member: &proto.Member{NodeId: string(id)}})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
