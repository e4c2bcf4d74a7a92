package builtin

import (
	"errors"
	"slices"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/tree"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// systemPriorityPrefix begins the names of the classes that every cluster has, and of no others.
	systemPriorityPrefix = "system-"
	highestUserPriority  = 1_000_000_000
	criticalPriority     = 2 * highestUserPriority
)

// systemPriorityClasses exist from the start. There are no others of their prefix.
var systemPriorityClasses = [...]schedulingv1.PriorityClass{
	{
		ObjectMeta: metav1.ObjectMeta{Name: "system-node-critical"}, Value: criticalPriority + 1000,
		Description: "Used for system critical pods that must not be moved from their current node.",
	},
	{
		ObjectMeta: metav1.ObjectMeta{Name: "system-cluster-critical"}, Value: criticalPriority,
		Description: "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
	},
}

// SystemPriorityClasses are the PriorityClasses that every cluster has. The slice is the caller's.
func SystemPriorityClasses() []schedulingv1.PriorityClass {
	return slices.Clone(systemPriorityClasses[:])
}

var priorityClassStrategy = objects.Strategy{
	Prepare: func(obj, old tree.Object) {
		if old == nil { // and nothing counts it up
			tree.As(obj["metadata"])["generation"] = int64(1)
		}
	},
	MayDelete: func(name string) error {
		if isSystemPriorityClass(name) {
			return apierrors.NewForbidden(schedulingv1.Resource("priorityclasses"), name, errors.New("this is a system priority class and cannot be deleted"))
		}
		return nil
	},
}

func isSystemPriorityClass(name string) bool {
	return slices.ContainsFunc(systemPriorityClasses[:], func(c schedulingv1.PriorityClass) bool { return c.Name == name })
}
