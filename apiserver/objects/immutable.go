package objects

import (
	"fmt"

	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/tree"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// immutableErrors compares the fields that a kind declares immutable.
func immutableErrors(res *kinds.Resource, obj, old tree.Object) (errs field.ErrorList) {
	for _, path := range res.ImmutableFields {
		was, now := tree.Lookup(old, path), tree.Lookup(obj, path)
		if !tree.Equal(was, now) {
			errs = append(errs, field.Invalid(tree.Path(path), now, apivalidation.FieldImmutableErrorMsg))
		}
	}
	return append(errs, frozenErrors(res, obj, old)...)
}

// frozenErrors compares the fields of an object that was declared immutable as a
// whole.
func frozenErrors(res *kinds.Resource, obj, old tree.Object) (errs field.ErrorList) {
	if res.FrozenBy == "" || tree.Lookup(old, res.FrozenBy) != true {
		return nil
	}
	why := fmt.Sprintf("field is immutable when `%s` is set", res.FrozenBy)
	if tree.Lookup(obj, res.FrozenBy) != true {
		errs = append(errs, field.Forbidden(tree.Path(res.FrozenBy), why))
	}
	for _, path := range res.FrozenFields {
		if !tree.Equal(tree.Lookup(old, path), tree.Lookup(obj, path)) {
			errs = append(errs, field.Forbidden(tree.Path(path), why))
		}
	}
	return errs
}
