package discovery

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/types/kinds"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func apiGroup(g group) metav1.APIGroup {
	out := metav1.APIGroup{Name: g.name}
	for _, v := range g.versions {
		out.Versions = append(out.Versions, metav1.GroupVersionForDiscovery{GroupVersion: v.String(), Version: v.version})
	}
	out.PreferredVersion = out.Versions[0]
	return out
}

func groupList(groups []group) *metav1.APIGroupList {
	list := &metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
		Groups:   []metav1.APIGroup{},
	}
	for _, g := range groups {
		if g.name != "" {
			list.Groups = append(list.Groups, apiGroup(g))
		}
	}
	return list
}

func groupDocument(g group) *metav1.APIGroup {
	doc := apiGroup(g)
	doc.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
	return &doc
}

func resourceList(gv groupVersion, hashes bool) *metav1.APIResourceList {
	list := &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: gv.String(),
		APIResources: []metav1.APIResource{},
	}
	if gv.group == "" {
		// The core group's document has no apiVersion upstream.
		list.APIVersion = ""
	}
	for _, r := range gv.resources {
		x := metav1.APIResource{
			Name:         r.Plural,
			SingularName: r.Singular,
			Namespaced:   r.Namespaced,
			Kind:         r.Kind,
			Verbs:        verbs(r),
			ShortNames:   r.ShortNames,
			Categories:   r.Categories,
		}
		if hashes {
			x.StorageVersionHash = storageVersionHash(r)
		}
		list.APIResources = append(list.APIResources, x)
		for _, s := range subresources(r) {
			x := metav1.APIResource{Name: r.Plural + "/" + s.Name, Namespaced: r.Namespaced, Verbs: sorted(s.Verbs)}
			kind := responseKind(r, s)
			x.Kind = kind.Kind
			if kind.Group != r.Group || kind.Version != r.Version {
				x.Group, x.Version = kind.Group, kind.Version
			}
			list.APIResources = append(list.APIResources, x)
		}
	}
	return list
}

// subresources in alphabetical order; those of a custom resource in upstream's, status first.
func subresources(r *kinds.Resource) []kinds.Subresource {
	if r.Custom {
		return r.Subresources
	}
	return slices.SortedFunc(slices.Values(r.Subresources), func(a, b kinds.Subresource) int {
		return strings.Compare(a.Name, b.Name)
	})
}

// responseKind is the kind of a subresource's body: the resource's own unless the
// subresource names another.
func responseKind(r *kinds.Resource, s kinds.Subresource) metav1.GroupVersionKind {
	kind := metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
	if s.Kind != "" {
		kind.Kind = s.Kind
	}
	if s.Version != "" {
		// A core kind has an empty group, so the version tells that both are given.
		kind.Group, kind.Version = s.Group, s.Version
	}
	return kind
}

// customVerbs are in the order in which upstream lists those of every custom resource.
var customVerbs = metav1.Verbs{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}

func verbs(r *kinds.Resource) metav1.Verbs {
	if r.Custom {
		return customVerbs
	}
	return sorted(r.Verbs)
}

func sorted(verbs []string) metav1.Verbs {
	out := slices.Clone(verbs)
	slices.Sort(out)
	return out
}

// storageVersionHash changes when objects begin to be stored in another version;
// storage migration watches for that. Resources that are not stored have none.
func storageVersionHash(r *kinds.Resource) string {
	if r.Virtual {
		return ""
	}
	g, v := r.Group, r.Version
	if r.StorageVersion != "" {
		g, v = r.StorageGroup, r.StorageVersion
	}
	sum := sha256.Sum256([]byte(g + "/" + v + "/" + r.Kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}
