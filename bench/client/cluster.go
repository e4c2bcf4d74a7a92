package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
)

// Role is a node's part in the cluster, as its answers name it.
type Role string

// The roles of nodes.
const (
	Leader   Role = "leader"
	Follower Role = "follower"
	Nonvoter Role = "nonvoter"
)

// Node is one server.
type Node struct {
	Name string
	API  string // https://host:port
	PID  int    // zero if it is on another host or unknown; then its CPU time is not counted
}

// Cluster is what is measured. Its nodes and the caller share a clock, or nothing
// is said about the bound in answers' headers.
type Cluster struct {
	Nodes []Node
	// TLS has the cluster's CA and a certificate that may read, write and see
	// metrics.
	TLS *tls.Config
	// Dir is where the nodes' data lie, for the report; empty if unknown.
	Dir string
}

// Dial opens a connection to a node.
func (n Node) Dial(ctx context.Context, config *tls.Config) (*Conn, error) {
	u, err := url.Parse(n.API)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", n.Name, err)
	}
	config = config.Clone()
	config.NextProtos = []string{"h2"}
	c, err := Dial(ctx, u, config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", n.Name, err)
	}
	return c, nil
}

// Role asks a node what it is.
func (n Node) Role(ctx context.Context, config *tls.Config) (Role, error) {
	conn, err := n.Dial(ctx, config)
	if err != nil {
		return "", err
	}
	var buf bytes.Buffer
	header, err := conn.Do(ctx, Request{Method: "GET", Path: "/version", Header: Plain}, &buf)
	if err = errors.Join(err, conn.Close()); err != nil {
		return "", fmt.Errorf("ask %s for its role: %w", n.Name, err)
	}
	return Role(header.Get("X-Quorate-Role")), nil
}

// ErrNoLeader is returned when no node says that it leads.
var ErrNoLeader = errors.New("no node leads: the cluster has no quorum, or is electing")

// Roles asks every node what it is, in their order. All must answer, and one must lead.
func (c Cluster) Roles(ctx context.Context) ([]Role, error) {
	var roles []Role
	for _, n := range c.Nodes {
		role, err := n.Role(ctx, c.TLS)
		if err != nil {
			return nil, err
		}
		roles = append(roles, role)
	}
	if !slices.Contains(roles, Leader) {
		return nil, ErrNoLeader
	}
	return roles, nil
}
