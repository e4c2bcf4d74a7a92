package node

import (
	"time"

	"github.com/quorate/quorate/apiserver/observe/metrics"
	"github.com/quorate/quorate/apiserver/types/kinds"
)

// storeStats gathers what the metrics say about the store.
func (n *Node) storeStats() metrics.StoreStats {
	st, c := n.store.Status(), n.store.Counters()
	out := metrics.StoreStats{
		ClusterID: st.ClusterId, HasLeader: st.LeaderId != "", IsLeader: n.store.IsLeader(),
		Term: st.Term, Commit: st.Commit, Applied: st.Applied, Floor: st.Floor,
		Staleness: n.store.Staleness(), LastContact: time.Duration(max(0, st.LastContactMs)) * time.Millisecond,
		LeaderChanges: c.LeaderChanges, HeartbeatSendFailures: uint64(c.HeartbeatsFailed), ProposalsPending: c.PendingProposals, ProposalsFailed: c.FailedProposals,
		ProposalsForwarded: c.ForwardedProposals, ReadIndexes: c.ReadIndexes, ReadIndexRounds: c.ReadIndexRounds,
		SnapshotsInstalled: c.SnapshotsInstalled, LogFirst: c.FirstIndex, Watchers: c.Watchers, Divergences: n.manager.Divergences(), WrongStates: len(n.manager.WrongStates()), LostEntries: len(st.Lost), DBBytes: st.DbBytes, DBBytesInUse: uint64(n.store.DBBytesInUse()),
	}
	out.FeatureVersion, out.FeatureSupported = n.store.Features()
	out.HistoryVersions, out.HistoryBytes = n.store.State().History()
	out.HistoryMaxBytes = n.store.HistoryLimit()
	out.StoredBytes, out.QuotaBytes = n.store.Storage()
	own, disks := n.store.Disk()
	out.DiskFree, out.DiskLevel, out.DisksLevel, out.LogBytes = own.GetFreeBytes(), int(own.GetLevel()), int(disks.GetLevel()), n.store.LogBytes()
	out.Namespaces = largest(n.store.State().Namespaces(), mostNamespaces)
	for name, t := range n.store.State().Tables() {
		resource, ofAPI := kinds.OfTable(name)
		if !ofAPI {
			continue
		}
		live, bytes := t.Live()
		out.Tables = append(out.Tables, metrics.TableStats{Group: resource.Group, Resource: resource.Resource, Objects: live, Bytes: bytes})
	}
	return out
}
