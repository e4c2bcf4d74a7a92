package builtin

import (
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// takeResources is the part of pods/resize: what containers, and the pod as a whole,
// may consume. The containers themselves must be those that are there.
func takeResources(o *objects.Op, obj, sent, old tree.Object) error {
	spec := tree.Clone(old["spec"])
	sentSpec := tree.As(sent["spec"])
	tree.CopyField(spec, sentSpec, "resources")
	for _, list := range [...]string{"containers", "initContainers"} {
		merged, err := mergeResources(o, list, sentSpec[list], spec[list])
		if err != nil {
			return err
		}
		if merged != nil {
			spec[list] = merged
		}
	}
	obj["spec"] = spec
	if errs := validatePodResources(spec, tree.As(old["spec"]), field.NewPath("spec")); len(errs) > 0 {
		return o.Invalid(o.Info.Name, errs)
	}
	if qosClass(spec) != qosClass(tree.As(old["spec"])) {
		was := tree.Text(tree.As(old["status"]), "qosClass")
		return o.Invalid(o.Info.Name, field.ErrorList{field.Invalid(field.NewPath("spec"), was, "Pod QOS Class may not change as a result of resizing")})
	}
	return nil
}

func mergeResources(o *objects.Op, name string, sent, old any) ([]any, error) {
	now, _ := sent.([]any)
	was, _ := old.([]any)
	refused := func(why string) error {
		return status.Invalid(o.Resource.GVK().GroupKind(), o.Info.Name, field.ErrorList{field.Forbidden(field.NewPath("spec", name), why)})
	}
	if len(now) != len(was) {
		return nil, refused("containers may not be added or removed on resize")
	}
	var out []any
	for i := range was {
		x := tree.Clone(was[i])
		if tree.Text(tree.As(now[i]), "name") != tree.Text(x, "name") {
			return nil, refused("containers may not be renamed or reordered on resize")
		}
		tree.CopyField(x, tree.As(now[i]), "resources")
		tree.CopyField(x, tree.As(now[i]), "resizePolicy")
		out = append(out, x)
	}
	return out, nil
}
