package builtin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
)

// maxProfileName bounds the name of a profile on a node: it is a path there.
const maxProfileName = 4095

// copyAppArmor gives the containers of a new Pod the AppArmor profiles that annotations name:
// kubelets read fields alone. The warning is told here, because validated Pods have both.
func copyAppArmor(o *objects.Op, obj, old tree.Object) error {
	annotations := tree.As(tree.Field(obj, "metadata", "annotations"))
	spec := tree.As(obj["spec"])
	if old != nil || len(annotations) == 0 || tree.Field(spec, "os", "name") == "windows" {
		return nil
	}
	whole := tree.As(tree.Field(spec, "securityContext", "appArmorProfile"))
	var warnings []string
	for _, kind := range [...]string{"initContainers", "containers"} {
		containers := slices.Clone(tree.List(spec[kind]))
		for i, c := range containers {
			key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + tree.Text(tree.As(c), "name")
			annotation, ok := annotations[key].(string)
			if !ok || tree.Field(tree.As(c), "securityContext", "appArmorProfile") != nil {
				continue
			}
			profile := appArmorProfile(annotation)
			if name := tree.Text(profile, "localhostProfile"); strings.TrimSpace(name) != name || len(name) > maxProfileName {
				profile = nil
			}
			if profile != nil && whole != nil && tree.Equal(profile, whole) {
				continue
			}
			warnings = append(warnings, fmt.Sprintf(`metadata.annotations[%s]: deprecated since v1.30; use the "appArmorProfile" field instead`, key))
			if profile == nil {
				continue
			}
			changed := tree.Clone(c)
			security := tree.Clone(changed["securityContext"])
			security["appArmorProfile"], changed["securityContext"] = profile, security
			containers[i] = changed
		}
		if len(containers) > 0 {
			spec = tree.Clone(spec)
			spec[kind] = containers
		}
	}
	obj["spec"] = spec
	if o.Client {
		o.Warn(warnings)
	}
	return nil
}

// appArmorProfile is the field that an annotation stands for, nil if it stands for none.
func appArmorProfile(annotation string) tree.Object {
	profile, local := strings.CutPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	switch {
	case annotation == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return tree.Object{"type": string(corev1.AppArmorProfileTypeUnconfined)}
	case annotation == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return tree.Object{"type": string(corev1.AppArmorProfileTypeRuntimeDefault)}
	case local && profile != "":
		return tree.Object{"type": string(corev1.AppArmorProfileTypeLocalhost), "localhostProfile": profile}
	}
	return nil
}
