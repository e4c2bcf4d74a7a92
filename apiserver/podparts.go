package apiserver

import (
	"fmt"
	"maps"

	"github.com/quorate/quorate/apiserver/status"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// mirrorAnnotation marks the pods that a kubelet has from a file of its own.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// takeEphemeralContainers is the part of pods/ephemeralcontainers: containers may be
// added to a pod that runs, and those that are there stay as they are.
func takeEphemeralContainers(c *call, obj, sent, old tree) error {
	const path = "spec.ephemeralContainers"
	if lookup(old, "metadata.annotations") != nil && asTree(lookup(old, "metadata.annotations"))[mirrorAnnotation] != nil {
		return c.invalid(c.info.Name, field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")})
	}
	now := byName(lookup(sent, path))
	var errs field.ErrorList
	was, _ := lookup(old, path).([]any)
	for _, x := range was {
		name := text(asTree(x), "name")
		switch {
		case now[name] == nil:
			errs = append(errs, field.Forbidden(dottedPath(path), fmt.Sprintf("existing ephemeral containers %q may not be removed\n", name)))
		case !treeEqual(c.defaulted(now[name]), x):
			errs = append(errs, field.Forbidden(dottedPath(path), fmt.Sprintf("existing ephemeral containers %q may not be changed\n", name)))
		}
	}
	errs = append(errs, ephemeralPaths(lookup(sent, path))...)
	if len(errs) > 0 {
		return c.invalid(c.info.Name, errs)
	}
	spec := maps.Clone(asTree(old["spec"]))
	carry(spec, asTree(sent["spec"]), "ephemeralContainers")
	obj["spec"] = spec
	return nil
}

// ephemeralPaths refuses paths within volumes: nobody has checked them when the pod was made.
func ephemeralPaths(containers any) (errs field.ErrorList) {
	all, _ := containers.([]any)
	for i, x := range all {
		mounts, _ := asTree(x)["volumeMounts"].([]any)
		for j, m := range mounts {
			for _, name := range [...]string{"subPath", "subPathExpr"} {
				if text(asTree(m), name) != "" {
					at := field.NewPath("spec", "ephemeralContainers").Index(i).Child("volumeMounts").Index(j).Child(name)
					errs = append(errs, field.Forbidden(at, "cannot be set for an Ephemeral Container"))
				}
			}
		}
	}
	return errs
}

// defaulted returns an ephemeral container as it is with defaults, which is
// what it is compared with.
func (c *call) defaulted(x any) any {
	model, err := c.model()
	if err != nil {
		return x
	}
	whole := tree{"metadata": tree{}, "spec": tree{"ephemeralContainers": []any{maps.Clone(asTree(x))}}}
	err = model.Default(whole)
	list, _ := lookup(whole, "spec.ephemeralContainers").([]any)
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
		out[text(asTree(x), "name")] = x
	}
	return out
}

// takeResources is the part of pods/resize: what containers, and the pod as a whole,
// may consume. The containers themselves must be those that are there.
func takeResources(c *call, obj, sent, old tree) error {
	spec := maps.Clone(asTree(old["spec"]))
	sentSpec := asTree(sent["spec"])
	carry(spec, sentSpec, "resources")
	for _, list := range [...]string{"containers", "initContainers"} {
		merged, err := c.mergeResources(list, sentSpec[list], spec[list])
		if err != nil {
			return err
		}
		if merged != nil {
			spec[list] = merged
		}
	}
	obj["spec"] = spec
	return nil
}

func (c *call) mergeResources(name string, sent, old any) ([]any, error) {
	now, _ := sent.([]any)
	was, _ := old.([]any)
	refused := func(why string) error {
		return status.Invalid(c.res.GVK().GroupKind(), c.info.Name, field.ErrorList{field.Forbidden(field.NewPath("spec", name), why)})
	}
	if len(now) != len(was) {
		return nil, refused("containers may not be added or removed on resize")
	}
	var out []any
	for i := range was {
		x := maps.Clone(asTree(was[i]))
		if text(asTree(now[i]), "name") != text(x, "name") {
			return nil, refused("containers may not be renamed or reordered on resize")
		}
		carry(x, asTree(now[i]), "resources")
		carry(x, asTree(now[i]), "resizePolicy")
		out = append(out, x)
	}
	return out, nil
}
