package membership

import (
	"fmt"
	"testing"

	"github.com/quorate/quorate/proto"
)

// TestNotReady: why the third of three voters is not ready, of which the first leads.
func TestNotReady(t *testing.T) {
	for _, row := range []struct {
		title  string
		change func(st *ClusterStatus, m *MemberStatus)
		want   string
	}{
		{"it follows", func(*ClusterStatus, *MemberStatus) {}, ""},
		{"it is a bit behind", func(_ *ClusterStatus, m *MemberStatus) { m.Lag = farBehind }, ""},
		{"it is far behind", func(_ *ClusterStatus, m *MemberStatus) { m.Lag = farBehind + 1 }, "Behind"},
		{"it follows another one", func(_ *ClusterStatus, m *MemberStatus) { m.LeaderID = "2" }, "NotFollowing"},
		{"it does not answer", func(_ *ClusterStatus, m *MemberStatus) { m.Error, m.DiskSpace = "refused", "" }, "NotAnswering"},
		{"its file system is full, and its files have room", func(_ *ClusterStatus, m *MemberStatus) { m.DiskSpace = DiskOnReserve }, ""},
		{"its disk is low", func(_ *ClusterStatus, m *MemberStatus) { m.DiskSpace = DiskLow }, ""},
		{"its disk is full", func(_ *ClusterStatus, m *MemberStatus) { m.DiskSpace = DiskFull }, "DiskFull"},
		{"one more is full", func(st *ClusterStatus, m *MemberStatus) { m.DiskSpace, st.Members[1].DiskSpace = DiskFull, DiskFull }, ""},
		{"one more is low", func(st *ClusterStatus, m *MemberStatus) { m.DiskSpace, st.Members[1].DiskSpace = DiskFull, DiskLow }, "DiskFull"},
		{"it has no room for a snapshot", func(_ *ClusterStatus, m *MemberStatus) { m.DiskSpace = DiskNoRoom }, "DiskFull"},
		{"its disk takes no writes", func(_ *ClusterStatus, m *MemberStatus) { m.DiskSpace = DiskReadOnly }, "DiskReadOnly"},
		{"none does", func(st *ClusterStatus, _ *MemberStatus) {
			for i := range st.Members {
				st.Members[i].DiskSpace = DiskReadOnly
			}
		}, "DiskReadOnly"},
	} {
		st := &ClusterStatus{Leader: "1", Voters: 3}
		for i := range 3 {
			id := proto.NodeID(fmt.Sprint(i + 1))
			st.Members = append(st.Members, MemberStatus{MemberInfo: MemberInfo{ID: id, Voter: true}, Role: "follower", LeaderID: "1"})
		}
		st.Members[0].Role = "leader"
		m := &st.Members[2]
		row.change(st, m)
		if got, why := st.NotReady(m); got != row.want || (got == "") != (why == "") {
			t.Errorf("%s: %s (%s), want %s", row.title, got, why, row.want)
		}
	}
}

// TestDiskSpaceOf: what a member's disk lacks, of what it says.
func TestDiskSpaceOf(t *testing.T) {
	for _, row := range []struct {
		says *proto.DiskSpace
		want DiskSpace
	}{
		{nil, ""}, // of an earlier release
		{&proto.DiskSpace{}, ""},
		{&proto.DiskSpace{OnReserve: true}, DiskOnReserve},
		{&proto.DiskSpace{Level: proto.DiskSpace_LOW}, DiskLow},
		{&proto.DiskSpace{Level: proto.DiskSpace_LOW, SnapshotBytes: 1}, DiskNoRoom},
		{&proto.DiskSpace{Level: proto.DiskSpace_FULL, SnapshotBytes: 1}, DiskFull},
		{&proto.DiskSpace{Level: proto.DiskSpace_FULL}, DiskFull},
		{&proto.DiskSpace{Level: proto.DiskSpace_FULL, ReadOnly: true}, DiskReadOnly},
	} {
		if got := diskSpace(row.says); got != row.want {
			t.Errorf("%v: %q, want %q", row.says, got, row.want)
		}
	}
}
