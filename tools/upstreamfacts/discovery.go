package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

type groupList struct {
	Items []struct {
		Metadata struct{ Name string }
		Versions []struct {
			Version   string
			Resources []struct {
				Resource, Scope, SingularResource string
				ResponseKind                      kind
				Verbs, ShortNames, Categories     []string
				Subresources                      []struct {
					Subresource  string
					ResponseKind *kind
					Verbs        []string
				}
			}
		}
	}
}

type kind struct{ Group, Version, Kind string }

func (k *kind) String() string {
	switch {
	case k == nil || k.Kind == "":
		return "-"
	case k.Group == "" && k.Version == "":
		return k.Kind
	}
	return k.Group + "/" + k.Version + "." + k.Kind
}

type resourceList struct {
	GroupVersion string
	Resources    []struct{ Name, StorageVersionHash string }
}

// discoveryFacts joins the aggregated document, which names kinds in full, with
// those of each group version, which alone have storage version hashes.
func discoveryFacts(dir string) ([]string, error) {
	hashes := map[string]string{}
	files, err := filepath.Glob(filepath.Join(dir, "api*__v*.json"))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		var l resourceList
		if err := read(f, &l); err != nil {
			return nil, err
		}
		for _, r := range l.Resources {
			hashes[l.GroupVersion+" "+r.Name] = r.StorageVersionHash
		}
	}
	var groups groupList
	if err := read(filepath.Join(dir, "aggregated_v2.json"), &groups); err != nil {
		return nil, err
	}
	// The aggregated document of /api is not published; its group version is.
	core, err := coreFacts(filepath.Join(dir, "api__v1.json"))
	if err != nil {
		return nil, err
	}
	lines := core
	for _, g := range groups.Items {
		name := g.Metadata.Name
		for _, v := range g.Versions {
			gv := name + "/" + v.Version
			for _, r := range v.Resources {
				lines = append(lines, fmt.Sprintf("%s %s kind=%s scope=%s singular=%s verbs=%s short=%s categories=%s hash=%s",
					gv, r.Resource, &r.ResponseKind, r.Scope, r.SingularResource, sorted(r.Verbs),
					strings.Join(r.ShortNames, ","), strings.Join(r.Categories, ","), hashes[gv+" "+r.Resource]))
				for _, s := range r.Subresources {
					lines = append(lines, fmt.Sprintf("%s %s/%s kind=%s verbs=%s", gv, r.Resource, s.Subresource, s.ResponseKind, sorted(s.Verbs)))
				}
			}
		}
	}
	return lines, nil
}

func coreFacts(file string) ([]string, error) {
	var list struct {
		Resources []struct {
			Name, SingularName, Group, Version, Kind string
			Namespaced                               bool
			Verbs, ShortNames, Categories            []string
			StorageVersionHash                       string
		}
	}
	if err := read(file, &list); err != nil {
		return nil, err
	}
	var lines []string
	for _, r := range list.Resources {
		k := &kind{Group: r.Group, Version: r.Version, Kind: r.Kind}
		if strings.Contains(r.Name, "/") {
			lines = append(lines, fmt.Sprintf("v1 %s kind=%s verbs=%s", r.Name, k, sorted(r.Verbs)))
			continue
		}
		scope := "Cluster"
		if r.Namespaced {
			scope = "Namespaced"
		}
		lines = append(lines, fmt.Sprintf("v1 %s kind=%s scope=%s singular=%s verbs=%s short=%s categories=%s hash=%s",
			r.Name, k, scope, r.SingularName, sorted(r.Verbs), strings.Join(r.ShortNames, ","), strings.Join(r.Categories, ","), r.StorageVersionHash))
	}
	return lines, nil
}

func sorted(verbs []string) string {
	verbs = slices.Clone(verbs)
	slices.Sort(verbs)
	return strings.Join(verbs, ",")
}
