package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// StoreStats is the state of this node's store and of its part in Raft. Counts run
// from the start of the process.
type StoreStats struct {
	ClusterID string

	HasLeader bool
	IsLeader  bool
	Term      uint64
	// Commit and Applied are log indexes; what lies between is this node's lag.
	Commit, Applied uint64
	// Floor is the oldest revision from which a watch can start.
	Floor uint64
	// HistoryVersions and HistoryBytes are what the history window holds,
	// HistoryMaxBytes above what the floor moves early.
	HistoryVersions, HistoryBytes, HistoryMaxBytes int64
	// Staleness is how long ago this node last knew that it was current.
	Staleness time.Duration
	// LastContact is how long ago a follower heard from the leader.
	LastContact time.Duration

	LeaderChanges         uint64
	ProposalsPending      int64
	ProposalsFailed       int64
	ProposalsForwarded    int64
	ReadIndexes           int64
	ReadIndexRounds       uint64
	HeartbeatSendFailures uint64
	SnapshotsInstalled    uint64
	LogFirst              uint64 // index of the oldest entry in the log
	Watchers              int64
	Divergences           int64 // of members' states, seen by this node
	WrongStates           int   // members that stopped because their state was wrong
	LostEntries           int   // members that came back without entries that they had acknowledged
	DBBytes, DBBytesInUse uint64
	// FeatureVersion is the one that the cluster speaks; FeatureSupported this node's.
	FeatureVersion, FeatureSupported uint32
	// StoredBytes is what all objects count for in the storage limit, QuotaBytes that limit; 0: there is none.
	StoredBytes, QuotaBytes int64
	// DiskFree is what the file system has room for, in bytes; LogBytes what the log takes of it. The levels are those of this node's
	// disk and of the disks of the cluster: 0 where there is room, 1 for what makes nothing larger, 2 for compaction.
	DiskFree, LogBytes    int64
	DiskLevel, DisksLevel int
	Tables                []TableStats
	// Namespaces are those with most bytes.
	Namespaces []NamespaceStats
}

// TableStats is one table of the store.
type TableStats struct {
	Group, Resource string
	Objects, Bytes  int64
}

// NamespaceStats is what the objects of a namespace count for.
type NamespaceStats struct {
	Name  string
	Bytes int64
}

type storeSeries struct {
	stats atomic.Pointer[func() StoreStats]

	walFsync, backendCommit prometheus.Observer
	raftDelay               prometheus.Observer
	peerRTT                 *prometheus.HistogramVec
	peerSent, peerReceived  *prometheus.CounterVec
	peerFailures            *prometheus.CounterVec
	requestTime             *prometheus.HistogramVec
	requestTotal            *prometheus.CounterVec
	operations              sync.Map // operationKey -> *operation
}

// scalar is a series without labels that is read at scrape time.
type scalar struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*StoreStats) float64
}

func gaugeOf(name, help string, value func(*StoreStats) float64) scalar {
	return scalar{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, value}
}

