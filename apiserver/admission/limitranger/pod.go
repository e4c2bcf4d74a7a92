package limitranger

import (
	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
)

// podOf is a Pod with nothing but what it asks for.
func podOf(spec tree.Object) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Spec.Containers = containersOf(spec["containers"])
	pod.Spec.InitContainers = containersOf(spec["initContainers"])
	if own := tree.As(spec["resources"]); own != nil {
		pod.Spec.Resources = &corev1.ResourceRequirements{Requests: ofPods(own["requests"]), Limits: ofPods(own["limits"])}
	}
	return pod
}

func containersOf(v any) []corev1.Container {
	list := tree.List(v)
	out := make([]corev1.Container, len(list))
	for i, c := range list {
		c := tree.As(c)
		out[i].Name = tree.Text(c, "name")
		out[i].Resources.Requests = listOf(tree.Field(c, "resources", "requests"))
		out[i].Resources.Limits = listOf(tree.Field(c, "resources", "limits"))
		if policy := corev1.ContainerRestartPolicy(tree.Text(c, "restartPolicy")); policy != "" {
			out[i].RestartPolicy = &policy
		}
	}
	return out
}

// ofPods is what of a Pod's own resources counts here: not its huge pages, which count where
// component-helpers adds up for schedulers.
func ofPods(v any) corev1.ResourceList {
	out := listOf(v)
	for name := range out {
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
			delete(out, name)
		}
	}
	return out
}

// listOf decodes quantities. What is none is left out: it does not pass validation.
func listOf(v any) corev1.ResourceList {
	m := tree.As(v)
	if len(m) == 0 {
		return nil
	}
	out := make(corev1.ResourceList, len(m))
	for name, v := range m {
		if q, err := tree.ParseQuantity(tree.Scalar(v)); err == nil {
			out[corev1.ResourceName(name)] = q
		}
	}
	return out
}
