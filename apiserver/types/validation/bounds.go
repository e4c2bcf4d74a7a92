package validation

import (
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/types/tree"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A bound is how many elements a list may have before upstream looks at it: what upstream's
// functions do with these lists takes time that grows with the square of their length, they
// cannot be interrupted, and a body may have 20,000 containers. TestLongLists looks for others,
// with 4,000 elements of every list; with -full, with as many as a body may have, which has not
// been run to its end yet.
type bound struct {
	path string // fields, with dots between them; [] is each element of a list
	max  int
}

// podBounds are those of the spec of a Pod. Pods have some ten of each.
var podBounds = []bound{
	{"containers", 250}, // the refusal of a change has the differences: 14 s for 4,000
	{"initContainers", 250},
	{"ephemeralContainers", 250},
	{"volumes", 2000},                       // as containers, but a volume is small
	{"tolerations", 1000},                   // each old one is sought among the new: 1 s for 4,000
	{"topologySpreadConstraints", 1000},     // each is compared with those behind it
	{"resourceClaims", 1000},                // sought for each claim of each container
	{"containers.[].resources.claims", 250}, // each is compared with all before it
	{"initContainers.[].resources.claims", 250},
}

// bounds are by the resource and group of the kind.
var bounds = func() map[string][]bound {
	all := map[string][]bound{
		"pods": append(under("spec", podBounds),
			// Each old status is sought among the new ones, and its container among all.
			bound{"status.containerStatuses", 250},
			bound{"status.initContainerStatuses", 250},
			bound{"status.ephemeralContainerStatuses", 250},
			bound{"status.resourceClaimStatuses", 1000},
			bound{"status.nodeAllocatableResourceClaimStatuses", 1000},
		),
		"cronjobs.batch": under("spec.jobTemplate.spec.template.spec", podBounds),
		"podtemplates":   under("template.spec", podBounds),
		// Each driver that was there is sought among the new ones.
		"csinodes.storage.k8s.io": {{"spec.drivers", 1000}},
		// Each is compared with those before it, as a map of sets: 0.13 s for 500.
		"storageclasses.storage.k8s.io": {{"allowedTopologies", 200}},
		// The refusal of a change has the differences.
		"certificatesigningrequests.certificates.k8s.io": {{"status.conditions", 1000}},
	}
	for _, name := range []string{"replicationcontrollers", "daemonsets.apps", "deployments.apps", "replicasets.apps", "statefulsets.apps", "jobs.batch"} {
		all[name] = under("spec.template.spec", podBounds)
	}
	all["statefulsets.apps"] = append(all["statefulsets.apps"], bound{"spec.volumeClaimTemplates", 1000}) // compared one by one, with their differences
	return all
}()

func under(path string, of []bound) []bound {
	out := slices.Clone(of)
	for i := range out {
		out[i].path = path + "." + out[i].path
	}
	return out
}

// bounded is a kind whose lists are counted first.
type bounded struct {
	Kind
	bounds []bound
}

func (b bounded) Create(obj tree.Object, namespaced bool, warnings *[]string) field.ErrorList {
	if errs := tooMany(b.bounds, obj, nil); len(errs) > 0 {
		return errs
	}
	return b.Kind.Create(obj, namespaced, warnings)
}

func (b bounded) Update(subresource string, obj, old tree.Object, namespaced bool, warnings *[]string) field.ErrorList {
	if errs := tooMany(b.bounds, obj, old); len(errs) > 0 {
		return errs
	}
	return b.Kind.Update(subresource, obj, old, namespaced, warnings)
}

// tooMany are the lists of obj above their bounds. One that was stored before there was a bound
// may stay and become shorter.
func tooMany(of []bound, obj, old tree.Object) (errs field.ErrorList) {
	for _, b := range of {
		if n := listLen(obj, b.path); n > b.max && n > listLen(old, b.path) {
			first, rest, _ := strings.Cut(strings.ReplaceAll(b.path, ".[]", "[*]"), ".")
			path := field.NewPath(first)
			if rest != "" {
				path = path.Child(rest)
			}
			errs = append(errs, field.TooMany(path, n, b.max))
		}
	}
	return errs
}

// listLen is how long a list is, the longest where there are several. It takes nothing of memory:
// each write of a kind with bounds asks.
func listLen(obj tree.Object, path string) int {
	for {
		name, rest, more := strings.Cut(path, ".")
		if !more {
			return len(tree.List(obj[name]))
		}
		if inner, each := strings.CutPrefix(rest, "[]."); each {
			longest := 0
			for _, x := range tree.List(obj[name]) {
				longest = max(longest, listLen(tree.As(x), inner))
			}
			return longest
		}
		obj, path = tree.As(obj[name]), rest
	}
}
