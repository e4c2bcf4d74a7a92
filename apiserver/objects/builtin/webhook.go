package builtin

import (
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/tree"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// webhookStrategy is that of a kind of webhook configurations. static: names with the suffix
// of what comes from files cannot be written; otherwise they are warned of.
func webhookStrategy(resource string, static bool) *objects.Strategy {
	return &objects.Strategy{Validation: validatedLater{}, ValidateWith: func(o *objects.Op, obj, old tree.Object) (field.ErrorList, error) {
		errs, err := validateKept(o, resource, obj, old, "webhooks")
		return append(errs, reservedName(o, old, static)...), err
	}}
}
