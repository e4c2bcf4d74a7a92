package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type readSeries struct {
	requests  *prometheus.CounterVec
	staleness *prometheus.HistogramVec
	versions  *prometheus.HistogramVec
	round     prometheus.Observer
	index     prometheus.Observer
	log       prometheus.Observer
}

func (s *readSeries) init(r *registrar) {
	s.requests = r.counter("quorate_read_requests_total", "Reads by the consistency that was asked for and this node's role.", "consistency", "node_role")
	s.staleness = r.histogram("quorate_read_staleness_seconds", "How long before an answer this node last knew that it was current.", stalenessBuckets, "consistency")
	s.versions = r.histogram("quorate_read_staleness_versions", "Log entries that an answer was known to be behind.", versionsBuckets, "consistency")
	s.round = r.histogram("quorate_read_index_wait_seconds", "Time of one read barrier, which several reads may share: on a follower, a question to the leader and its answer.", readIndexBuckets).WithLabelValues()
	wait := r.histogram("quorate_read_wait_seconds", "Time that Most Recent reads waited: for a read barrier of their own or shared (index), and then for the local state to reach it (log).", readIndexBuckets, "for")
	s.index, s.log = wait.WithLabelValues("index"), wait.WithLabelValues("log")
}

// Read counts one read. consistency is most-recent, any, not-older-than or exact;
// role is this node's. staleness and behind are observed for any alone: the other
// reads have none.
func (m *Metrics) Read(consistency, role string, staleness time.Duration, behind uint64) {
	m.reads.requests.WithLabelValues(consistency, role).Inc()
	if consistency == "any" {
		m.reads.staleness.WithLabelValues(consistency).Observe(staleness.Seconds())
		m.reads.versions.WithLabelValues(consistency).Observe(float64(behind))
	}
}

// ReadIndexWait is for raftstore.Store.Observe.
func (m *Metrics) ReadIndexWait(d time.Duration) { m.reads.round.Observe(d.Seconds()) }

// ReadWait is for consistency.Options.Observe.
func (m *Metrics) ReadWait(index, log time.Duration) {
	m.reads.index.Observe(index.Seconds())
	m.reads.log.Observe(log.Seconds())
}
