package node

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/controllers"
	"github.com/quorate/quorate/internal/must"
)

// TestControllers: the node that leads runs the controllers that its settings ask for, and its
// metrics have their names; a node that has ended runs none.
func TestControllers(t *testing.T) {
	c := alone(t)
	c.Controllers = []string{"*", "-garbage-collector", "-clusterrole-aggregation"}
	c.Fairness = false // then nothing makes the objects that configure it
	n := open(t, c)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := n.Run(t.Context()); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	must.OK(t, n.Ready(t.Context()))
	running := func() []string {
		families, err := n.metrics.Registry().Gather()
		must.OK(t, err)
		names := map[string]bool{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "running_managed_controllers" && m.GetGauge().GetValue() == 1 {
					names[m.GetLabel()[1].GetValue()] = true
				}
			}
		}
		return slices.Sorted(maps.Keys(names))
	}
	var want []string
	off := []controllers.Name{controllers.GarbageController, controllers.ClusterRoleAggregationController, controllers.FlowControlController}
	for _, name := range controllers.All {
		if !slices.Contains(off, name) {
			want = append(want, string(name))
		}
	}
	slices.Sort(want)
	for end := time.Now().Add(10 * time.Second); !slices.Equal(running(), want); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%q run, want %q", running(), want)
		}
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if got := running(); len(got) > 0 {
		t.Errorf("%q run after the end", got)
	}
}
