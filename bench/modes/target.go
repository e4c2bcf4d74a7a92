package modes

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/quorate/quorate/bench/client"
)

// target is a node with its role.
type target struct {
	Node
	role Role
}

// dial opens a connection to a node.
func (n Node) dial(ctx context.Context, config *tls.Config) (*client.Conn, error) {
	u, err := url.Parse(n.API)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", n.Name, err)
	}
	config = config.Clone()
	config.NextProtos = []string{"h2"}
	c, err := client.Dial(ctx, u, config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", n.Name, err)
	}
	return c, nil
}

// findRoles asks every node what it is. All must answer.
func findRoles(ctx context.Context, c Cluster) ([]target, error) {
	var all []target
	for _, n := range c.Nodes {
		conn, err := n.dial(ctx, c.TLS)
		if err != nil {
			return nil, err
		}
		var buf bytes.Buffer
		header, err := conn.Do(ctx, client.Request{Method: "GET", Path: "/version", Header: client.Plain}, &buf)
		if err = errors.Join(err, conn.Close()); err != nil {
			return nil, fmt.Errorf("ask %s for its role: %w", n.Name, err)
		}
		all = append(all, target{n, Role(header.Get("X-Quorate-Role"))})
	}
	if !slices.ContainsFunc(all, func(t target) bool { return t.role == Leader }) {
		return nil, errors.New("no node leads: the cluster has no quorum, or is electing")
	}
	return all, nil
}

// choose picks the wanted nodes, each once, in the order of the roles. A role that
// no node has is left out and told; a name that no node has is an error.
func choose(all []target, wanted []string) (chosen []target, missing []Role, err error) {
	for _, w := range wanted {
		at := slices.IndexFunc(all, func(t target) bool { return t.Name == w || string(t.role) == w })
		switch {
		case at >= 0:
			if !slices.Contains(chosen, all[at]) {
				chosen = append(chosen, all[at])
			}
		case slices.Contains(AllRoles, Role(w)):
			missing = append(missing, Role(w))
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
