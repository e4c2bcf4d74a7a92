package controllers

import (
	"testing"

	"github.com/quorate/quorate/internal/must"
	schedulingv1 "k8s.io/api/scheduling/v1"
)

// TestPriorityClasses: the classes of the system come, and one that is there stays as it is.
func TestPriorityClasses(t *testing.T) {
	e := newEnv(t, Config{Controllers: []Name{BootstrapPriorityClassesController}})
	mine := &schedulingv1.PriorityClass{Value: 2_000_000_000, Description: "mine"}
	mine.Name = "system-cluster-critical"
	must.OK(t, e.client.Create(t.Context(), priorityClasses, "", mine))
	e.run()
	e.await("the classes of the system", func() string {
		var node, cluster schedulingv1.PriorityClass
		if err := e.client.Get(t.Context(), priorityClasses, "", "system-node-critical", &node); err != nil {
			return err.Error()
		}
		must.OK(t, e.client.Get(t.Context(), priorityClasses, "", "system-cluster-critical", &cluster))
		if node.Value != 2_000_001_000 || node.PreemptionPolicy == nil || cluster.Description != "mine" {
			t.Fatalf("node %+v, cluster %+v", node, cluster)
		}
		return ""
	})
}
