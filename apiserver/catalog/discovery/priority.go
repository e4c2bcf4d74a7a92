package discovery

import (
	"cmp"
	"slices"

	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"k8s.io/apimachinery/pkg/version"
)

// groupPriority is the order in which upstream lists its groups, highest first.
// Clients resolve short names and kinds without a group in this order, so
// `kubectl get events` means the core group only because that comes first.
// Groups that are not listed, such as quorate.io, have defaultPriority; equal ones sort by name.
var groupPriority = map[string]int{
	"":                             18000,
	"apiregistration.k8s.io":       20000,
	"apps":                         17800,
	"events.k8s.io":                17750,
	"authentication.k8s.io":        17700,
	"authorization.k8s.io":         17600,
	"autoscaling":                  17500,
	"batch":                        17400,
	"certificates.k8s.io":          17300,
	"networking.k8s.io":            17200,
	"policy":                       17100,
	"rbac.authorization.k8s.io":    17000,
	"storage.k8s.io":               16800,
	"apiextensions.k8s.io":         16700,
	"admissionregistration.k8s.io": 16700,
	"scheduling.k8s.io":            16600,
	"coordination.k8s.io":          16500,
	"node.k8s.io":                  16300,
	"resource.k8s.io":              15900,
	"discovery.k8s.io":             16200,
	"flowcontrol.apiserver.k8s.io": 16100,
	"internal.apiserver.k8s.io":    16000,
	"storagemigration.k8s.io":      15800,
}

const defaultPriority = 1000

// group is the resources of one API group, in the order of discovery.
type group struct {
	name     string
	versions []groupVersion
}

// groupVersion is the resources of one version, sorted by plural.
type groupVersion struct {
	group, version string
	resources      []*kinds.Resource
	// remote is what another server serves as this version; nil: this one serves it.
	remote *aggregator.Version
}

const (
	builtinVersion = 1001 // above every version of others
	customVersion  = 100  // as in their APIServices
)

// priority is where the version stands in its group.
func (gv groupVersion) priority() int {
	switch {
	case gv.remote != nil:
		return int(gv.remote.VersionPriority)
	case gv.resources[0].Custom:
		return customVersion
	}
	return builtinVersion
}

func (gv groupVersion) String() string {
	if gv.group == "" {
		return gv.version
	}
	return gv.group + "/" + gv.version
}

// groupsOf sorts what this server and others serve: groups by priority, versions by priority and then as
// Kubernetes compares them (v2, v1, v1beta1), so that the first is the preferred one. What is
// built in comes before all other versions of the same group: no definition decides
// which resource `kubectl get roles` means. A version that another server serves is not this one's.
func groupsOf(r *kinds.Registry, others []aggregator.Version) []group {
	var groups []group
	for _, x := range r.All() { // sorted by group, version, plural
		if n := len(groups); n == 0 || groups[n-1].name != x.Group {
			groups = append(groups, group{name: x.Group})
		}
		g := &groups[len(groups)-1]
		if n := len(g.versions); n == 0 || g.versions[n-1].version != x.Version {
			g.versions = append(g.versions, groupVersion{group: x.Group, version: x.Version})
		}
		gv := &g.versions[len(g.versions)-1]
		gv.resources = append(gv.resources, x)
	}
	highest := map[string]int{}
	for _, g := range groups {
		highest[g.name] = priority(g.name)
	}
	for i := range others {
		v := &others[i]
		groups = withRemote(groups, v)
		highest[v.Group] = max(highest[v.Group], int(v.GroupPriority))
	}
	for _, g := range groups {
		slices.SortStableFunc(g.versions, func(a, b groupVersion) int {
			if c := cmp.Compare(b.priority(), a.priority()); c != 0 {
				return c
			}
			return version.CompareKubeAwareVersionStrings(b.version, a.version)
		})
	}
	slices.SortStableFunc(groups, func(a, b group) int {
		if c := cmp.Compare(highest[b.name], highest[a.name]); c != 0 {
			return c
		}
		return cmp.Compare(a.name, b.name)
	})
	return groups
}

// withRemote adds a version of another server, in the place of one of this server's own.
func withRemote(groups []group, v *aggregator.Version) []group {
	i := slices.IndexFunc(groups, func(g group) bool { return g.name == v.Group })
	if i < 0 {
		i, groups = len(groups), append(groups, group{name: v.Group})
	}
	g := &groups[i]
	g.versions = slices.DeleteFunc(g.versions, func(gv groupVersion) bool { return gv.version == v.Version })
	g.versions = append(g.versions, groupVersion{group: v.Group, version: v.Version, remote: v})
	return groups
}

func priority(group string) int {
	if p, ok := groupPriority[group]; ok {
		return p
	}
	return defaultPriority
}
