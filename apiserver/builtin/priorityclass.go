package builtin

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
	Validate: validatePriorityClass,
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

// validatePriorityClass keeps what the system needs out of users' hands: its names, and priorities
// as high as its own. A value cannot change, because Pods have it already.
func validatePriorityClass(obj, old tree.Object) (errs field.ErrorList) {
	value, _ := tree.Int(obj["value"])
	if old != nil {
		if was, _ := tree.Int(old["value"]); was != value {
			errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
		}
		return errs
	}
	name := tree.Text(tree.As(obj["metadata"]), "name")
	if strings.HasPrefix(name, systemPriorityPrefix) {
		standard, _ := obj["globalDefault"].(bool)
		if err := checkSystemPriorityClass(name, value, standard); err != nil {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"), "priority class names with '"+systemPriorityPrefix+"' prefix are reserved for system use only. error: "+err.Error()))
		}
	} else if value > highestUserPriority {
		errs = append(errs, field.Forbidden(field.NewPath("value"), fmt.Sprintf("maximum allowed value of a user defined priority is %v", highestUserPriority)))
	}
	return errs
}

// checkSystemPriorityClass reports how a class differs from that of the system that has its name.
func checkSystemPriorityClass(name string, value int64, standard bool) error {
	for _, c := range systemPriorityClasses {
		switch {
		case c.Name != name:
		case int64(c.Value) != value:
			return fmt.Errorf("value of %v PriorityClass must be %v", name, c.Value)
		case standard:
			return fmt.Errorf("globalDefault of %v PriorityClass must be %v", name, false)
		default:
			return nil
		}
	}
	return fmt.Errorf("%v is not a known system priority class", name)
}
