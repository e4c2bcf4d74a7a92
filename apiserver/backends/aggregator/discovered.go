package aggregator

import (
	"fmt"
	"strings"

	v2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

// Version is what is known of a version that another server serves.
type Version struct {
	apischema.GroupVersion
	GroupPriority, VersionPriority int32
	// Discovery is stale if the server has not answered the last question; without resources if it
	// never has.
	Discovery v2.APIVersionDiscovery
	// HasOpenAPI says that the server has a document of version 3, whose hash may be empty.
	HasOpenAPI  bool
	OpenAPIHash string
	// OpenAPIV2 is nil if the server has no document of version 2 about it.
	OpenAPIV2 *DocumentV2
}

// Discovered is what all other servers serve, by the names of their APIServices. It is immutable.
type Discovered struct {
	Versions []Version

	of         *remotes
	generation uint64
}

// Discovered returns what is known now. It asks nobody. The same pointer is returned until something
// has changed.
func (a *Aggregator) Discovered() *Discovered {
	now, generation := a.view.Get(), a.generation.Load()
	if d := a.discovered.Load(); d != nil && d.of == now && d.generation == generation {
		return d
	}
	d := &Discovered{of: now, generation: generation}
	for _, r := range now.all {
		if now.of[r.GroupVersion()] == r {
			d.Versions = append(d.Versions, r.describe())
		}
	}
	a.discovered.Store(d)
	return d
}

func (r *Remote) describe() Version {
	k, gv := &r.server.known, r.GroupVersion()
	k.mu.Lock()
	defer k.mu.Unlock()
	v := Version{GroupVersion: gv, GroupPriority: r.Spec.GroupPriorityMinimum, VersionPriority: r.Spec.VersionPriority, Discovery: k.versions[gv]}
	v.Discovery.Version = gv.Version
	if v.Discovery.Freshness = v2.DiscoveryFreshnessStale; k.ok {
		v.Discovery.Freshness = v2.DiscoveryFreshnessCurrent
	}
	v.OpenAPIHash, v.HasOpenAPI = k.openapi[gv]
	v.OpenAPIV2 = k.v2.of[gv]
	return v
}

// convertResources makes the form of aggregated discovery of the older one.
func convertResources(list []metav1.APIResource, gv apischema.GroupVersion) ([]v2.APIResourceDiscovery, error) {
	kindOf := func(r *metav1.APIResource) *metav1.GroupVersionKind {
		k := &metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
		if k.Version == "" {
			k.Group, k.Version = gv.Group, gv.Version
		}
		return k
	}
	var out []v2.APIResourceDiscovery
	at := map[string]int{}
	add := func(r v2.APIResourceDiscovery) int {
		at[r.Resource] = len(out)
		out = append(out, r)
		return len(out) - 1
	}
	for i := range list {
		r := &list[i]
		scope := v2.ScopeCluster
		if r.Namespaced {
			scope = v2.ScopeNamespace
		}
		name, sub, below := strings.Cut(r.Name, "/")
		if name == "" || below && sub == "" {
			return nil, fmt.Errorf("a resource has the name %.100q", r.Name)
		}
		if below {
			parent, ok := at[name]
			if !ok {
				parent = add(v2.APIResourceDiscovery{Resource: name, Scope: scope})
			}
			out[parent].Subresources = append(out[parent].Subresources, v2.APISubresourceDiscovery{Subresource: sub, Verbs: r.Verbs, ResponseKind: kindOf(r)})
			continue
		}
		has := v2.APIResourceDiscovery{
			Resource: name, Scope: scope, Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories, SingularResource: r.SingularName, ResponseKind: kindOf(r),
		}
		if i, ok := at[name]; ok {
			has.Subresources = out[i].Subresources
			out[i] = has
			continue
		}
		add(has)
	}
	return out, nil
}
