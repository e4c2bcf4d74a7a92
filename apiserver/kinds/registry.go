package kinds

import (
	"sort"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Registry is an immutable set of resources. A change makes a new Registry;
// holders swap a pointer.
type Registry struct {
	byGVR map[schema.GroupVersionResource]*Resource
	byGVK map[schema.GroupVersionKind]*Resource
	all   []*Resource
}

// NewRegistry builds a registry; later entries with the same group, version and
// plural replace earlier ones.
func NewRegistry(resources []*Resource) *Registry {
	r := &Registry{
		byGVR: make(map[schema.GroupVersionResource]*Resource, len(resources)),
		byGVK: make(map[schema.GroupVersionKind]*Resource, len(resources)),
	}
	for _, x := range resources {
		r.byGVR[x.GVR()] = x
	}
	for _, x := range r.byGVR {
		r.all = append(r.all, x)
	}
	sort.Slice(r.all, func(i, j int) bool {
		a, b := r.all[i], r.all[j]
		if a.Group != b.Group {
			return a.Group < b.Group
		}
		if a.Version != b.Version {
			return a.Version < b.Version
		}
		return a.Plural < b.Plural
	})
	for _, x := range r.all {
		if r.byGVK[x.GVK()] == nil {
			r.byGVK[x.GVK()] = x
		}
	}
	return r
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
