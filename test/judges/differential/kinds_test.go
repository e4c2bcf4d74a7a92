package differential

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// resource is one that both serve.
type resource struct {
	APIVersion, Kind, Plural string
	Namespaced               bool
	Verbs                    []string
	Subresources             map[string]*resource `json:",omitempty"` // by their names, without the resource's
}

// gvk is how reports call it.
func (r *resource) gvk() string { return r.APIVersion + "/" + r.Kind }

func (r *resource) can(verb string) bool { return slices.Contains(r.Verbs, verb) }

// collection is the path of all its objects, in a namespace if it is namespaced.
func (r *resource) collection(namespace string) string {
	root := "/apis/"
	if !strings.Contains(r.APIVersion, "/") {
		root = "/api/"
	}
	if r.Namespaced {
		return root + r.APIVersion + "/namespaces/" + namespace + "/" + r.Plural
	}
	return root + r.APIVersion + "/" + r.Plural
}

// resourcesOf are all that a server serves, by gvk.
func resourcesOf(ctx context.Context, s *server) (map[string]*resource, error) {
	paths := []string{"/api/v1"}
	groups, err := s.get(ctx, "/apis")
	if err != nil {
		return nil, err
	}
	list, _ := groups["groups"].([]any)
	for _, g := range list {
		versions, _ := field(g, "versions").([]any)
		for _, v := range versions {
			paths = append(paths, "/apis/"+text(field(v, "groupVersion")))
		}
	}
	all := map[string]*resource{}
	for _, path := range paths {
		a, err := s.send(ctx, http.MethodGet, path, "", nil)
		if err != nil {
			return nil, err
		}
		var list struct {
			GroupVersion string
			Resources    []struct {
				Name, Kind, Group, Version string
				Namespaced                 bool
				Verbs                      []string
			}
		}
		if err := json.Unmarshal(a.body, &list); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", s.name, path, err)
		}
		byPlural := map[string]*resource{}
		for _, x := range list.Resources {
			if !strings.Contains(x.Name, "/") {
				r := &resource{list.GroupVersion, x.Kind, x.Name, x.Namespaced, x.Verbs, map[string]*resource{}}
				byPlural[x.Name], all[r.gvk()] = r, r
			}
		}
		for _, x := range list.Resources {
			if plural, sub, ok := strings.Cut(x.Name, "/"); ok && byPlural[plural] != nil {
				byPlural[plural].Subresources[sub] = &resource{Kind: x.Kind, Plural: sub, Namespaced: x.Namespaced, Verbs: x.Verbs}
			}
		}
	}
	return all, nil
}

// common are the resources and subresources that both serve.
func (b both) common(ctx context.Context) (map[string]*resource, error) {
	there, err := resourcesOf(ctx, b.there)
	if err != nil {
		return nil, err
	}
	here, err := resourcesOf(ctx, b.here)
	if err != nil {
		return nil, err
	}
	for gvk, r := range there {
		ours := here[gvk]
		if ours == nil {
			delete(there, gvk)
			continue
		}
		for name := range r.Subresources {
			if _, ok := ours.Subresources[name]; !ok {
				delete(r.Subresources, name)
			}
		}
	}
	return there, nil
}

// field is a field of an object, or nil.
func field(v any, names ...string) any {
	for _, n := range names {
		m, _ := v.(map[string]any)
		v = m[n]
	}
	return v
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// child is a field of an object that is an object; it is made if it is not there.
func child(m map[string]any, name string) map[string]any {
	c, ok := m[name].(map[string]any)
	if !ok {
		c = map[string]any{}
		m[name] = c
	}
	return c
}
