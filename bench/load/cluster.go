package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/quorate/quorate/bench/client"
)

// cluster is what this program needs of a playground's cluster.json. A node without
// an API is not asked anything: only what it costs counts.
type cluster struct {
	Nodes []struct {
		Name string `json:"name"`
		PID  int    `json:"pid"`
		API  string `json:"api"`
	} `json:"nodes"`
	CAFile        string `json:"caFile"`
	AdminCertFile string `json:"adminCertFile"`
	AdminKeyFile  string `json:"adminKeyFile"`
}

func readCluster(file string) (*cluster, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the cluster: %w", err)
	}
	c := &cluster{}
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, fmt.Errorf("read the cluster %s: %w", file, err)
	}
	if len(c.Nodes) == 0 {
		return nil, fmt.Errorf("read the cluster %s: it has no nodes", file)
	}
	return c, nil
}

// pids are the processes whose CPU time and memory are counted.
func (c *cluster) pids() []int {
	pids := make([]int, len(c.Nodes))
	for i, n := range c.Nodes {
		pids[i] = n.PID
	}
	return pids
}

func (c *cluster) tls() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.AdminCertFile, c.AdminKeyFile)
	if err != nil {
		return nil, fmt.Errorf("load the administrator's certificate: %w", err)
	}
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("load the cluster's CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("load the cluster's CA: no certificate in %s", c.CAFile)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}, nil
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
	config, err := c.tls()
	if err != nil {
		return nil, err
	}
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
			if one, err = client.Dial(ctx, u, config); err == nil {
				conns = append(conns, one)
				continue
			}
		}
		return nil, errors.Join(fmt.Errorf("connect to %s: %w", node.Name, err), client.CloseAll(conns))
	}
	return conns, nil
}
