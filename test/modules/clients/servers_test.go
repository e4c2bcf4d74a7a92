package clients

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/quorate/quorate/test/harness/cluster"
)

// served is what servers have counted of the reads of collections.
type served struct {
	lists   int // answered in any way
	watches int // answered 200: those that have ended and those that are open
	refused map[string]int
}

func (s served) String() string {
	return fmt.Sprintf("%d lists, %d watches, refused: %v", s.lists, s.watches, s.refused)
}

func (s *served) add(o served) {
	s.lists += o.lists
	s.watches += o.watches
	for code, n := range o.refused {
		if s.refused == nil {
			s.refused = map[string]int{}
		}
		s.refused[code] += n
	}
}

// servers adds up what the nodes count over all lives of their processes.
type servers struct {
	c     *cluster.Cluster
	ended served
}

// scrape reads the counters of a process.
func scrape(t *testing.T, n *cluster.Node) served {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(n.MustGet(t, "/metrics")))
	if err != nil {
		t.Fatalf("%s: metrics: %v", n.Name, err)
	}
	s := served{refused: map[string]int{}}
	for _, m := range families["apiserver_request_total"].GetMetric() {
		l := map[string]string{}
		for _, p := range m.GetLabel() {
			l[p.GetName()] = p.GetValue()
		}
		count, ours := int(m.GetCounter().GetValue()), l["resource"] == "configmaps" || l["resource"] == "pods" || l["resource"] == "secrets"
		switch {
		case !ours || l["verb"] != "LIST" && l["verb"] != "WATCH":
			continue
		case l["verb"] == "LIST":
			s.lists += count
		case l["code"] == "200":
			s.watches += count
		}
		if l["code"] != "200" {
			s.refused[l["verb"]+" "+l["code"]] += count
		}
	}
	for _, m := range families["apiserver_longrunning_requests"].GetMetric() {
		s.watches += int(m.GetGauge().GetValue())
	}
	return s
}

// total is what all processes of the cluster have counted so far.
func (s *servers) total(t *testing.T) served {
	t.Helper()
	sum := served{}
	sum.add(s.ended)
	for _, n := range s.c.Nodes() {
		sum.add(scrape(t, n))
	}
	return sum
}

// end keeps what a process has counted, right before it ends.
func (s *servers) end(t *testing.T, n *cluster.Node) {
	t.Helper()
	s.ended.add(scrape(t, n))
}
