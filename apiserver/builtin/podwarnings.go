package builtin

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/tree"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What a Pod, or the template of Pods, says that is valid and probably not meant, in upstream's
// words and order (pkg/api/pod/warnings.go). Where upstream's order is that of a map, ours is
// that of its keys. Paths are written only where there is something to say: most Pods have nothing.

// podWarnings is one walk over a Pod or a template.
type podWarnings struct {
	at       string // what stands before the fields of the Pod: nothing, or as "spec.template."
	meta     tree.Object
	spec     tree.Object
	warnings []string
}

// maxPodWarnings bounds what is said of one Pod: clients are sent 4 KiB at most, and a Pod may
// have as many faults as bytes, or more where they come in pairs.
const maxPodWarnings = 200

// full reports that no more is said.
func (w *podWarnings) full() bool { return len(w.warnings) >= maxPodWarnings }

func (w *podWarnings) add(format string, args ...any) {
	if !w.full() {
		w.warnings = append(w.warnings, w.at+fmt.Sprintf(format, args...))
	}
}

// warningsForPod are those of the Pod, or of the template, whose fields are those of a path, which
// is empty or ends with a dot.
func warningsForPod(at string, pod tree.Object) []string {
	w := &podWarnings{at: at, meta: tree.As(pod["metadata"]), spec: tree.As(pod["spec"])}
	w.nodes()
	w.spread()
	w.annotations()
	w.volumes()
	w.warnings = append(w.warnings, warningsForPaths(tree.List(w.spec["volumes"]))...)
	w.duplicates("hostAliases", "ip", "ip")
	w.duplicates("imagePullSecrets", "name", "name")
	for i, s := range tree.List(w.spec["imagePullSecrets"]) {
		if name := tree.Text(tree.As(s), "name"); name == "" {
			w.add("spec.imagePullSecrets[%d].name: invalid empty name %q", i, name)
		}
	}
	for _, name := range [...]string{"memory", "ephemeral-storage"} {
		if q, yes := fractional(tree.As(w.spec["overhead"]), name); yes {
			w.add("spec.overhead[%s]: fractional byte value %q is invalid, must be an integer", name, q)
		}
	}
	w.containers()
	w.ports()
	if n, _ := tree.Int(w.spec["terminationGracePeriodSeconds"]); n < 0 {
		w.add("spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1")
	}
	w.affinity()
	w.addresses()
	return w.warnings
}

// deprecatedNodeLabels are labels that select nodes no more, or soon.
var deprecatedNodeLabels = map[string]string{
	"beta.kubernetes.io/arch":                       `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":                         `deprecated since v1.14; use "kubernetes.io/os" instead`,
	"failure-domain.beta.kubernetes.io/region":      `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	"failure-domain.beta.kubernetes.io/zone":        `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	"beta.kubernetes.io/instance-type":              `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
	"app.kubernetes.io/created-by":                  "deprecated since v1.9",
	"scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
	"node-role.kubernetes.io/master":                `use "node-role.kubernetes.io/control-plane" instead`,
}

// nodes is about the nodes that a Pod selects.
func (w *podWarnings) nodes() {
	if selector := tree.As(w.spec["nodeSelector"]); len(selector) > 0 {
		for _, k := range slices.Sorted(maps.Keys(selector)) {
			if why, yes := deprecatedNodeLabels[k]; yes {
				w.add("spec.nodeSelector[%s]: %s", k, why)
			}
		}
	}
	affinity := tree.As(tree.Field(w.spec, "affinity", "nodeAffinity"))
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
	for i, term := range tree.List(tree.Field(affinity, required, "nodeSelectorTerms")) {
		w.warnings = append(w.warnings, warningsForNodes(tree.As(term), false, func() string {
			return fmt.Sprintf("%sspec.affinity.nodeAffinity.%s.nodeSelectorTerms[%d]", w.at, required, i)
		})...)
	}
	for i, term := range tree.List(affinity[preferred]) {
		w.warnings = append(w.warnings, warningsForNodes(tree.As(tree.As(term)["preference"]), true, func() string {
			return fmt.Sprintf("%sspec.affinity.nodeAffinity.%s[%d].preference", w.at, preferred, i)
		})...)
	}
}

