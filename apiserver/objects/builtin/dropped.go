package builtin

import (
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/types/tree"
)

// Fields whose feature gates are closed here, as they are in kube-apiserver by default: what a
// client sends is dropped, unless the object has some of it already.

// dropPath is a dotted path, in parts; "[]" is each element of a list or value of a map.
type dropPath []string

func dropPaths(paths ...string) []dropPath {
	out := make([]dropPath, len(paths))
	for i, p := range paths {
		out[i] = strings.Split(strings.ReplaceAll(p, "[]", ".[]"), ".")
	}
	return out
}

// dropping is a Prepare that takes fields out.
func dropping(paths ...string) func(obj, old tree.Object) {
	all := dropPaths(paths...)
	return func(obj, old tree.Object) {
		for _, p := range all {
			if p.in(obj) && !p.in(old) {
				p.drop(obj)
			}
		}
	}
}

// in reports whether there is anything at the path.
func (p dropPath) in(v any) bool {
	if len(p) == 0 {
		return v != nil
	}
	switch x := v.(type) {
	case tree.Object:
		if p[0] != "[]" {
			return p[1:].in(x[p[0]])
		}
		for _, item := range x {
			if p[1:].in(item) {
				return true
			}
		}
	case []any:
		return p[0] == "[]" && slices.ContainsFunc(x, p[1:].in)
	}
	return false
}

// drop takes what is at the path out of v, which is the caller's own; what is below it is
// replaced.
func (p dropPath) drop(v any) { p.change(v, func(of tree.Object, name string) { delete(of, name) }) }

// change calls do with each object that has something at the path, and its name there. v and the objects are
// the caller's own.
func (p dropPath) change(v any, do func(of tree.Object, name string)) {
	switch x := v.(type) {
	case tree.Object:
		names := []string{p[0]}
		if p[0] == "[]" {
			names = names[:0]
			for name := range x {
				names = append(names, name)
			}
		}
		for _, name := range names {
			if len(p) == 1 {
				do(x, name)
			} else if p[1:].in(x[name]) {
				x[name] = own(x[name])
				p[1:].change(x[name], do)
			}
		}
	case []any:
		for i, item := range x {
			if p[1:].in(item) {
				x[i] = own(item)
				p[1:].change(x[i], do)
			}
		}
	}
}

// own is a copy of the first level of an object or a list.
func own(v any) any {
	if l, ok := v.([]any); ok {
		return slices.Clone(l)
	}
	return tree.Clone(v)
}

// below puts a path in front of others.
func below(prefix string, paths []string) []string {
	out := make([]string, len(paths))
	for i, p := range paths {
		out[i] = prefix + "." + p
	}
	return out
}

// closedInPods are below the specs of Pods and of their templates. Gates: GenericWorkload,
// ClusterTrustBundleProjection, PodCertificateRequest.
var closedInPods = []string{
	"schedulingGroup",
	"volumes[].projected.sources[].clusterTrustBundle", "volumes[].projected.sources[].podCertificate",
}

// dropFromPods takes closedInPods out of the Pod's spec at a path, and stop signals, whose gate is
// ContainerStopSignals.
func dropFromPods(spec string) func(obj, old tree.Object) {
	drop := dropping(below(spec, closedInPods)...)
	var lifecycles, signals []dropPath
	for _, kind := range [...]string{"containers", "initContainers", "ephemeralContainers"} {
		lifecycles = append(lifecycles, dropPaths(spec+"."+kind+"[].lifecycle")...)
		signals = append(signals, dropPaths(spec+"."+kind+"[].lifecycle.stopSignal")...)
	}
	return func(obj, old tree.Object) {
		drop(obj, old)
		if slices.ContainsFunc(signals, func(p dropPath) bool { return p.in(old) }) {
			return // a container of any kind that has one lets all have one
		}
		for i, p := range signals {
			if p.in(obj) {
				lifecycles[i].change(obj, dropStopSignal)
			}
		}
	}
}

// dropStopSignal takes the stop signal out of a container's lifecycle, and with it the lifecycle if it had nothing else.
func dropStopSignal(container tree.Object, name string) {
	l := tree.As(container[name])
	switch {
	case l["stopSignal"] == nil:
	case len(l) == 1:
		delete(container, name)
	default:
		l = tree.Clone(l)
		delete(l, "stopSignal")
		container[name] = l
	}
}

// inOrder runs several Prepare functions.
func inOrder(each ...func(obj, old tree.Object)) func(obj, old tree.Object) {
	return func(obj, old tree.Object) {
		for _, f := range each {
			f(obj, old)
		}
	}
}

// The gates CoordinatedLeaderElection, MaxUnavailableStatefulSet, DRANodeAllocatableResources,
// DRAListTypeAttributes, VolumeLimitScaling and ImageVolumeWithDigest; the configuration of kubelets has gone with its
// gate.
var (
	prepareLease       = dropping("spec.strategy", "spec.preferredHolder")
	prepareTemplate    = dropFromPods("spec.template.spec")
	prepareStatefulSet = inOrder(prepareTemplate, dropping("spec.updateStrategy.rollingUpdate.maxUnavailable"))
	prepareCronJob     = dropFromPods("spec.jobTemplate.spec.template.spec")
	preparePodTemplate = dropFromPods("template.spec")
	prepareNode        = dropping("spec.configSource", "status.config")
	dropFromPod        = inOrder(dropFromPods("spec"), dropping(
		"status.nodeAllocatableResourceClaimStatuses", "status.containerStatuses[].volumeMounts[].volumeStatus",
		"status.initContainerStatuses[].volumeMounts[].volumeStatus", "status.ephemeralContainerStatuses[].volumeMounts[].volumeStatus",
	))
	prepareResourceSlice = dropping(
		"spec.devices[].nodeAllocatableResourceMappings", "spec.devices[].attributes[].bools", "spec.devices[].attributes[].ints",
		"spec.devices[].attributes[].strings", "spec.devices[].attributes[].versions",
	)
	prepareDriver = dropping("spec.preventPodSchedulingIfMissing")
)
