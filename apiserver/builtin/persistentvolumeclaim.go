package builtin

import (
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/quota"
	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var claimStrategy = objects.Strategy{Validate: validateClaim, Warnings: warningsOf(warningsForClaim), Usage: usageOf(quota.VolumeClaims)}

// validateClaim refuses a claim that shrinks to what it has, or below: volumes do not shrink. A
// claim whose growth has failed may ask for less than it asked for, and still for more than it has.
func validateClaim(obj, old tree.Object) field.ErrorList {
	if old == nil {
		return nil
	}
	path := field.NewPath("spec", "resources", "requests", "storage")
	now, was := storageOf(obj, "spec", "resources", "requests"), storageOf(old, "spec", "resources", "requests")
	if now.Cmp(was) < 0 && now.Cmp(storageOf(old, "status", "capacity")) <= 0 {
		return field.ErrorList{field.Forbidden(path, "field can not be less than status.capacity")}
	}
	return nil
}

// storageOf is the storage of a list of resources, zero if there is none.
func storageOf(obj tree.Object, path ...string) resource.Quantity {
	q, _ := tree.ParseQuantity(tree.Scalar(tree.Field(tree.Field(obj, path...), "storage")))
	return q
}
