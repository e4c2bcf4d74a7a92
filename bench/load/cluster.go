package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/quorate/quorate/bench/client"
)

// cluster is what this program needs of a playground's cluster.json. A node without
// an API is not asked anything: only what it costs counts.
type cluster struct{ client.Cluster }

// pids are the processes whose CPU time and memory are counted.
func (c *cluster) pids() []int {
	pids := make([]int, len(c.Nodes))
	for i, n := range c.Nodes {
		pids[i] = n.PID
	}
	return pids
}

// servers are the indexes of the nodes with an API.
func (c *cluster) servers() []int {
	var list []int
	for i, n := range c.Nodes {
		if n.API != "" {
			list = append(list, i)
		}
	}
	return list
}

// connections is how many connections the load comes over.
const connections = 8

// connect opens n connections, the servers taking turns.
func (c *cluster) connect(ctx context.Context, n int) ([]*client.Conn, error) {
	servers := c.servers()
	if len(servers) == 0 {
		return nil, errors.New("connect: no node has an API")
	}
	var conns []*client.Conn
	for i := range n {
		node := c.Nodes[servers[i%len(servers)]]
		u, err := url.Parse(node.API)
		if err == nil {
			var one *client.Conn
			if one, err = client.Dial(ctx, u, c.TLS); err == nil {
				conns = append(conns, one)
				continue
			}
		}
		return nil, errors.Join(fmt.Errorf("connect to %s: %w", node.Name, err), client.CloseAll(conns))
	}
	return conns, nil
}
