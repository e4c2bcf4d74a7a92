package client

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
)

// Metrics are a server's, by their names with their labels as they are written.
type Metrics map[string]float64

// Metrics asks a server for its metrics.
func (c *Conn) Metrics(ctx context.Context) (Metrics, error) {
	var text bytes.Buffer
	_, err := c.Do(ctx, Request{Method: http.MethodGet, Path: "/metrics", Header: Plain}, &text)
	return ParseMetrics(text.Bytes()), err
}

// ParseMetrics reads Prometheus' text format. Lines that it cannot read are left out.
func ParseMetrics(text []byte) Metrics {
	out := Metrics{}
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

// Sum is a metric with all of its labels together, or with those that the name has.
func (m Metrics) Sum(name string) (sum float64) {
	for series, v := range m {
		if rest, ok := strings.CutPrefix(series, name); ok && (rest == "" || rest[0] == '{') {
			sum += v
		}
	}
	return sum
}

// Observed is the number and the mean, in milliseconds, of what a histogram was told between two
// times.
func Observed(was, is Metrics, name string) (count int64, mean float64) {
	base, labels := name, ""
	if i := strings.IndexByte(name, '{'); i >= 0 {
		base, labels = name[:i], name[i:]
	}
	grown := func(name string) float64 { return is.Sum(name) - was.Sum(name) }
	n := grown(base + "_count" + labels)
	if n <= 0 {
		return 0, 0
	}
	return int64(n), grown(base+"_sum"+labels) / n * 1000
}
