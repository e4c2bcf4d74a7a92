package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
)

// Role is a node's part in the cluster, as its answers name it.
type Role string

// The roles of nodes.
const (
	Leader   Role = "leader"
	Follower Role = "follower"
	Nonvoter Role = "nonvoter"
	Server   Role = "server" // of the Kubernetes API, which says nothing of roles
)

// RoleOf is the role in an answer's header.
func RoleOf(h http.Header) Role {
	if role := Role(h.Get("X-Quorate-Role")); role != "" {
		return role
	}
	return Server
}

// Node is one server. One without an API is not asked anything: only what its process costs counts.
type Node struct {
	Name string `json:"name"`
	API  string `json:"api"` // https://host:port
	PID  int    `json:"pid"` // zero if it is on another host or unknown; then its CPU time is not counted
}

// Cluster is what is measured. Its nodes and the caller share a clock, or nothing
// is said about the bound in answers' headers.
type Cluster struct {
	Nodes []Node
	// TLS has the cluster's CA and a certificate that may read, write and see
	// metrics.
	TLS *tls.Config
	// Token, if there is one, is a bearer token that may do the same.
	Token string
	// Dir is where the nodes' data lie, for the report; empty if unknown.
	Dir string
}

// ReadCluster reads the cluster.json of a playground.
func ReadCluster(file string) (Cluster, error) {
	var c Cluster
	raw, err := os.ReadFile(file)
	if err != nil {
		return c, fmt.Errorf("read the cluster: %w", err)
	}
	var said struct {
		Nodes         []Node `json:"nodes"`
		CAFile        string `json:"caFile"`
		AdminCertFile string `json:"adminCertFile"`
		AdminKeyFile  string `json:"adminKeyFile"`
	}
	if err := json.Unmarshal(raw, &said); err != nil {
		return c, fmt.Errorf("read the cluster %s: %w", file, err)
	}
	if len(said.Nodes) == 0 {
		return c, fmt.Errorf("read the cluster %s: it has no nodes", file)
	}
	pair, err := tls.LoadX509KeyPair(said.AdminCertFile, said.AdminKeyFile)
	if err != nil {
		return c, fmt.Errorf("load the administrator's certificate: %w", err)
	}
	pem, err := os.ReadFile(said.CAFile)
	if err != nil {
		return c, fmt.Errorf("load the cluster's CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return c, fmt.Errorf("load the cluster's CA: no certificate in %s", said.CAFile)
	}
	c.Nodes = said.Nodes
	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}
	return c, nil
}

// Servers are the nodes with an API.
func (c Cluster) Servers() []Node {
	return slices.DeleteFunc(slices.Clone(c.Nodes), func(n Node) bool { return n.API == "" })
}

// PIDs are the processes whose CPU time and memory are counted; names are those of their nodes.
func (c Cluster) PIDs() (pids []int, names []string) {
	for _, n := range c.Nodes {
		if n.PID != 0 {
			pids, names = append(pids, n.PID), append(names, n.Name)
		}
	}
	return pids, names
}

// Dial opens a connection to a node, which sends the cluster's token.
func (c Cluster) Dial(ctx context.Context, n Node) (*Conn, error) {
	conn, err := n.Dial(ctx, c.TLS)
	if err == nil {
		conn.Authorize(c.Token)
	}
	return conn, err
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
func (c Cluster) Role(ctx context.Context, n Node) (Role, error) {
	conn, err := c.Dial(ctx, n)
	if err != nil {
		return "", err
	}
	var buf bytes.Buffer
	header, err := conn.Do(ctx, Request{Method: "GET", Path: "/version", Header: Plain}, &buf)
	if err = errors.Join(err, conn.Close()); err != nil {
		return "", fmt.Errorf("ask %s for its role: %w", n.Name, err)
	}
	return RoleOf(header), nil
}

// ErrNoLeader is returned when no node says that it leads.
var ErrNoLeader = errors.New("no node leads: the cluster has no quorum, or is electing")

// Roles asks every server what it is, in their order. All must answer, and one must lead, unless none of them has roles.
func (c Cluster) Roles(ctx context.Context) ([]Role, error) {
	var roles []Role
	for _, n := range c.Servers() {
		role, err := c.Role(ctx, n)
		if err != nil {
			return nil, err
		}
		roles = append(roles, role)
	}
	if !slices.Contains(roles, Leader) && slices.ContainsFunc(roles, func(r Role) bool { return r != Server }) {
		return nil, ErrNoLeader
	}
	return roles, nil
}
