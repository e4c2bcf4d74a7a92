package modes

import (
	"context"
	"fmt"
	"slices"

	"github.com/quorate/quorate/bench/client"
)

// target is a node with its role.
type target struct {
	client.Node
	role client.Role
}

// findRoles asks every node what it is.
func findRoles(ctx context.Context, c client.Cluster) ([]target, error) {
	roles, err := c.Roles(ctx)
	var all []target
	for i, role := range roles {
		all = append(all, target{c.Servers()[i], role})
	}
	return all, err
}

// choose picks the wanted nodes, each once, in the order of the roles. A role that
// no node has is left out and told; a name that no node has is an error. Servers that have no roles are all meant
// where roles are asked for.
func choose(all []target, wanted []string) (chosen []target, missing []client.Role, err error) {
	isRole := func(w string) bool { return slices.Contains(AllRoles, client.Role(w)) }
	if !slices.ContainsFunc(all, func(t target) bool { return t.role != client.Server }) && !slices.ContainsFunc(wanted, func(w string) bool { return !isRole(w) }) {
		return all, nil, nil
	}
	for _, w := range wanted {
		at := slices.IndexFunc(all, func(t target) bool { return t.Name == w || string(t.role) == w })
		switch {
		case at >= 0:
			if !slices.Contains(chosen, all[at]) {
				chosen = append(chosen, all[at])
			}
		case isRole(w):
			missing = append(missing, client.Role(w))
		default:
			return nil, nil, fmt.Errorf("nodes: there is no node or role %q", w)
		}
	}
	if len(chosen) == 0 {
		return nil, missing, fmt.Errorf("nodes: no node is %s", join(missing))
	}
	slices.SortStableFunc(chosen, func(a, b target) int {
		return slices.Index(AllRoles, a.role) - slices.Index(AllRoles, b.role)
	})
	return chosen, missing, nil
}
