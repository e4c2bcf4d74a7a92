package quota

import (
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/proto"
	corev1 "k8s.io/api/core/v1"
)

// Facts are what the scopes of quotas ask of an object. That of its kind is there because a
// scope such as NotTerminating is about Pods only, and nothing else is terminating either.
const (
	factKind           = "kind"
	factBestEffort     = string(corev1.ResourceQuotaScopeBestEffort)
	factCrossNamespace = string(corev1.ResourceQuotaScopeCrossNamespacePodAffinity)
	factPriority       = string(corev1.ResourceQuotaScopePriorityClass)
	factTerminating    = string(corev1.ResourceQuotaScopeTerminating)
	factVolumeClass    = string(corev1.ResourceQuotaScopeVolumeAttributesClass)
)

var (
	isPod           = &proto.Attribute{Name: factKind, Value: "pods"}
	isVolumeClaim   = &proto.Attribute{Name: factKind, Value: "persistentvolumeclaims"}
	isBestEffort    = &proto.Attribute{Name: factBestEffort}
	crossNamespaces = &proto.Attribute{Name: factCrossNamespace}
	isTerminating   = &proto.Attribute{Name: factTerminating}
)

// The facts of most Pods, shared.
var (
	plain           = []*proto.Attribute{isPod}
	bestEffort      = []*proto.Attribute{isBestEffort, isPod}
	ofVolumeClaim   = []*proto.Attribute{isVolumeClaim}
	podKinds        = []string{isPod.Value}
	volumeClaimKind = []string{isVolumeClaim.Value}
)

// podFacts are sorted by name: capitals come before what is not.
func podFacts(obj tree.Object) []*proto.Attribute {
	spec := tree.As(obj["spec"])
	best, class := podIsBestEffort(obj), tree.Text(spec, "priorityClassName")
	deadline, ok := tree.Int(spec["activeDeadlineSeconds"])
	terminating, crosses := ok && deadline >= 0, crossesNamespaces(spec)
	if class == "" && !terminating && !crosses {
		if best {
			return bestEffort
		}
		return plain
	}
	facts := make([]*proto.Attribute, 0, 5)
	if best {
		facts = append(facts, isBestEffort)
	}
	if crosses {
		facts = append(facts, crossNamespaces)
	}
	if class != "" {
		facts = append(facts, &proto.Attribute{Name: factPriority, Value: class})
	}
	if terminating {
		facts = append(facts, isTerminating)
	}
	return append(facts, isPod)
}

// podIsBestEffort reports whether no container asks for cpu or memory. What the status says
// of it is what was true at the create.
func podIsBestEffort(obj tree.Object) bool {
	if class := tree.Text(tree.As(obj["status"]), "qosClass"); class != "" {
		return class == string(corev1.PodQOSBestEffort)
	}
	spec := tree.As(obj["spec"])
	if whole := tree.As(spec["resources"]); whole != nil {
		return asksForNothing(whole)
	}
	for _, kind := range [...]string{"containers", "initContainers"} {
		for _, c := range tree.List(spec[kind]) {
			if !asksForNothing(tree.As(tree.As(c)["resources"])) {
				return false
			}
		}
	}
	return true
}

func asksForNothing(resources tree.Object) bool {
	for _, list := range [...]string{"requests", "limits"} {
		asks := tree.As(resources[list])
		for _, name := range [...]string{"cpu", "memory"} {
			if q, ok := quantityOf(asks[name]); ok && q.Sign() > 0 {
				return false
			}
		}
	}
	return true
}

func crossesNamespaces(spec tree.Object) bool {
	affinity := tree.As(spec["affinity"])
	if affinity == nil {
		return false
	}
	for _, kind := range [...]string{"podAffinity", "podAntiAffinity"} {
		rules := tree.As(affinity[kind])
		for _, t := range tree.List(rules["requiredDuringSchedulingIgnoredDuringExecution"]) {
			if termCrosses(tree.As(t)) {
				return true
			}
		}
		for _, t := range tree.List(rules["preferredDuringSchedulingIgnoredDuringExecution"]) {
			if termCrosses(tree.As(tree.As(t)["podAffinityTerm"])) {
				return true
			}
		}
	}
	return false
}

func termCrosses(term tree.Object) bool {
	_, selects := term["namespaceSelector"].(tree.Object)
	return selects || len(tree.List(term["namespaces"])) > 0
}

// volumeClaimFacts name the classes of attributes that a claim asks for, has, and changes to. While
// it changes its class, the quotas of both classes count it.
func volumeClaimFacts(spec, status tree.Object) []*proto.Attribute {
	facts := ofVolumeClaim
	for _, class := range [...]string{
		tree.Text(spec, "volumeAttributesClassName"),
		tree.Text(status, "currentVolumeAttributesClassName"),
		tree.Text(tree.As(status["modifyVolumeStatus"]), "targetVolumeAttributesClassName"),
	} {
		has := func(f *proto.Attribute) bool { return f.Name == factVolumeClass && f.Value == class }
		if class != "" && !slices.ContainsFunc(facts, has) {
			facts = append([]*proto.Attribute{{Name: factVolumeClass, Value: class}}, facts...)
		}
	}
	slices.SortFunc(facts[:len(facts)-1], func(a, b *proto.Attribute) int { return strings.Compare(a.Value, b.Value) })
	return facts
}

// splitFacts takes the further values of facts apart from the first ones.
func splitFacts(all []*proto.Attribute) (first, more []*proto.Attribute) {
	for i, f := range all {
		if i > 0 && all[i-1].Name == f.Name {
			more = append(more, f)
		} else {
			first = append(first, f)
		}
	}
	return first, more
}