// warningsForNodes are those of a term of a node selector.
func warningsForNodes(term tree.Object, values bool, at func() string) (out []string) {
	for i, e := range tree.List(term["matchExpressions"]) {
		key := tree.Text(tree.As(e), "key")
		if why, yes := deprecatedNodeLabels[key]; yes {
			out = append(out, fmt.Sprintf("%s.matchExpressions[%d].key: %s is %s", at(), i, key, why))
		}
		if !values {
			continue
		}
		for j, v := range tree.List(tree.As(e)["values"]) {
			for _, msg := range validation.IsValidLabelValue(tree.Scalar(v)) {
				out = append(out, fmt.Sprintf("%s.matchExpressions[%d].values[%d]: %s is invalid, %s", at(), i, j, tree.Scalar(v), msg))
			}
		}
	}
	return out
}

func (w *podWarnings) spread() {
	for i, c := range tree.List(w.spec["topologySpreadConstraints"]) {
		key := tree.Text(tree.As(c), "topologyKey")
		if why, yes := deprecatedNodeLabels[key]; yes {
			w.add("spec.topologySpreadConstraints[%d].topologyKey: %s is %s", i, key, why)
		}
		if tree.As(c)["labelSelector"] == nil {
			w.add("spec.topologySpreadConstraints[%d].labelSelector: a null labelSelector results in matching no pod", i)
		}
	}
}

