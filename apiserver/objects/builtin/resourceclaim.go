package builtin

import (
	"fmt"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/quota"
	"github.com/quorate/quorate/apiserver/types/tree"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var resourceClaimStrategy = objects.Strategy{ValidateWith: validateClaimAccess, Usage: usageOf(quota.ResourceClaims)}

// validateClaimAccess is adminAccess of the claim's spec, and of its status when that is written.
func validateClaimAccess(o *objects.Op, obj, old tree.Object) (field.ErrorList, error) {
	if o.Info.Subresource != "status" {
		return adminAccess("spec")(o, obj, old)
	}
	at := field.NewPath("status", "allocation", "devices", "results")
	granted := func(obj tree.Object) int {
		return firstWith(tree.List(tree.Field(obj, "status", "allocation", "devices", "results")), "adminAccess")
	}
	if i := granted(obj); i >= 0 && granted(old) < 0 {
		return mayAccess(o, at.Index(i).Child("adminAccess"))
	}
	return nil, nil
}

// adminAccess lets new objects ask for devices that are in use only in namespaces whose
// administrator allows it (KEP-5018). spec is where the claim's spec is. What is asked for cannot
// change.
func adminAccess(spec ...string) func(o *objects.Op, obj, old tree.Object) (field.ErrorList, error) {
	path := append(append([]string{}, spec...), "devices", "requests")
	return func(o *objects.Op, obj, old tree.Object) (field.ErrorList, error) {
		if old != nil {
			return nil, nil
		}
		for i, r := range tree.List(tree.Field(obj, path...)) {
			if tree.Field(r, "exactly", "adminAccess") == true {
				// The path is upstream's, of templates, too.
				return mayAccess(o, field.NewPath("spec", "devices", "requests").Index(i).Child("adminAccess"))
			}
		}
		return nil, nil
	}
}

// firstWith is the index of the first element whose field is true, -1 if there is none.
func firstWith(list []any, name string) int {
	for i, x := range list {
		if tree.As(x)[name] == true {
			return i
		}
	}
	return -1
}

func mayAccess(o *objects.Op, path *field.Path) (field.ErrorList, error) {
	v, err := o.Store.Current(objects.NamespacesTable, o.Info.ObjectNamespace)
	if err != nil {
		return nil, err
	}
	// Each write into a namespace is decided again when its labels change (objects/rules.go).
	if v != nil {
		if value, _ := v.Labels.Get(resourcev1.DRAAdminNamespaceLabelKey); value == "true" {
			return nil, nil
		}
	}
	return field.ErrorList{field.Forbidden(path, fmt.Sprintf("admin access to devices requires the `%s: true` label on the containing namespace", resourcev1.DRAAdminNamespaceLabelKey))}, nil
}
