package kinds

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// VersionsOf returns all resources that show the objects of one: itself first, then the others
// that are stored in its table, in the order of All. What is virtual has itself only.
func (r *Registry) VersionsOf(res *Resource) []*Resource {
	out := []*Resource{res}
	if res.Virtual {
		return out
	}
	for _, x := range r.all {
		if x != res && !x.Virtual && x.Table() == res.Table() {
			out = append(out, x)
		}
	}
	return out
}

// equivalentKey is what the resources of a subresource are kept under in a resource's Memo.
type equivalentKey struct{ subresource string }

// EquivalentResources returns the resources that show the same objects as gvr in other versions,
// and gvr itself, as far as they have the subresource; "" is the object itself. nil if gvr is not
// served. Upstream asks this of an EquivalentResourceMapper. Not to be changed.
//
// It is worked out once for a resource: the versions of one are replaced together.
func (r *Registry) EquivalentResources(gvr schema.GroupVersionResource, subresource string) []schema.GroupVersionResource {
	res := r.Lookup(gvr)
	if res == nil {
		return nil
	}
	if made, ok := res.Memo().Load(equivalentKey{subresource}); ok {
		return made.([]schema.GroupVersionResource)
	}
	var out []schema.GroupVersionResource
	for _, v := range r.VersionsOf(res) {
		if subresource == "" || v.Subresource(subresource) != nil {
			out = append(out, v.GVR())
		}
	}
	if res.Custom { // a rule that names several gets the first in the order of the definition
		slices.SortStableFunc(out, func(a, b schema.GroupVersionResource) int {
			return cmp.Compare(r.byGVR[a].Position, r.byGVR[b].Position)
		})
	}
	res.Memo().Store(equivalentKey{subresource}, out)
	return out
}

// KindFor returns the kind of the bodies of a resource or of a subresource; "" is the object
// itself. The zero kind if it is not served. Upstream asks this of an EquivalentResourceMapper.
func (r *Registry) KindFor(gvr schema.GroupVersionResource, subresource string) schema.GroupVersionKind {
	res := r.Lookup(gvr)
	if res == nil {
		return schema.GroupVersionKind{}
	}
	gvk := res.GVK()
	if subresource == "" {
		return gvk
	}
	s := res.Subresource(subresource)
	if s == nil {
		return schema.GroupVersionKind{}
	}
	if s.Kind != "" {
		gvk.Kind = s.Kind
	}
	if s.Version != "" {
		gvk.Group, gvk.Version = s.Group, s.Version
	}
	return gvk
}
