package builtin

import (
	"fmt"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// mirrorAnnotation marks the pods that a kubelet has from a file of its own.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// takeEphemeralContainers is the part of pods/ephemeralcontainers: containers may be
// added to a pod that runs, and those that are there stay as they are.
func takeEphemeralContainers(o *objects.Op, obj, sent, old tree.Object) error {
	const path = "spec.ephemeralContainers"
	if tree.Lookup(old, "metadata.annotations") != nil && tree.As(tree.Lookup(old, "metadata.annotations"))[mirrorAnnotation] != nil {
		return o.Invalid(o.Info.Name, field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")})
	}
	now := byName(tree.Lookup(sent, path))
	var errs field.ErrorList
	was, _ := tree.Lookup(old, path).([]any)
	for _, x := range was {
		name := tree.Text(tree.As(x), "name")
		switch {
		case now[name] == nil:
			errs = append(errs, field.Forbidden(tree.Path(path), fmt.Sprintf("existing ephemeral containers %q may not be removed\n", name)))
		case !tree.Equal(defaulted(o, now[name]), x):
			errs = append(errs, field.Forbidden(tree.Path(path), fmt.Sprintf("existing ephemeral containers %q may not be changed\n", name)))
		}
	}
	errs = append(errs, ephemeralFields(tree.Lookup(sent, path))...)
	if len(errs) > 0 {
		return o.Invalid(o.Info.Name, errs)
	}
	spec := tree.Clone(old["spec"])
	tree.CopyField(spec, tree.As(sent["spec"]), "ephemeralContainers")
	obj["spec"] = spec
	return nil
}

// notEphemeral are the fields of containers that ephemeral ones do not have, in upstream's order.
var notEphemeral = [...]string{"ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"}

// ephemeralFields refuses what ephemeral containers cannot have: what a service needs, resources,
// and paths within volumes, which nobody has checked when the pod was made.
func ephemeralFields(containers any) (errs field.ErrorList) {
	const why = "cannot be set for an Ephemeral Container"
	for i, x := range tree.List(containers) {
		c, at := tree.As(x), field.NewPath("spec", "ephemeralContainers").Index(i)
		errs = append(errs, validateRequirements(tree.As(c["resources"]), validateContainerResourceName, at.Child("resources"))...)
		for _, name := range notEphemeral {
			if v := c[name]; v != nil && (name != "resources" || !isEmpty(v)) {
				errs = append(errs, field.Forbidden(at.Child(name), why))
			}
		}
		for j, m := range tree.List(c["volumeMounts"]) {
			for _, name := range [...]string{"subPath", "subPathExpr"} {
				if tree.Text(tree.As(m), name) != "" {
					errs = append(errs, field.Forbidden(at.Child("volumeMounts").Index(j).Child(name), why))
				}
			}
		}
	}
	return errs
}

// defaulted returns an ephemeral container as it is with defaults, which is
// what it is compared with.
func defaulted(o *objects.Op, x any) any {
	model, err := o.Model()
	if err != nil {
		return x
	}
	whole := tree.Object{"metadata": tree.Object{}, "spec": tree.Object{"ephemeralContainers": []any{tree.Clone(x)}}}
	err = model.Default(whole)
	list, _ := tree.Lookup(whole, "spec.ephemeralContainers").([]any)
	if err != nil || len(list) != 1 {
		return x
	}
	return list[0]
}

// byName indexes a list of objects by their names.
func byName(list any) map[string]any {
	out := map[string]any{}
	all, _ := list.([]any)
	for _, x := range all {
		out[tree.Text(tree.As(x), "name")] = x
	}
	return out
}
