package modes

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
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
	series map[string]map[string]float64
	err    error
}

func (r *run) usage(ctx context.Context) *usage {
	u := &usage{at: r.clock.Now(), nodes: map[string]time.Duration{}, series: map[string]map[string]float64{}}
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
		var buf bytes.Buffer
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		_, err := r.writers.conns[i].Do(ctx, client.Request{Method: "GET", Path: "/metrics", Header: client.Plain}, &buf)
		cancel()
		if err != nil && n.role == client.Server {
			continue // it has none of these, and may not show others
		}
		if err != nil {
			u.err = fmt.Errorf("read the metrics of %s: %w", n.Name, err)
			return u
		}
		u.series[n.Name] = parseMetrics(buf.Bytes())
	}
	return u
}

// parseMetrics reads Prometheus' text format into a map from name, with its labels
// as they are written, to value. Lines that it cannot read are left out.
func parseMetrics(text []byte) map[string]float64 {
	out := map[string]float64{}
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		cut := bytes.LastIndexByte(line, ' ')
		if len(line) == 0 || line[0] == '#' || cut < 0 {
			continue
		}
		if v, err := strconv.ParseFloat(string(line[cut+1:]), 64); err == nil {
			out[string(bytes.TrimSpace(line[:cut]))] = v
		}
	}
	return out
}

// grown is how much a counter of a node grew between two usages, all its label
// sets together when name has no labels.
func grown(was, is map[string]float64, name string) float64 {
	sum := 0.0
	for series, v := range is {
		if series == name || len(series) > len(name) && series[:len(name)] == name && series[len(name)] == '{' {
			sum += v - was[series]
		}
	}
	return sum
}

// observed is the number and the mean, in milliseconds, of what a histogram was
// told between two usages.
func observed(was, is map[string]float64, name string) (count int64, mean float64) {
	base, labels := name, ""
	if i := bytes.IndexByte([]byte(name), '{'); i >= 0 {
		base, labels = name[:i], name[i:]
	}
	n := grown(was, is, base+"_count"+labels)
	if n <= 0 {
		return 0, 0
	}
	return int64(n), grown(was, is, base+"_sum"+labels) / n * 1000
}
