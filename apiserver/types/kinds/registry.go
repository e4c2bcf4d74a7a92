package kinds

import (
	"cmp"
	"maps"
	"slices"
	"sort"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Registry is an immutable set of resources. A change makes a new Registry;
// holders swap a pointer.
type Registry struct {
	byGVR map[schema.GroupVersionResource]*Resource
	byGVK map[schema.GroupVersionKind]*Resource
	all   []*Resource
	// contested says that some resources had to give way to others of the same name or
	// kind.
	contested bool
}

// NewRegistry builds a registry; later entries with the same group, version and
// plural replace earlier ones. Of several with one kind, LookupKind gives a built-in
// one before a custom one, and otherwise the first by plural.
func NewRegistry(resources []*Resource) *Registry {
	r := &Registry{
		byGVR: make(map[schema.GroupVersionResource]*Resource, len(resources)),
		byGVK: make(map[schema.GroupVersionKind]*Resource, len(resources)),
	}
	for _, x := range resources {
		r.byGVR[x.GVR()] = x
	}
	r.contested = len(r.byGVR) < len(resources)
	for _, x := range r.byGVR {
		r.all = append(r.all, x)
	}
	slices.SortFunc(r.all, compare)
	for _, custom := range [...]bool{false, true} {
		for _, x := range r.all {
			switch {
			case x.Custom != custom:
			case r.byGVK[x.GVK()] == nil:
				r.byGVK[x.GVK()] = x
			default:
				r.contested = true
			}
		}
	}
	return r
}

// compare is the order of All.
func compare(a, b *Resource) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Plural, b.Plural))
}

// Replaced returns a registry without some of the resources and with others, at the
// cost of a copy. ok is false if that is not all that changes, because resources have
// given way to others or would have to; then it is to be built from all.
func (r *Registry) Replaced(gone, come []*Resource) (n *Registry, ok bool) {
	if r.contested {
		return nil, false
	}
	n = &Registry{byGVR: maps.Clone(r.byGVR), byGVK: maps.Clone(r.byGVK), all: slices.Clone(r.all)}
	for _, x := range gone {
		at, found := slices.BinarySearchFunc(n.all, x, compare)
		if !found || n.all[at] != x {
			return nil, false
		}
		n.all = slices.Delete(n.all, at, at+1)
		delete(n.byGVR, x.GVR())
		delete(n.byGVK, x.GVK())
	}
	for _, x := range come {
		at, found := slices.BinarySearchFunc(n.all, x, compare)
		if found || n.byGVK[x.GVK()] != nil {
			return nil, false
		}
		n.all = slices.Insert(n.all, at, x)
		n.byGVR[x.GVR()], n.byGVK[x.GVK()] = x, x
	}
	return n, true
}

// Lookup returns a resource by group, version and plural, or nil.
func (r *Registry) Lookup(gvr schema.GroupVersionResource) *Resource { return r.byGVR[gvr] }

// LookupKind returns a resource by group, version and kind, or nil.
func (r *Registry) LookupKind(gvk schema.GroupVersionKind) *Resource { return r.byGVK[gvk] }

// All returns every resource, sorted by group, version, plural. Not to be changed.
func (r *Registry) All() []*Resource { return r.all }

// HasGroup reports whether anything is served under a group.
func (r *Registry) HasGroup(group string) bool {
	i := sort.Search(len(r.all), func(i int) bool { return r.all[i].Group >= group })
	return i < len(r.all) && r.all[i].Group == group
}

// HasGroupVersion reports whether anything is served under a group version.
func (r *Registry) HasGroupVersion(gv schema.GroupVersion) bool {
	i := sort.Search(len(r.all), func(i int) bool {
		x := r.all[i]
		return x.Group > gv.Group || x.Group == gv.Group && x.Version >= gv.Version
	})
	return i < len(r.all) && r.all[i].Group == gv.Group && r.all[i].Version == gv.Version
}