func counterOf(name, help string, value func(*StoreStats) float64) scalar {
	return scalar{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, value}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

var scalars = []scalar{
	gaugeOf("etcd_server_has_leader", "Whether this node knows a leader.", func(s *StoreStats) float64 { return truth(s.HasLeader) }),
	gaugeOf("etcd_server_is_leader", "Whether this node is the leader.", func(s *StoreStats) float64 { return truth(s.IsLeader) }),
	counterOf("etcd_server_leader_changes_seen_total", "Changes of the leader seen.", func(s *StoreStats) float64 { return float64(s.LeaderChanges) }),
	gaugeOf("etcd_server_proposals_committed_total", "Index of the last committed log entry.", func(s *StoreStats) float64 { return float64(s.Commit) }),
	gaugeOf("etcd_server_proposals_applied_total", "Index of the last applied log entry.", func(s *StoreStats) float64 { return float64(s.Applied) }),
	gaugeOf("etcd_server_proposals_pending", "Writes that wait for their entry to be applied.", func(s *StoreStats) float64 { return float64(s.ProposalsPending) }),
	counterOf("etcd_server_proposals_failed_total", "Writes that failed or whose outcome is unknown.", func(s *StoreStats) float64 { return float64(s.ProposalsFailed) }),
	counterOf("etcd_server_heartbeat_send_failures_total", "Heartbeats that the leader failed to send.", func(s *StoreStats) float64 { return float64(s.HeartbeatSendFailures) }),
	gaugeOf("etcd_server_quota_backend_bytes", "Size at which the store stops accepting writes; 0 without a quota.", func(s *StoreStats) float64 { return float64(s.QuotaBytes) }),
	gaugeOf("quorate_stored_bytes", "Bytes that all objects count for in the storage limit (etcd_server_quota_backend_bytes).", func(s *StoreStats) float64 { return float64(s.StoredBytes) }),
	gaugeOf("quorate_disk_free_bytes", "Bytes that the file system of the data directory has room for.", func(s *StoreStats) float64 { return float64(s.DiskFree) }),
	gaugeOf("quorate_disk_level", "0: this node's disk has room; 1: for what makes nothing larger; 2: for compaction only.", func(s *StoreStats) float64 { return float64(s.DiskLevel) }),
	gaugeOf("quorate_cluster_disk_level", "As quorate_disk_level, of the disks that a majority has, as far as this node knows.", func(s *StoreStats) float64 { return float64(s.DisksLevel) }),
	gaugeOf("quorate_log_bytes", "Bytes of the files of the log, without their reserve.", func(s *StoreStats) float64 { return float64(s.LogBytes) }),
	gaugeOf("etcd_mvcc_db_total_size_in_bytes", "Size of the state file, with its reserve.", func(s *StoreStats) float64 { return float64(s.DBBytes) }),
	gaugeOf("etcd_mvcc_db_total_size_in_use_in_bytes", "Bytes of the state file without its free pages and the reserve behind them.", func(s *StoreStats) float64 { return float64(s.DBBytesInUse) }),
	gaugeOf("quorate_raft_term", "Current term.", func(s *StoreStats) float64 { return float64(s.Term) }),
	gaugeOf("quorate_follower_lag_entries", "Log entries known to be committed and not applied here.", func(s *StoreStats) float64 {
		return float64(s.Commit - min(s.Applied, s.Commit))
	}),
	gaugeOf("quorate_log_first_index", "Index of the oldest entry in the log. A member that has nothing from there on needs a snapshot.", func(s *StoreStats) float64 { return float64(s.LogFirst) }),
	gaugeOf("quorate_staleness_seconds", "How long ago this node last knew that it was current.", func(s *StoreStats) float64 { return s.Staleness.Seconds() }),
	gaugeOf("quorate_leader_last_contact_seconds", "How long ago this node heard from the leader.", func(s *StoreStats) float64 { return s.LastContact.Seconds() }),
	gaugeOf("quorate_history_floor", "Oldest revision from which a watch can start.", func(s *StoreStats) float64 { return float64(s.Floor) }),
	gaugeOf("quorate_history_versions", "Versions in the history window.", func(s *StoreStats) float64 { return float64(s.HistoryVersions) }),
	gaugeOf("quorate_history_bytes", "Bytes of the versions in the history window.", func(s *StoreStats) float64 { return float64(s.HistoryBytes) }),
	gaugeOf("quorate_history_max_bytes", "Bytes of history above which its floor moves early.", func(s *StoreStats) float64 { return float64(s.HistoryMaxBytes) }),
	gaugeOf("quorate_history_newest", "Newest revision of this node.", func(s *StoreStats) float64 { return float64(s.Applied) }),
	gaugeOf("quorate_watchers", "Open watches on the store.", func(s *StoreStats) float64 { return float64(s.Watchers) }),
	counterOf("quorate_forwarded_requests_total", "Writes that this node sent to the leader.", func(s *StoreStats) float64 { return float64(s.ProposalsForwarded) }),
	counterOf("quorate_read_index_requests_total", "Reads that needed a read barrier.", func(s *StoreStats) float64 { return float64(s.ReadIndexes) }),
	counterOf("quorate_read_index_rounds_total", "Read barrier rounds; several reads share one.", func(s *StoreStats) float64 { return float64(s.ReadIndexRounds) }),
	counterOf("quorate_state_divergences_total", "Differences between members' states that this node has seen; anything but 0 is an emergency.", func(s *StoreStats) float64 { return float64(s.Divergences) }),
	gaugeOf("quorate_members_with_lost_entries", "Members that came back without entries that they had acknowledged, as this node knows, and that are not removed yet.", func(s *StoreStats) float64 { return float64(s.LostEntries) }),
	gaugeOf("quorate_members_with_wrong_state", "Members that have stopped because their state was wrong, and that are not removed yet.", func(s *StoreStats) float64 { return float64(s.WrongStates) }),
	counterOf("quorate_snapshots_installed_total", "Snapshots received from another node.", func(s *StoreStats) float64 { return float64(s.SnapshotsInstalled) }),
}

var (
	sizeDesc         = prometheus.NewDesc("apiserver_storage_size_bytes", "Size of the state file, with its reserve.", []string{"storage_cluster_id"}, nil)
	featureDesc      = prometheus.NewDesc("quorate_feature_version", "Feature version: what the cluster speaks, and what this node supports.", []string{"of"}, nil)
	objectsDesc      = prometheus.NewDesc("apiserver_storage_objects", "Stored objects by resource.", []string{"resource"}, nil)
	resourceDesc     = prometheus.NewDesc("quorate_resource_stored_bytes", "Bytes that the objects of a resource count for in the storage limit.", []string{"group", "resource"}, nil)
	namespaceDesc    = prometheus.NewDesc("quorate_namespace_stored_bytes", "Bytes that the objects of a namespace count for in the storage limit: the 100 namespaces with most.", []string{"namespace"}, nil)
	groupObjectsDesc = prometheus.NewDesc("apiserver_resource_objects", "Stored objects by group and resource.", []string{"group", "resource"}, nil)
)

func (s *storeSeries) init(r *registrar) {
	s.walFsync = r.histogram("etcd_disk_wal_fsync_duration_seconds", "Time of a write of the Raft log, fsync included.", diskBuckets).WithLabelValues()
	s.backendCommit = r.histogram("etcd_disk_backend_commit_duration_seconds", "Time of a flush of the state file.", diskBuckets).WithLabelValues()
	s.raftDelay = r.histogram("quorate_raft_scheduling_delay_seconds", "How long Raft waited for a processor when it could run, measured ten times a second.", delayBuckets).WithLabelValues()
	s.peerRTT = r.histogram("etcd_network_peer_round_trip_time_seconds", "Round trips to other nodes.", peerBuckets, "To")
	s.peerSent = r.counter("etcd_network_peer_sent_bytes_total", "Bytes sent to other nodes.", "To")
	s.peerReceived = r.counter("etcd_network_peer_received_bytes_total", "Bytes received from other nodes.", "From")
	s.peerFailures = r.counter("etcd_network_peer_sent_failures_total", "Failed sends to other nodes.", "To")
	s.requestTime = r.histogram("etcd_request_duration_seconds", "Time of store operations.", requestBuckets, "operation", "group", "resource")
	s.requestTotal = r.counter("etcd_requests_total", "Store operations.", "operation", "group", "resource")
	r.add(s)
}

// SetStore tells where the state of the store is read at each scrape. Until then
// the store's series are absent.
func (m *Metrics) SetStore(stats func() StoreStats) { m.store.stats.Store(&stats) }

// Describe implements prometheus.Collector.
func (s *storeSeries) Describe(ch chan<- *prometheus.Desc) {
	for _, x := range scalars {
		ch <- x.desc
	}
	ch <- sizeDesc
	ch <- featureDesc
	ch <- objectsDesc
	ch <- groupObjectsDesc
	ch <- resourceDesc
	ch <- namespaceDesc
}

// Collect implements prometheus.Collector.
func (s *storeSeries) Collect(ch chan<- prometheus.Metric) {
	read := s.stats.Load()
	if read == nil {
		return
	}
	stats := (*read)()
	for _, x := range scalars {
		ch <- prometheus.MustNewConstMetric(x.desc, x.kind, x.value(&stats))
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(sizeDesc, float64(stats.DBBytes), stats.ClusterID)
	gauge(featureDesc, float64(stats.FeatureVersion), "cluster")
	gauge(featureDesc, float64(stats.FeatureSupported), "supported")
	for _, t := range stats.Tables {
		name := t.Resource
		if t.Group != "" {
			name += "." + t.Group
		}
		gauge(objectsDesc, float64(t.Objects), name)
		gauge(groupObjectsDesc, float64(t.Objects), t.Group, t.Resource)
		gauge(resourceDesc, float64(t.Bytes), t.Group, t.Resource)
	}
	for _, n := range stats.Namespaces {
		gauge(namespaceDesc, float64(n.Bytes), n.Name)
	}
}

// LogWrite is told how long a write of the Raft log took, fsync included.
func (m *Metrics) LogWrite(d time.Duration) { m.store.walFsync.Observe(d.Seconds()) }

// BackendCommit is told how long a flush of the state file took.
func (m *Metrics) BackendCommit(d time.Duration) { m.store.backendCommit.Observe(d.Seconds()) }

// RaftDelay is for raftstore.Store.ObserveSchedulingDelay.
func (m *Metrics) RaftDelay(d time.Duration) { m.store.raftDelay.Observe(d.Seconds()) }

// PeerRoundTrip is for raftstore.Store.ObserveRoundTrips.
func (m *Metrics) PeerRoundTrip(node string, d time.Duration) {
	m.store.peerRTT.WithLabelValues(node).Observe(d.Seconds())
}

// Peer returns the series of one other node, for the transport to keep.
func (m *Metrics) Peer(node string) *Peer {
	return &Peer{
		sent:     m.store.peerSent.WithLabelValues(node),
		received: m.store.peerReceived.WithLabelValues(node),
		failures: m.store.peerFailures.WithLabelValues(node),
	}
}

// Peer counts the traffic with one other node.
type Peer struct {
	sent, received, failures prometheus.Counter
}

// Sent counts bytes sent to the node.
func (p *Peer) Sent(bytes int) { p.sent.Add(float64(bytes)) }

// Received counts bytes received from the node.
func (p *Peer) Received(bytes int) { p.received.Add(float64(bytes)) }

// Failed counts a failed send to the node.
func (p *Peer) Failed() { p.failures.Inc() }

type operationKey struct{ operation, group, resource string }

type operation struct {
	total prometheus.Counter
	time  prometheus.Observer
}

// StoreOperation counts one operation on the store, under etcd's names. operation
// is get, list, create, update or delete.
func (m *Metrics) StoreOperation(name, group, resource string, d time.Duration) {
	key := operationKey{name, group, resource}
	x, ok := m.store.operations.Load(key)
	if !ok {
		x, _ = m.store.operations.LoadOrStore(key, &operation{
			total: m.store.requestTotal.WithLabelValues(name, group, resource),
			time:  m.store.requestTime.WithLabelValues(name, group, resource),
		})
	}
	o := x.(*operation)
	o.total.Inc()
	o.time.Observe(d.Seconds())
}
