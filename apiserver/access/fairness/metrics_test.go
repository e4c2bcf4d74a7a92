package fairness

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/quorate/quorate/internal/must"
)

var update = flag.Bool("update", false, "rewrite testdata")

func gather(t testing.TB, c *Controller) []*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewRegistry()
	must.OK(t, registry.Register(c))
	families, err := registry.Gather()
	must.OK(t, err)
	return families
}

// TestContract compares names, labels and buckets with testdata/contract.txt, which
// dashboards and alerts written for upstream rely on.
func TestContract(t *testing.T) {
	c, class := limited(1, 1, 1, 1)
	k := class("u")
	var one, two Ticket
	k.Enter(t.Context(), &one, k.Write(30), time.Second, false)
	k.Enter(t.Context(), &two, One, time.Millisecond, true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var three Ticket
		k.Enter(t.Context(), &three, One, time.Minute, false)
		three.Release()
	}()
	for l := c.levels["test"]; ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		waiting := l.waiting
		l.mu.Unlock()
		if waiting == 1 {
			break
		}
	}
	var lines []string
	for _, f := range gather(t, c) {
		m := f.GetMetric()[0]
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		line := fmt.Sprintf("%s %s {%s}", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ","))
		for _, b := range m.GetHistogram().GetBucket() {
			line += fmt.Sprintf(" %g", b.GetUpperBound())
		}
		lines = append(lines, line)
	}
	one.Release()
	<-done
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		must.OK(t, os.WriteFile("testdata/contract.txt", []byte(got), 0o644))
	}
	want, err := os.ReadFile("testdata/contract.txt")
	must.OK(t, err)
	if got != string(want) {
		t.Errorf("the families differ from testdata/contract.txt (run with -update and read the difference):\n%s", got)
	}
}
