package discovery

import (
	"github.com/quorate/quorate/apiserver/types/kinds"
	v2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// aggregate makes the one document of a root: /api has the core group, /apis all
// others.
func aggregate(groups []group, core bool) *v2.APIGroupDiscoveryList {
	list := &v2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: v2.SchemeGroupVersion.String()},
		Items:    []v2.APIGroupDiscovery{},
	}
	for _, g := range groups {
		if (g.name == "") != core {
			continue
		}
		item := v2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}}
		for _, gv := range g.versions {
			item.Versions = append(item.Versions, versionDiscovery(gv))
		}
		list.Items = append(list.Items, item)
	}
	return list
}

func versionDiscovery(gv groupVersion) v2.APIVersionDiscovery {
	if gv.remote != nil {
		return gv.remote.Discovery
	}
	out := v2.APIVersionDiscovery{Version: gv.version, Freshness: v2.DiscoveryFreshnessCurrent}
	for _, r := range gv.resources {
		scope := v2.ScopeCluster
		if r.Namespaced {
			scope = v2.ScopeNamespace
		}
		x := v2.APIResourceDiscovery{
			Resource:         r.Plural,
			ResponseKind:     shownKind(r, metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}),
			Scope:            scope,
			SingularResource: r.Singular,
			Verbs:            verbs(r),
			ShortNames:       r.ShortNames,
			Categories:       r.Categories,
		}
		for _, s := range subresources(r) {
			x.Subresources = append(x.Subresources, v2.APISubresourceDiscovery{
				Subresource: s.Name, ResponseKind: shownKind(r, responseKind(r, s)), Verbs: sorted(s.Verbs),
			})
		}
		out.Resources = append(out.Resources, x)
	}
	return out
}

// shownKind is a kind as upstream shows it: without the group and version if they are the
// resource's, but for custom ones.
func shownKind(r *kinds.Resource, kind metav1.GroupVersionKind) *metav1.GroupVersionKind {
	if !r.Custom && kind.Group == r.Group && kind.Version == r.Version {
		kind.Group, kind.Version = "", ""
	}
	return &kind
}