// deprecatedPodAnnotations were replaced by fields.
var deprecatedPodAnnotations = [...]struct{ key, why string }{
	{"scheduler.alpha.kubernetes.io/critical-pod", `non-functional in v1.16+; use the "priorityClassName" field instead`},
	{"security.alpha.kubernetes.io/sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
	{"security.alpha.kubernetes.io/unsafe-sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
}

func (w *podWarnings) annotations() {
	annotations := tree.As(w.meta["annotations"])
	if len(annotations) == 0 {
		return
	}
	for _, d := range deprecatedPodAnnotations {
		if _, set := annotations[d.key]; set {
			w.add("metadata.annotations[%s]: %s", d.key, d.why)
		}
	}
}

// deprecatedVolumes are volumes that kubelets mount no more.
var deprecatedVolumes = [...]struct{ name, why string }{
	{"photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"},
	{"gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"},
	{"scaleIO", "deprecated in v1.16, non-functional in v1.22+"},
	{"flocker", "deprecated in v1.22, non-functional in v1.25+"},
	{"storageos", "deprecated in v1.22, non-functional in v1.25+"},
	{"quobyte", "deprecated in v1.22, non-functional in v1.25+"},
	{"glusterfs", "deprecated in v1.25, non-functional in v1.26+"},
	{"ephemeral", ""},
	{"cephfs", "deprecated in v1.28, non-functional in v1.31+"},
	{"rbd", "deprecated in v1.28, non-functional in v1.31+"},
}

func (w *podWarnings) volumes() {
	for i, v := range tree.List(w.spec["volumes"]) {
		for _, d := range deprecatedVolumes {
			source := tree.As(tree.As(v)[d.name])
			switch {
			case source == nil:
			case d.name == "ephemeral":
				claim := tree.As(tree.Field(source, "volumeClaimTemplate", "spec"))
				w.warnings = append(w.warnings, warningsForClaimSpec(claim, func() string {
					return fmt.Sprintf("%sspec.volumes[%d].ephemeral.volumeClaimTemplate.spec", w.at, i)
				})...)
			case d.name == "storageos":
				w.add("spec.volumes[%d].storageOS: %s", i, d.why) // so upstream spells it
			default:
				w.add("spec.volumes[%d].%s: %s", i, d.name, d.why)
			}
		}
	}
}

// duplicates finds items of a list that have the same value in a field.
func (w *podWarnings) duplicates(list, name, what string) {
	items := tree.List(w.spec[list])
	if len(items) < 2 {
		return
	}
	seen := make(map[string]bool, len(items))
	for i, item := range items {
		value := tree.Text(tree.As(item), name)
		if seen[value] {
			w.add("spec.%s[%d].%s: duplicate %s %q", list, i, name, what, value)
		}
		seen[value] = true
	}
}

// fractional finds an amount of bytes that is not whole. Only what may be one is parsed.
func fractional(list tree.Object, name string) (string, bool) {
	v, set := list[name]
	if !set {
		return "", false
	}
	text := tree.Scalar(v)
	if !strings.ContainsAny(text, ".numeE") {
		return "", false
	}
	q, err := tree.ParseQuantity(text)
	if err != nil || q.MilliValue()%1000 == 0 {
		return "", false
	}
	return q.String(), true
}

// eachContainer calls f with all containers, in upstream's order, and the field that they are in.
func (w *podWarnings) eachContainer(f func(kind string, i int, c tree.Object)) {
	for _, kind := range [...]string{"initContainers", "containers", "ephemeralContainers"} {
		for i, c := range tree.List(w.spec[kind]) {
			f(kind, i, tree.As(c))
		}
	}
}

func (w *podWarnings) containers() {
	annotations := tree.As(w.meta["annotations"])
	if _, set := annotations[corev1.SeccompPodAnnotationKey]; set && tree.Field(w.spec, "securityContext", "seccompProfile") == nil {
		w.add(`metadata.annotations[%s]: non-functional in v1.27+; use the "seccompProfile" field instead`, corev1.SeccompPodAnnotationKey)
	}
	w.eachContainer(func(kind string, i int, c tree.Object) {
		if len(annotations) > 0 {
			w.profiles(annotations, c)
		}
		w.bytes(kind, i, tree.As(c["resources"]))
		w.env(kind, i, tree.List(c["env"]))
	})
}

// profiles is about annotations in place of fields of a container's security context.
func (w *podWarnings) profiles(annotations, c tree.Object) {
	name, security := tree.Text(c, "name"), tree.As(c["securityContext"])
	if key := corev1.SeccompContainerAnnotationKeyPrefix + name; security["seccompProfile"] == nil && annotations[key] != nil {
		w.add(`metadata.annotations[%s]: non-functional in v1.27+; use the "seccompProfile" field instead`, key)
	}
	key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + name
	if w.at == "" || security["appArmorProfile"] != nil || annotations[key] == nil {
		return
	}
	whole := tree.As(tree.Field(w.spec, "securityContext", "appArmorProfile"))
	if whole == nil || !semanticEqual(whole, appArmorProfile(tree.Text(annotations, key))) {
		w.add(`metadata.annotations[%s]: deprecated since v1.30; use the "appArmorProfile" field instead`, key)
	}
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

func (w *podWarnings) bytes(kind string, i int, resources tree.Object) {
	for _, name := range [...]string{"memory", "ephemeral-storage"} {
		for _, of := range [...]string{"limits", "requests"} {
			if q, yes := fractional(tree.As(resources[of]), name); yes {
				w.add("spec.%s[%d].resources.%s[%s]: fractional byte value %q is invalid, must be an integer", kind, i, of, name, q)
			}
		}
	}
}

// env finds variables that hide others: one may be defined again by what it was.
func (w *podWarnings) env(kind string, i int, env []any) {
	if len(env) < 2 {
		return
	}
	seen := make(map[string]bool, len(env))
	for j, e := range env {
		e := tree.As(e)
		name, value := tree.Text(e, "name"), tree.Text(e, "value")
		before := "$(" + name + ")"
		if seen[name] && (e["valueFrom"] != nil || value == before || !strings.Contains(value, before)) {
			w.add("spec.%s[%d].env[%d]: hides previous definition of %q, which may be dropped when using apply", kind, i, j, name)
		}
		seen[name] = true
	}
}

func (w *podWarnings) affinity() {
	const text = "spec.affinity.%s.%s[%d].%slabelSelector: a null labelSelector results in matching no pod"
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
	for _, kind := range [...]string{"podAffinity", "podAntiAffinity"} {
		affinity := tree.As(tree.Field(w.spec, "affinity", kind))
		for i, term := range tree.List(affinity[required]) {
			if tree.As(term)["labelSelector"] == nil {
				w.add(text, kind, required, i, "")
			}
		}
		for i, term := range tree.List(affinity[preferred]) {
			if tree.Field(term, "podAffinityTerm", "labelSelector") == nil {
				w.add(text, kind, preferred, i, "podAffinityTerm.")
			}
		}
	}
}

func (w *podWarnings) addresses() {
	for i, ip := range tree.List(tree.Field(w.spec, "dnsConfig", "nameservers")) {
		w.warnings = append(w.warnings, warningsForIP(tree.Scalar(ip), func() string { return fmt.Sprintf("%sspec.dnsConfig.nameservers[%d]", w.at, i) })...)
	}
	for i, alias := range tree.List(w.spec["hostAliases"]) {
		w.warnings = append(w.warnings, warningsForIP(tree.Text(tree.As(alias), "ip"), func() string { return fmt.Sprintf("%sspec.hostAliases[%d].ip", w.at, i) })...)
	}
}

// warningsForIP are those of an address that is not written as it should be. What is no address
// at all is validation's.
func warningsForIP(ip string, at func() string) []string {
	if addr, err := netip.ParseAddr(ip); err == nil && addr.Is4() || len(validation.IsValidIPForLegacyField(nil, ip, false, nil)) > 0 {
		return nil
	}
	return validation.GetWarningsForIP(field.NewPath(at()), ip)
}
