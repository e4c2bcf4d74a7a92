package builtin

import (
	"reflect"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/tree"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// labelJob gives a Job without labels those of its template, the very same map: what is
// generated for the one is the other's too.
func labelJob(_ *objects.Op, obj, _ tree.Object) error {
	meta := tree.As(obj["metadata"])
	labels := tree.As(tree.Field(obj, "spec", "template", "metadata", "labels"))
	if len(tree.As(meta["labels"])) == 0 && len(labels) > 0 {
		meta["labels"] = labels
	}
	return nil
}

// labelledByTemplate reports whether labels that are generated for the template of a Job are
// the Job's too before it is validated: they are if it got those of its template.
func labelledByTemplate(obj tree.Object) bool {
	own := tree.As(tree.Field(obj, "metadata", "labels"))
	labels := tree.As(tree.Field(obj, "spec", "template", "metadata", "labels"))
	return len(own) > 0 && reflect.ValueOf(own).Pointer() == reflect.ValueOf(labels).Pointer()
}

// labelByTemplate gives a new Job that still has no labels those that were generated for its template. Upstream does so
// when it reads the object back, so they are not validated as the Job's.
func labelByTemplate(o *objects.Op, obj, old tree.Object) (field.ErrorList, error) {
	if old != nil {
		return nil, nil
	}
	return nil, labelJob(o, obj, nil)
}
