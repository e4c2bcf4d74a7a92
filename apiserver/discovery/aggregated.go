package discovery

import (
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
	out := v2.APIVersionDiscovery{Version: gv.version, Freshness: v2.DiscoveryFreshnessCurrent}
	for _, r := range gv.resources {
		scope := v2.ScopeCluster
		if r.Namespaced {
			scope = v2.ScopeNamespace
		}
		x := v2.APIResourceDiscovery{
			Resource:         r.Plural,
			ResponseKind:     &metav1.GroupVersionKind{Kind: r.Kind},
			Scope:            scope,
			SingularResource: r.Singular,
			Verbs:            sorted(r.Verbs),
			ShortNames:       r.ShortNames,
			Categories:       r.Categories,
		}
		for _, s := range subresources(r) {
			kind := responseKind(r, s)
			if kind.Group == r.Group && kind.Version == r.Version {
				// As upstream: empty is that of the resource.
				kind.Group, kind.Version = "", ""
			}
			x.Subresources = append(x.Subresources, v2.APISubresourceDiscovery{
				Subresource: s.Name, ResponseKind: &kind, Verbs: sorted(s.Verbs),
			})
		}
		out.Resources = append(out.Resources, x)
	}
	return out
}
