package churn

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// figure is one thing that a node has.
type figure struct {
	name, unit string
	perCycle   float64 // what one cycle may leave for good, if its kind says nothing else
	slack      float64 // what it differs by without any churn
}

// Indices of figures and of measures.
const (
	live = iota
	series
	goroutines
	descriptors
	files
	stored
	entries
	nFigures
)

var figures = [nFigures]figure{
	live:        {"live heap and stacks", "KiB", 4, 768},
	series:      {"series in /metrics", "", 0.2, 200},
	goroutines:  {"goroutines", "", 0.1, 15},
	descriptors: {"file descriptors", "", 0.1, 8},
	files:       {"files in the data directory", "", 0.05, 6},
	stored:      {"data beside the log", "KiB", 2, 1024},
	entries:     {"entries of the log", "", 0.2, 600},
}

// Series of /metrics.
const (
	versions    = "quorate_history_versions"
	events      = `apiserver_storage_objects{resource="events"}`
	firstIndex  = "quorate_log_first_index"
	newestIndex = "quorate_history_newest" // revisions are indices of the log
)

// mostVersions is how long the history of a cluster is that nobody uses.
const mostVersions = 60

// measure is what a node has.
type measure struct {
	figures  [nFigures]float64
	families map[string]int // series by the name of their metric
}

// ofLibrary reports whether upstream's library counts a metric by the name of the webhook or policy. It keeps
// the series of those that are deleted, some ten for each, in a kube-apiserver as here.
func ofLibrary(family string) bool {
	return strings.HasPrefix(family, "apiserver_admission_webhook_") || strings.HasPrefix(family, "apiserver_validating_admission_policy_check_") ||
		strings.HasPrefix(family, "apiserver_mutating_admission_policy_check_")
}

// measureOf is what a node has now, and whether something is still there that only time takes away. Events
// that have not expired and the history are such.
func measureOf(t *testing.T, n *cluster.Node) (m measure, left string) {
	t.Helper()
	usage := n.Usage(t)
	m.families = map[string]int{}
	m.figures[live], m.figures[goroutines], m.figures[descriptors] = float64(usage.Live)/1024, float64(usage.Goroutines), float64(n.Descriptors(t))
	values := map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(n.MustGet(t, "/metrics"))); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if !ok || name == "#" {
			continue
		}
		if family, _, _ := strings.Cut(name, "{"); !ofLibrary(family) {
			m.figures[series]++
			m.families[family]++
		}
		switch name {
		case versions, events, firstIndex, newestIndex:
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatalf("%s: %q: %v", n.Name, lines.Text(), err)
			}
			values[name] = v
		}
	}
	m.figures[entries] = values[newestIndex] - values[firstIndex]
	if values[versions] > mostVersions || values[events] > 0 {
		left = fmt.Sprintf("%s: %v versions in the history, %v events", n.Name, values[versions], values[events])
	}
	data := filepath.Join(n.Cluster.Dir, n.Name)
	err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // a snapshot that was just replaced
		}
		m.figures[files]++
		if info, err := d.Info(); err == nil && !strings.Contains(path, "/raft-log/") {
			m.figures[stored] += float64(info.Size()) / 1024
		}
		return nil
	})
	must.OK(t, err)
	return m, left
}

func (m measure) String() string {
	var b strings.Builder
	for i, f := range figures {
		fmt.Fprintf(&b, "%s %.0f %s; ", f.name, m.figures[i], f.unit)
	}
	return b.String()
}

// more says which metrics have more series than before.
func (m measure) more(before measure) string {
	var out []string
	for name, n := range m.families {
		if was := before.families[name]; n > was {
			out = append(out, fmt.Sprintf("%s %d", name, n-was))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
