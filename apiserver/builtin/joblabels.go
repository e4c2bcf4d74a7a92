package builtin

import (
	"reflect"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
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
// the Job's too: they are if it had none of its own.
func labelledByTemplate(obj tree.Object) bool {
	own := tree.As(tree.Field(obj, "metadata", "labels"))
	labels := tree.As(tree.Field(obj, "spec", "template", "metadata", "labels"))
	return len(own) == 0 || reflect.ValueOf(own).Pointer() == reflect.ValueOf(labels).Pointer()
}
