package builtin

import (
	"strconv"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/status"
	appsv1 "k8s.io/api/apps/v1"
)

var daemonSetStrategy = objects.Strategy{
	Fit: func(obj tree.Object) error {
		_, err := templateGeneration(obj)
		return err
	},
	Complete: readTemplateGeneration,
	Prepare:  inOrder(prepareTemplate, countTemplateGeneration),
}

// readTemplateGeneration checks the annotation that counts the versions of a DaemonSet's template,
// and writes 0 where there is none. Upstream keeps the number in a field that no served version
// has, and shows it as this annotation: so a PUT without it owns it, because it changes it.
func readTemplateGeneration(o *objects.Op, obj, _ tree.Object) error {
	_, err := templateGeneration(obj)
	if err != nil {
		return status.CannotBeHandled(o.Resource.GVK(), o.Resource.Kind, err)
	}
	if tree.Text(tree.As(tree.Field(obj, "metadata", "annotations")), appsv1.DeprecatedTemplateGeneration) == "" {
		annotateTemplateGeneration(obj, 0)
	}
	return nil
}

// countTemplateGeneration is what the annotation says in the end: 1 or what a new object came with,
// and one more for each change of the template.
func countTemplateGeneration(obj, old tree.Object) {
	from, least := obj, int64(1)
	if old != nil {
		from, least = old, 0
	}
	n, _ := templateGeneration(from) // obj's was checked
	n = max(n, least)
	if old != nil && !tree.Equal(tree.Field(obj, "spec", "template"), tree.Field(old, "spec", "template")) {
		n++
	}
	annotateTemplateGeneration(obj, n)
}

// templateGeneration is the number in the annotation, 0 without one.
func templateGeneration(obj tree.Object) (int64, error) {
	s, ok := tree.As(tree.Field(obj, "metadata", "annotations"))[appsv1.DeprecatedTemplateGeneration].(string)
	if !ok {
		return 0, nil
	}
	return strconv.ParseInt(s, 10, 64)
}

func annotateTemplateGeneration(obj tree.Object, n int64) {
	meta := tree.Clone(obj["metadata"])
	annotations := tree.Clone(meta["annotations"])
	annotations[appsv1.DeprecatedTemplateGeneration] = strconv.FormatInt(n, 10)
	meta["annotations"], obj["metadata"] = annotations, meta
}
