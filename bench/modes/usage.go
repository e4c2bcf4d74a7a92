package modes

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/host"
)

// The families of /metrics that say what Most Recent reads waited for.
const (
	seriesIndexCalls = "quorate_read_index_requests_total"
	seriesRounds     = "quorate_read_index_rounds_total"
	seriesIndex      = "quorate_read_index_wait_seconds"
	seriesWaitIndex  = `quorate_read_wait_seconds{for="index"}`
	seriesWaitLog    = `quorate_read_wait_seconds{for="log"}`
	seriesRoundTrip  = "etcd_network_peer_round_trip_time_seconds"
	seriesFsync      = "etcd_disk_wal_fsync_duration_seconds"
)

// usage is what the nodes and this process have counted and spent up to now.
type usage struct {
	at     time.Duration
	client time.Duration            // processor time of this process; zero if unknown
	nodes  map[string]time.Duration // of the nodes whose process is known
	series map[string]client.Metrics
	err    error
}

func (r *run) usage(ctx context.Context) *usage {
	u := &usage{at: r.clock.Now(), nodes: map[string]time.Duration{}, series: map[string]client.Metrics{}}
	if spent, err := host.CPUTimes([]int{os.Getpid()}); err == nil {
		u.client = spent[0]
	}
	for _, n := range r.cluster.Nodes {
		if n.PID != 0 {
			if spent, err := host.CPUTimes([]int{n.PID}); err == nil {
				u.nodes[n.Name] = spent[0]
			}
		}
	}
	for i, n := range r.all {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		metrics, err := r.writers.conns[i].Metrics(ctx)
		cancel()
		if err != nil && n.role == client.Server {
			continue // it has none of these, and may not show others
		}
		if err != nil {
			u.err = fmt.Errorf("read the metrics of %s: %w", n.Name, err)
			return u
		}
		u.series[n.Name] = metrics
	}
	return u
}
