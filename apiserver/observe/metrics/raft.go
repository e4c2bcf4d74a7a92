package metrics

import (
	"fmt"

	metrics "github.com/hashicorp/go-metrics/compat"
	sink "github.com/hashicorp/go-metrics/compat/prometheus"
)

// raftSeries are the reports of the Raft library that are passed on: events, and
// what is sampled a few times per second.
var raftSeries = []string{
	"raft.thread", "raft.state", "raft.transition", "raft.peers", "raft.leader.lastContact", "raft.leader.oldestLogAge",
	"raft.snapshot", "raft.fsm.snapshot", "raft.fsm.restore", "raft.fsm.lastRestoreDuration", "raft.rpc.installSnapshot",
	"raft.rpc.requestVote",
}

// InstallRaftSink sends what the Raft library reports (raft_*) to this registry. It
// reports to a global of go-metrics, which its compat package chooses by a build tag;
// the sink goes through the same package, or the reports would be lost silently. Call it once per process: the last call wins.
func (m *Metrics) InstallRaftSink() error {
	s, err := sink.NewPrometheusSinkFrom(sink.PrometheusOpts{
		Registerer: m.registry,
		Expiration: 0, // a series that is silent for a while is not forgotten
		Name:       "quorate_raft_library",
	})
	if err != nil {
		return fmt.Errorf("make the Raft metrics sink: %w", err)
	}
	cfg := metrics.DefaultConfig("")
	cfg.EnableHostname = false
	cfg.EnableRuntimeMetrics = false // the Go collector has them
	// Per message and per batch the library reports a dozen samples, which cost
	// some percent of a write. These are the ones that people watch; commit and
	// fsync times are in our own series.
	cfg.FilterDefault = false
	cfg.AllowedPrefixes = raftSeries
	if _, err := metrics.NewGlobal(cfg, s); err != nil {
		return fmt.Errorf("install the Raft metrics sink: %w", err)
	}
	return nil
}
