package builtin

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"

	"github.com/quorate/quorate/apiserver/tree"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// warningsOf is a strategy's, of an object as it will be.
func warningsOf(f func(obj tree.Object) []string) func(obj, old tree.Object) []string {
	return func(obj, _ tree.Object) []string { return f(obj) }
}

func annotationsOf(obj tree.Object) tree.Object {
	return tree.As(tree.Field(obj, "metadata", "annotations"))
}

func warningsForService(obj tree.Object) (out []string) {
	spec := tree.As(obj["spec"])
	if _, set := annotationsOf(obj)[corev1.DeprecatedAnnotationTopologyAwareHints]; set {
		out = append(out, "annotation "+corev1.DeprecatedAnnotationTopologyAwareHints+" is deprecated, please use "+corev1.AnnotationTopologyMode+" instead")
	}
	kind := corev1.ServiceType(tree.Text(spec, "type"))
	cluster := tree.Text(spec, "clusterIP")
	headless, external := kind == corev1.ServiceTypeClusterIP && cluster == corev1.ClusterIPNone, kind == corev1.ServiceTypeExternalName
	addresses := func(name string) {
		for i, ip := range tree.List(spec[name]) {
			out = append(out, warningsForIP(tree.Scalar(ip), func() string { return fmt.Sprintf("spec.%s[%d]", name, i) })...)
		}
	}
	if cluster != "" && cluster != corev1.ClusterIPNone && !external {
		addresses("clusterIPs")
	}
	ips, balancer := tree.List(spec["externalIPs"]), tree.Text(spec, "loadBalancerIP")
	if headless && balancer != "" {
		out = append(out, "spec.loadBalancerIP is ignored for headless services")
	}
	if headless && len(ips) > 0 {
		out = append(out, "spec.externalIPs is ignored for headless services")
	}
	if headless && tree.Text(spec, "sessionAffinity") != string(corev1.ServiceAffinityNone) {
		out = append(out, "spec.SessionAffinity is ignored for headless services")
	}
	addresses("externalIPs")
	if len(ips) > 0 && !headless && !external {
		out = append(out, "spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	}
	if balancer != "" {
		out = append(out, warningsForIP(balancer, func() string { return "spec.loadBalancerIP" })...)
	}
	for i, block := range tree.List(spec["loadBalancerSourceRanges"]) {
		out = append(out, warningsForBlock(block, func() string { return fmt.Sprintf("spec.loadBalancerSourceRanges[%d]", i) })...)
	}
	if external && len(ips) > 0 {
		out = append(out, `spec.externalIPs is ignored when spec.type is "ExternalName"`)
	}
	if !external && tree.Text(spec, "externalName") != "" {
		out = append(out, `spec.externalName is ignored when spec.type is not "ExternalName"`)
	}
	if tree.Text(spec, "trafficDistribution") == corev1.ServiceTrafficDistributionPreferClose {
		out = append(out, fmt.Sprintf("spec.trafficDistribution: %q is deprecated; use %q", corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone))
	}
	return out
}

// warningsForBlock are those of a block of addresses, which validation may not have looked at.
func warningsForBlock(v any, at func() string) []string {
	block := tree.Scalar(v)
	if len(validation.IsValidCIDRForLegacyField(nil, block, false, nil)) > 0 {
		return nil
	}
	return validation.GetWarningsForCIDR(field.NewPath(at()), block)
}

const ingressClassAnnotation = "kubernetes.io/ingress.class"

// warningsForIngress: only a new one is looked at.
func warningsForIngress(obj, old tree.Object) []string {
	_, annotated := annotationsOf(obj)[ingressClassAnnotation]
	if old != nil || !annotated || tree.Field(obj, "spec", "ingressClassName") != nil {
		return nil
	}
	return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", ingressClassAnnotation)}
}

const storageClassDeprecated = `metadata.annotations[` + corev1.BetaStorageClassAnnotation + `]: deprecated since v1.8; use "storageClassName" attribute instead`

func warningsForClaim(obj tree.Object) (out []string) {
	if _, set := annotationsOf(obj)[corev1.BetaStorageClassAnnotation]; set {
		out = append(out, storageClassDeprecated)
	}
	return append(out, warningsForClaimSpec(tree.As(obj["spec"]), func() string { return "spec" })...)
}

func warningsForClaimSpec(spec tree.Object, at func() string) (out []string) {
	for _, of := range [...]string{"requests", "limits"} {
		if q, yes := fractional(tree.As(tree.Field(spec, "resources", of)), "storage"); yes {
			out = append(out, fmt.Sprintf("%s.resources.%s[storage]: fractional byte value %q is invalid, must be an integer", at(), of, q))
		}
	}
	return out
}

func warningsForVolume(obj tree.Object) (out []string) {
	annotations, spec := annotationsOf(obj), tree.As(obj["spec"])
	if _, set := annotations[corev1.BetaStorageClassAnnotation]; set {
		out = append(out, storageClassDeprecated)
	}
	if _, set := annotations[corev1.MountOptionAnnotation]; set {
		out = append(out, `metadata.annotations[`+corev1.MountOptionAnnotation+`]: deprecated since v1.31; use "mountOptions" attribute instead`)
	}
	if tree.Text(spec, "persistentVolumeReclaimPolicy") == string(corev1.PersistentVolumeReclaimRecycle) {
		out = append(out, "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
	}
	for i, term := range tree.List(tree.Field(spec, "nodeAffinity", "required", "nodeSelectorTerms")) {
		out = append(out, warningsForNodes(tree.As(term), false, func() string { return fmt.Sprintf("spec.nodeAffinity.required.nodeSelectorTerms[%d]", i) })...)
	}
	for _, d := range [...]struct{ name, why string }{
		{"cephfs", "deprecated in v1.28, non-functional in v1.31+"},
		{"photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"},
		{"scaleIO", "deprecated in v1.16, non-functional in v1.22+"},
		{"storageos", "deprecated in v1.22, non-functional in v1.25+"},
		{"glusterfs", "deprecated in v1.25, non-functional in v1.26+"},
		{"rbd", "deprecated in v1.28, non-functional in v1.31+"},
	} {
		if spec[d.name] == nil {
			continue
		}
		if d.name == "storageos" {
			d.name = "storageOS" // so upstream spells it
		}
		out = append(out, "spec."+d.name+": "+d.why)
	}
	return out
}

func warningsForStorageClass(obj tree.Object) (out []string) {
	for i, topology := range tree.List(obj["allowedTopologies"]) {
		for j, e := range tree.List(tree.As(topology)["matchLabelExpressions"]) {
			if why, yes := deprecatedNodeLabels[tree.Text(tree.As(e), "key")]; yes {
				out = append(out, fmt.Sprintf("allowedTopologies[%d].matchLabelExpressions[%d].key: %s", i, j, why))
			}
		}
	}
	return out
}

func warningsForStorageCapacity(obj tree.Object) []string {
	nodes := tree.As(obj["nodeTopology"])
	out := warningsForNodes(nodes, false, func() string { return "nodeTopology" })
	labels := tree.As(nodes["matchLabels"])
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if why, yes := deprecatedNodeLabels[k]; yes {
			out = append(out, fmt.Sprintf("nodeTopology.matchLabels.%s: %s", k, why))
		}
	}
	return out
}

func warningsForRuntimeClass(obj tree.Object) (out []string) {
	selector := tree.As(tree.Field(obj, "scheduling", "nodeSelector"))
	for _, k := range slices.Sorted(maps.Keys(selector)) {
		if why, yes := deprecatedNodeLabels[k]; yes {
			out = append(out, "scheduling.nodeSelector: "+why)
		}
	}
	return out
}

func warningsForNetworkPolicy(obj tree.Object) (out []string) {
	for _, way := range [...]struct{ rules, peers string }{{"ingress", "from"}, {"egress", "to"}} {
		for i, rule := range tree.List(tree.Field(obj, "spec", way.rules)) {
			for j, peer := range tree.List(tree.As(rule)[way.peers]) {
				block := tree.As(tree.As(peer)["ipBlock"])
				if block == nil {
					continue
				}
				at := func() string { return fmt.Sprintf("spec.%s[%d].%s[%d].ipBlock", way.rules, i, way.peers, j) }
				out = append(out, warningsForBlock(block["cidr"], func() string { return at() + ".cidr" })...)
				for k, except := range tree.List(block["except"]) {
					out = append(out, warningsForBlock(except, func() string { return fmt.Sprintf("%s.except[%d]", at(), k) })...)
				}
			}
		}
	}
	return out
}

func warningsForNode(obj tree.Object) (out []string) {
	spec := tree.As(obj["spec"])
	if spec["configSource"] != nil {
		out = append(out, "spec.configSource: the feature is removed")
	}
	if tree.Text(spec, "externalID") != "" {
		out = append(out, "spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	for i, block := range tree.List(spec["podCIDRs"]) {
		out = append(out, warningsForBlock(block, func() string { return fmt.Sprintf("spec.podCIDRs[%d]", i) })...)
	}
	return out
}

// warningsForSecret: the key of a certificate is its own.
func warningsForSecret(obj tree.Object) []string {
	if tree.Text(obj, "type") != string(corev1.SecretTypeTLS) {
		return nil
	}
	data := tree.As(obj["data"])
	decode := func(name string) []byte {
		out, _ := base64.StdEncoding.DecodeString(tree.Text(data, name)) // the model has checked it
		return out
	}
	if _, err := tls.X509KeyPair(decode(corev1.TLSCertKey), decode(corev1.TLSPrivateKeyKey)); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// warningsForQuota: only a new one is looked at.
func warningsForQuota(obj, old tree.Object) (out []string) {
	if old != nil {
		return nil
	}
	hard := tree.As(tree.Field(obj, "spec", "hard"))
	for _, name := range [...]string{"cpu", "memory", "storage", "ephemeral-storage"} {
		requested := "requests." + name
		if _, set := hard[requested]; !set && (name == "cpu" || name == "memory") {
			requested = name
		}
		request, err := tree.ParseQuantity(tree.Scalar(hard[requested]))
		limit, err2 := tree.ParseQuantity(tree.Scalar(hard["limits."+name]))
		if err == nil && err2 == nil && request.Cmp(limit) > 0 {
			out = append(out, fmt.Sprintf("ResourceQuota %s (%s) should be less than limits.%s (%s)", requested, request.String(), name, limit.String()))
		}
	}
	return out
}

// withoutFirstGeneration is for kinds whose objects have no generation until they change.
func withoutFirstGeneration(obj, old tree.Object) {
	if old == nil {
		delete(tree.As(obj["metadata"]), "generation")
	}
}
