// Package alwayspullimages is upstream's plugin AlwaysPullImages: nodes pull the images of all Pods
// whenever they start them, so that who may not pull an image cannot run it where it is already.
package alwayspullimages

import (
	"context"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	upstream "k8s.io/apiserver/pkg/admission"
)

const always = string(corev1.PullAlways)

var containerLists = [...]string{"initContainers", "containers", "ephemeralContainers"}

// Plugin sets the pull policy of all images.
type Plugin struct{}

// Handles implements admission.Plugin.
func (Plugin) Handles(a *admission.Attributes) bool {
	return (a.Operation == admission.Create || a.Operation == admission.Update) && a.Is("", "pods")
}

// Admit implements admission.Mutator.
func (Plugin) Admit(_ context.Context, a *admission.Attributes) error {
	if oldImages(a) {
		return nil
	}
	spec := tree.Clone(a.Object["spec"])
	for _, name := range containerLists {
		if list := tree.List(spec[name]); len(list) > 0 {
			spec[name] = each(list, func(c tree.Object) { c["imagePullPolicy"] = always })
		}
	}
	if list := tree.List(spec["volumes"]); len(list) > 0 {
		spec["volumes"] = each(list, func(v tree.Object) {
			if v["image"] != nil {
				image := tree.Clone(v["image"])
				image["pullPolicy"] = always
				v["image"] = image
			}
		})
	}
	a.Object["spec"] = spec
	return nil
}

// each is a copy of a list of objects, each of which is a copy that was changed.
func each(list []any, change func(tree.Object)) []any {
	out := make([]any, len(list))
	for i, v := range list {
		one := tree.Clone(v)
		change(one)
		out[i] = one
	}
	return out
}

// oldImages reports whether a write is an update without any image that is new to the Pod.
func oldImages(a *admission.Attributes) bool {
	if a.Operation != admission.Update {
		return false
	}
	old := map[string]bool{}
	for _, image := range images(a.Old) {
		old[image] = true
	}
	for _, image := range images(a.Object) {
		if !old[image] {
			return false
		}
	}
	return true
}

func images(pod tree.Object) (out []string) {
	for _, name := range containerLists {
		for _, c := range tree.List(tree.Field(pod, "spec", name)) {
			out = append(out, tree.Text(tree.As(c), "image"))
		}
	}
	return out
}

// Validate implements admission.Validator: nothing behind this plugin has changed it back.
func (Plugin) Validate(_ context.Context, a *admission.Attributes) error {
	if oldImages(a) {
		return nil
	}
	var errs []error
	refuse := func(at *field.Path, policy string) {
		if policy != always {
			errs = append(errs, upstream.NewForbidden(a, field.NotSupported(at, corev1.PullPolicy(policy), []string{always})))
		}
	}
	path := field.NewPath("spec")
	for _, name := range containerLists {
		for i, c := range tree.List(tree.Field(a.Object, "spec", name)) {
			refuse(path.Child(name).Index(i).Child("imagePullPolicy"), tree.Text(tree.As(c), "imagePullPolicy"))
		}
	}
	for i, v := range tree.List(tree.Field(a.Object, "spec", "volumes")) {
		if image := tree.As(tree.As(v)["image"]); image != nil {
			refuse(path.Child("volumes").Index(i).Child("image", "pullPolicy"), tree.Text(image, "pullPolicy"))
		}
	}
	if len(errs) == 0 {
		return nil // and not an aggregate of none
	}
	return admission.Unexplained(utilerrors.NewAggregate(errs))
}
