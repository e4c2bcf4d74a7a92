package validation

import (
	"fmt"
	"slices"

	"github.com/quorate/quorate/apiserver/types/tree"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/core"
)

// Upstream refuses a change of what cannot be changed with the differences, in lines of JSON. To find
// them takes time by the square of the lines: 33 s for a Pod of 340 KB in which every second
// line has changed, and nobody can interrupt it. So for an object whose spec has more than mostDiffed values
// such a change is refused here, with the same field and reason and without the differences. What
// upstream finds besides is not told then.

// mostDiffed is how many values, those inside others included, a spec may have for its differences to be
// told: some hundred milliseconds.
const mostDiffed = 2000

const undiffed = "\n(it is too large for the differences to be shown)"

// crowded reports whether the spec of an object has more than mostDiffed values.
func crowded(obj tree.Object) bool { return valuesLeft(obj["spec"], mostDiffed) < 0 }

// valuesLeft is what is left of so many when those of v have been counted; negative, it ends early.
func valuesLeft(v any, left int) int {
	left--
	switch v := v.(type) {
	case tree.Object:
		for _, x := range v {
			if left = valuesLeft(x, left); left < 0 {
				return left
			}
		}
	case []any:
		for _, x := range v {
			if left = valuesLeft(x, left); left < 0 {
				return left
			}
		}
	}
	return left
}

// fixedPod refuses changes of a Pod's spec that no Pod can make, and of containers for debugging.
func fixedPod(subresource string, p, old *core.Pod) *field.Error {
	spec := field.NewPath("spec")
	switch subresource {
	case "":
		gated := len(old.Spec.SchedulingGates) > 0
		if !apiequality.Semantic.DeepEqual(fixedOf(&p.Spec, gated), fixedOf(&old.Spec, gated)) {
			return field.Forbidden(spec, "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"+
				"`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"+
				"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"+undiffed)
		}
	case "ephemeralcontainers":
		now := make(map[string]*core.EphemeralContainer, len(p.Spec.EphemeralContainers))
		for i := range p.Spec.EphemeralContainers {
			now[p.Spec.EphemeralContainers[i].Name] = &p.Spec.EphemeralContainers[i]
		}
		for i := range old.Spec.EphemeralContainers {
			was := &old.Spec.EphemeralContainers[i]
			if c := now[was.Name]; c != nil && !apiequality.Semantic.DeepEqual(c, was) {
				return field.Forbidden(spec.Child("ephemeralContainers"), fmt.Sprintf("existing ephemeral containers %q may not be changed", was.Name)+undiffed)
			}
		}
	}
	return nil
}

// fixedOf is a Pod's spec without what an update can change. gated Pods can change where they go.
func fixedOf(s *core.PodSpec, gated bool) *core.PodSpec {
	out := *s
	out.Containers, out.InitContainers = slices.Clone(s.Containers), slices.Clone(s.InitContainers)
	for _, list := range [][]core.Container{out.Containers, out.InitContainers} {
		for i := range list {
			list[i].Image = ""
		}
	}
	out.ActiveDeadlineSeconds, out.TerminationGracePeriodSeconds, out.Tolerations, out.SchedulingGates = nil, nil, nil, nil
	if !gated {
		return &out
	}
	out.NodeSelector = nil
	if out.Affinity != nil {
		if a := *out.Affinity; a.PodAffinity == nil && a.PodAntiAffinity == nil {
			out.Affinity = nil
		} else {
			a.NodeAffinity = nil
			out.Affinity = &a
		}
	}
	return &out
}

// fixedClaim refuses changes of a claim's spec that no claim can make.
func fixedClaim(subresource string, c, old *core.PersistentVolumeClaim) *field.Error {
	of := func(s core.PersistentVolumeClaimSpec) core.PersistentVolumeClaimSpec {
		s.VolumeName, s.StorageClassName, s.VolumeAttributesClassName, s.Resources.Requests = "", nil, nil, nil
		return s
	}
	if subresource != "" || apiequality.Semantic.DeepEqual(of(c.Spec), of(old.Spec)) && sameRequests(c, old) {
		return nil
	}
	return field.Forbidden(field.NewPath("spec"), "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"+undiffed)
}

// sameRequests reports whether two claims request the same but for storage.
func sameRequests(c, old *core.PersistentVolumeClaim) bool {
	others := func(from, in core.ResourceList) bool {
		for name, n := range from {
			if other, ok := in[name]; name != core.ResourceStorage && (!ok || n.Cmp(other) != 0) {
				return false
			}
		}
		return true
	}
	return others(c.Spec.Resources.Requests, old.Spec.Resources.Requests) && others(old.Spec.Resources.Requests, c.Spec.Resources.Requests)
}

// fixedVolume refuses another source of a volume.
func fixedVolume(subresource string, pv, old *core.PersistentVolume) *field.Error {
	of := func(s core.PersistentVolumeSource) core.PersistentVolumeSource {
		if s.CSI != nil { // may be set
			csi := *s.CSI
			csi.ControllerExpandSecretRef = nil
			s.CSI = &csi
		}
		return s
	}
	if subresource != "" || apiequality.Semantic.DeepEqual(of(pv.Spec.PersistentVolumeSource), of(old.Spec.PersistentVolumeSource)) {
		return nil
	}
	return field.Forbidden(field.NewPath("spec", "persistentvolumesource"), "spec.persistentvolumesource is immutable after creation"+undiffed)
}
