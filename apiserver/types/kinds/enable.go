package kinds

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Enablement says which of the built-in resources a server has, in the words of
// upstream's --runtime-config: "api/all", "api/ga", "api/beta" and "api/alpha" for
// all versions of a sort, "GROUP/VERSION" ("/v1" or "v1" for the core group) and
// "GROUP/VERSION/RESOURCE", each "=true", "=false" or alone, which is true. The
// narrower wins: a resource over its version, a version over its sort, a sort over
// api/all. What nothing is said about is on in versions like v1, and off in others.
type Enablement map[string]string

// ParseEnablement reads KEY[=VALUE] entries; of two with the same key the last wins.
func ParseEnablement(entries []string) Enablement {
	out := Enablement{}
	for _, e := range entries {
		if key, value, _ := strings.Cut(strings.TrimSpace(e), "="); key != "" {
			out[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return out
}

type versionSort struct {
	key     string
	matches func(version string) bool
}

// sorts of versions, in the order in which they are applied.
var sorts = []versionSort{
	{"api/all", func(string) bool { return true }},
	{"api/ga", regexp.MustCompile(`^v\d+$`).MatchString},
	{"api/beta", regexp.MustCompile(`^v\d+beta\d+$`).MatchString},
	{"api/alpha", regexp.MustCompile(`^v\d+alpha\d+$`).MatchString},
}

// Apply returns the resources of all that are on, and whose feature gate is open; without open,
// none is. A key that names nothing there
// is, a value that is no truth value, and a choice that leaves no namespaces are
// errors: none of them can be meant.
func (e Enablement) Apply(all *Registry, open func(gate string) bool) (*Registry, error) {
	p, err := e.preferences(all)
	if err != nil {
		return nil, fmt.Errorf("runtime-config: %w", err)
	}
	var on []*Resource
	for _, r := range all.All() {
		if p.enabled(r) && (r.FeatureGate == "" || open != nil && open(r.FeatureGate)) {
			on = append(on, r)
		}
	}
	out := NewRegistry(on)
	if out.Lookup(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}) == nil {
		return nil, errors.New("runtime-config: namespaces cannot be switched off: everything namespaced needs them")
	}
	return out, nil
}

// preferences are what was said, by how narrow it is.
type preferences struct {
	sorts     map[string]bool
	versions  map[schema.GroupVersion]bool
	resources map[schema.GroupVersionResource]bool
}

func (p *preferences) enabled(r *Resource) bool {
	if on, said := p.resources[r.GVR()]; said {
		return on
	}
	if on, said := p.versions[r.GroupVersion()]; said {
		return on
	}
	on := sorts[1].matches(r.Version)
	for _, s := range sorts {
		if value, said := p.sorts[s.key]; said && s.matches(r.Version) {
			on = value
		}
	}
	return on
}

func (e Enablement) preferences(all *Registry) (*preferences, error) {
	p := &preferences{map[string]bool{}, map[schema.GroupVersion]bool{}, map[schema.GroupVersionResource]bool{}}
	for key, text := range e {
		on := true
		if text != "" {
			var err error
			if on, err = strconv.ParseBool(text); err != nil {
				return nil, fmt.Errorf("invalid value of %s: %q is neither true nor false", key, text)
			}
		}
		if slices.ContainsFunc(sorts, func(s versionSort) bool { return s.key == key }) {
			p.sorts[key] = on
			continue
		}
		if err := p.add(key, on, all); err != nil {
			return nil, err
		}
	}
	if on, said := p.sorts["api/all"]; said && !on && len(e) == 1 {
		return nil, errors.New("api/all=false alone leaves nothing to serve")
	}
	return p, nil
}

// add notes a version or a resource.
func (p *preferences) add(key string, on bool, all *Registry) error {
	parts := strings.Split(key, "/")
	if len(parts) == 1 {
		parts = []string{"", key} // the core group
	}
	if len(parts) > 3 || len(parts) < 2 || parts[1] == "" {
		return fmt.Errorf("invalid key %s: want api/all, api/ga, api/beta, api/alpha, GROUP/VERSION or GROUP/VERSION/RESOURCE", key)
	}
	gv := schema.GroupVersion{Group: parts[0], Version: parts[1]}
	if !slices.ContainsFunc(all.All(), func(r *Resource) bool { return r.Group == gv.Group }) {
		return fmt.Errorf("unknown api groups %s", gv)
	}
	if !all.HasGroupVersion(gv) {
		return fmt.Errorf("group version %s that has not been registered", gv)
	}
	if len(parts) == 2 {
		p.versions[gv] = on
		return nil
	}
	gvr := gv.WithResource(parts[2])
	if all.Lookup(gvr) == nil {
		return fmt.Errorf("invalid key %s: there is no such resource in %s (its name is the plural, in lower case)", key, gv)
	}
	p.resources[gvr] = on
	return nil
}
