package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// counts are what servers have counted since they started, all together.
type counts struct {
	codes map[string]float64             // answers, by their code, verb and resource: "504 PATCH deployments"
	took  map[string]map[float64]float64 // cumulative buckets of seconds, by the kind of request
	terms float64                        // Raft's term, or how many leaders etcd's members have seen
}

// kinds of requests, as clients wait for them. Those that last as long as the client wants are of none.
var kinds = map[string]string{
	"GET": "reads", "LIST": "reads", "POST": "writes", "PUT": "writes", "DELETE": "writes", "DELETECOLLECTION": "writes", "PATCH": "patches", "APPLY": "patches",
}

// read asks all servers what they have counted.
func (b *bench) read(ctx context.Context) (counts, error) {
	c := counts{codes: map[string]float64{}, took: map[string]map[float64]float64{}}
	for _, url := range b.metrics {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return c, err
		}
		a, err := b.client.Do(q)
		if err != nil {
			return c, err
		}
		text, err := io.ReadAll(a.Body)
		a.Body.Close()
		if err == nil && a.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s", a.Status)
		}
		if err == nil {
			err = c.add(text)
		}
		if err != nil {
			return c, fmt.Errorf("%s: %w", url, err)
		}
	}
	return c, nil
}

// add adds what one server says.
func (c *counts) add(text []byte) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return err
	}
	each := func(name string, do func(*dto.Metric, map[string]string)) {
		for _, m := range families[name].GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			do(m, labels)
		}
	}
	each("apiserver_request_total", func(m *dto.Metric, labels map[string]string) {
		c.codes[labels["code"]+" "+labels["verb"]+" "+labels["resource"]] += m.GetCounter().GetValue()
	})
	each("apiserver_request_duration_seconds", func(m *dto.Metric, labels map[string]string) {
		kind := kinds[labels["verb"]]
		if kind == "" || labels["subresource"] == "proxy" {
			return
		}
		if c.took[kind] == nil {
			c.took[kind] = map[float64]float64{}
		}
		for _, b := range m.GetHistogram().GetBucket() {
			c.took[kind][b.GetUpperBound()] += float64(b.GetCumulativeCount())
		}
	})
	each("quorate_raft_term", func(m *dto.Metric, _ map[string]string) { c.terms = max(c.terms, m.GetGauge().GetValue()) })
	each("etcd_server_leader_changes_seen_total", func(m *dto.Metric, _ map[string]string) { c.terms = max(c.terms, m.GetCounter().GetValue()) })
	return nil
}

// answers returns the answers since an earlier reading whose codes begin with prefix, and how many they are.
func (c counts) answers(since counts, prefix string) (of map[string]int, n int) {
	of = map[string]int{}
	for code, all := range c.codes {
		if more := int(all - since.codes[code]); more > 0 && strings.HasPrefix(code, prefix) {
			of[code] += more
			n += more
		}
	}
	return of, n
}

// quantile returns a quantile of the seconds that requests of a kind took since an earlier reading, as Prometheus estimates
// it within a bucket, and zero if there were none.
func (c counts) quantile(since counts, kind string, q float64) float64 {
	bounds, counted := []float64{}, map[float64]float64{}
	for bound, n := range c.took[kind] {
		bounds = append(bounds, bound)
		counted[bound] = n - since.took[kind][bound]
	}
	slices.Sort(bounds)
	if len(bounds) == 0 {
		return 0
	}
	rank, lower, before := q*counted[bounds[len(bounds)-1]], 0.0, 0.0
	for _, bound := range bounds {
		if n := counted[bound]; n >= rank && n > before {
			if math.IsInf(bound, 1) {
				return lower
			}
			return lower + (bound-lower)*(rank-before)/(n-before)
		}
		lower, before = bound, counted[bound]
	}
	return 0
}
