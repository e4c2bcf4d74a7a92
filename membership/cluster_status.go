package membership

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/proto"
)

// ClusterStatus asks every member for its status. It needs no quorum: members
// that do not answer are rows with an error. Differences between their states are logged and counted.
func (m *Manager) ClusterStatus(ctx context.Context) (ClusterStatus, error) {
	out, conf, answers, err := m.ask(ctx)
	if err == nil {
		m.examine(conf, answers)
	}
	return out, err
}

// Look is ClusterStatus for those who ask all the time: what is wrong is logged and counted elsewhere.
func (m *Manager) Look(ctx context.Context) (ClusterStatus, error) {
	out, _, _, err := m.ask(ctx)
	return out, err
}

func (m *Manager) ask(ctx context.Context) (ClusterStatus, Configuration, map[proto.NodeID]statusAnswer, error) {
	conf, members, err := m.members()
	if err != nil {
		return ClusterStatus{}, conf, nil, err
	}
	if len(members) == 0 { // not part of a cluster yet
		self := m.self()
		self.Voter = false
		members = []*proto.Member{self}
		conf.Servers = []Server{{ID: m.id.ID(), Address: m.opt.PeerAddress}}
	}
	answers := m.askAll(ctx, conf.Servers)
	out := mergeStatus(members, answers)
	statuses := []*proto.NodeStatus{m.raft.Status(ctx)}
	for _, a := range answers {
		if a.err == nil {
			statuses = append(statuses, a.status)
		}
	}
	lost := lostEntries(statuses...)
	for i := range out.Members {
		out.Members[i].LostEntries = lost[out.Members[i].ID]
	}
	out.WrongStates = m.WrongStates()
	out.ClusterID, out.AnsweredBy = m.id.Cluster(), m.id.ID()
	if why := m.waiting.Load(); why != nil {
		out.Waiting = *why
	}
	if m.opt.Notices != nil {
		out.Notices = m.opt.Notices(out.Members)
	}
	return out, conf, answers, nil
}

// mergeStatus makes the table out of the answers.
func mergeStatus(members []*proto.Member, answers map[proto.NodeID]statusAnswer) ClusterStatus {
	out := ClusterStatus{Members: []MemberStatus{}}
	var commit, leaderTerm uint64
	for id, a := range answers {
		if a.err != nil {
			continue
		}
		commit = max(commit, a.status.Commit)
		out.FeatureVersion = max(out.FeatureVersion, a.status.ClusterFeatureVersion)
		// A leader that was deposed and does not know it reports an older term.
		if a.status.Role == "leader" && a.status.Term >= leaderTerm {
			out.Leader, leaderTerm = id, a.status.Term
		}
	}
	for _, p := range members {
		id := proto.NodeID(p.NodeId)
		row := MemberStatus{MemberInfo: memberInfo(p, out.Leader), LastContactMS: -1}
		if p.Voter {
			out.Voters++
		}
		a, asked := answers[id]
		switch {
		case !asked:
			row.Error = "not asked"
		case a.err != nil:
			row.Error = a.err.Error()
		default:
			fillRow(&row, a.status, commit)
			if p.Voter {
				out.LiveVoters++
			}
		}
		out.Members = append(out.Members, row)
	}
	out.Diverged = diverged(answers)
	out.Quorum = out.Voters > 0 && out.LiveVoters >= out.Voters/2+1
	slices.SortFunc(out.Members, func(a, b MemberStatus) int {
		return strings.Compare(a.Name+"\x00"+string(a.ID), b.Name+"\x00"+string(b.ID))
	})
	return out
}

func fillRow(row *MemberStatus, st *proto.NodeStatus, commit uint64) {
	row.Role, row.Term, row.Commit, row.Applied = st.Role, st.Term, st.Commit, st.Applied
	row.LastLogIndex, row.LastContactMS, row.Floor = st.LastLogIndex, st.LastContactMs, st.Floor
	row.DBBytes, row.Version, row.StartedUnix, row.LeaderID = st.DbBytes, st.Version, st.StartedUnix, st.LeaderId
	row.FeatureVersion = st.FeatureVersion
	row.DiskSpace = diskSpace(st.Disk)
	if n := len(st.Hashes); n > 0 {
		row.StateHash, row.StateHashAt = fmt.Sprintf("%016x", st.Hashes[n-1].Hash), st.Hashes[n-1].Applied
	}
	if row.Name == "" {
		row.Name = st.Name
	}
	if row.APIAddress == "" {
		row.APIAddress = st.ApiAddress
	}
	if commit > st.Applied {
		row.Lag = commit - st.Applied
	}
}

func diskSpace(d *proto.DiskSpace) DiskSpace {
	switch {
	case d.GetReadOnly():
		return DiskReadOnly
	case d.GetLevel() == proto.DiskSpace_FULL:
		return DiskFull
	case d.GetSnapshotBytes() > 0:
		return DiskNoRoom
	case d.GetLevel() == proto.DiskSpace_LOW:
		return DiskLow
	case d.GetOnReserve():
		return DiskOnReserve
	}
	return ""
}

func memberInfo(p *proto.Member, leader proto.NodeID) MemberInfo {
	return MemberInfo{
		ID: proto.NodeID(p.NodeId), Name: p.Name, PeerAddress: p.PeerAddress, APIAddress: p.ApiAddress,
		Voter: p.Voter, Leader: leader != "" && p.NodeId == string(leader),
	}
}
