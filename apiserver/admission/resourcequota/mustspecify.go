package resourcequota

import (
	"errors"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/types/tree"
)

// mandatory are the bounds that every container of a Pod must say something about, and where:
// a mistake of the first quotas that cannot be taken back.
var mandatory = []struct{ name, list, resource string }{
	{"cpu", "requests", "cpu"},
	{"limits.cpu", "limits", "cpu"},
	{"limits.memory", "limits", "memory"},
	{"memory", "requests", "memory"},
	{"requests.cpu", "requests", "cpu"},
	{"requests.memory", "requests", "memory"},
}

// mustSpecify names the containers that do not say what a quota bounds. A Pod that says it for
// all of them together need not.
func mustSpecify(pod tree.Object, bounds []string) error {
	spec := tree.As(pod["spec"])
	if saysOfAll(tree.As(spec["resources"])) {
		return nil
	}
	var missing []string
	for _, m := range mandatory {
		if !slices.Contains(bounds, m.name) {
			continue
		}
		var containers []string
		for _, kind := range [...]string{"containers", "initContainers"} {
			for _, c := range tree.List(spec[kind]) {
				container := tree.As(c)
				if tree.Field(container, "resources", m.list, m.resource) == nil {
					containers = append(containers, tree.Text(container, "name"))
				}
			}
		}
		if len(containers) > 0 {
			slices.Sort(containers)
			missing = append(missing, m.name+" for: "+strings.Join(slices.Compact(containers), ","))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return errors.New("must specify " + strings.Join(missing, "; "))
}

// specifiesAll reports whether no quota can make a Pod say more.
func specifiesAll(pod tree.Object) bool {
	spec := tree.As(pod["spec"])
	if saysOfAll(tree.As(spec["resources"])) {
		return true
	}
	for _, kind := range [...]string{"containers", "initContainers"} {
		for _, c := range tree.List(spec[kind]) {
			resources := tree.As(tree.As(c)["resources"])
			for _, m := range mandatory {
				if tree.As(resources[m.list])[m.resource] == nil {
					return false
				}
			}
		}
	}
	return true
}

// saysOfAll reports whether resources of a Pod as a whole say something that counts.
func saysOfAll(resources tree.Object) bool {
	for _, list := range [...]string{"requests", "limits"} {
		for name := range tree.As(resources[list]) {
			if name == "cpu" || name == "memory" || strings.HasPrefix(name, "hugepages-") {
				return true
			}
		}
	}
	return false
}
