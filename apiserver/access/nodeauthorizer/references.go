package nodeauthorizer

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// references are what a Pod lets its node read in the Pod's namespace: for each object a letter of
// its kind and its name, between zero bytes. A Pod names a handful, and this is a third of a map.
type references string

const end = "\x00"

// referencesOf are those that upstream's graph has. A mirror Pod has none: who writes it is a
// kubelet, which must not give itself permissions.
func referencesOf(p *corev1.Pod) references {
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return ""
	}
	var b strings.Builder
	add := func(of kind, name string) {
		if name == "" || references(b.String()).has(of, name) {
			return
		}
		if b.Len() == 0 {
			b.WriteString(end)
		}
		b.WriteByte(byte(of))
		b.WriteString(name)
		b.WriteString(end)
	}
	add(account, p.Spec.ServiceAccountName)
	podutil.VisitPodSecretNames(p, func(name string) bool { add(secret, name); return true })
	podutil.VisitPodConfigmapNames(p, func(name string) bool { add(configMap, name); return true })
	for i := range p.Spec.Volumes {
		switch v := &p.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			add(claim, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			add(claim, ephemeral.VolumeClaimName(p, v))
		}
	}
	for i := range p.Spec.ResourceClaims {
		// An error says that the claim is yet to be made.
		if name, _, err := resourceclaim.Name(p, &p.Spec.ResourceClaims[i]); err == nil && name != nil {
			add(resourceClaim, *name)
		}
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil {
		add(resourceClaim, s.ResourceClaimName)
	}
	return references(b.String())
}

// needle is what references contain that name an object.
func needle(of kind, name string) string { return end + string(rune(of)) + name + end }

func (r references) has(of kind, name string) bool { return r.contains(needle(of, name)) }

func (r references) contains(needle string) bool { return strings.Contains(string(r), needle) }

// each calls f for the names of a kind until it returns false.
func (r references) each(of kind, f func(name string) bool) bool {
	for one := range strings.SplitSeq(string(r), end) {
		if one != "" && one[0] == byte(of) && !f(one[1:]) {
			return false
		}
	}
	return true
}
