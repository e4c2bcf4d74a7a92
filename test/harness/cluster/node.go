package cluster

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Node is one process of a cluster.
type Node struct {
	Name string
	API  string // https://host:port
	Peer string // host:port
	Log  string

	Cluster *Cluster
	PID     int
	http    *http.Client
}

// Running reports whether the node's process is alive.
func (n *Node) Running() bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", n.PID))
	if err != nil || len(line) > 0 {
		return err == nil && bytes.Contains(line, []byte(n.Cluster.Dir))
	}
	// A zombie has no command line, and for a moment neither has a process that is
	// being started.
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.PID))
	return err == nil && !bytes.Contains(stat, []byte(") Z ")) && !bytes.Contains(stat, []byte(") X "))
}

// Config is the administrator's configuration for client-go. There is no limit
// on the rate of requests.
func (n *Node) Config() *rest.Config {
	return &rest.Config{
		Host: n.API,
		TLSClientConfig: rest.TLSClientConfig{
			CAFile: n.Cluster.CAFile, CertFile: n.Cluster.adminCertFile, KeyFile: n.Cluster.adminKeyFile,
		},
		QPS: -1,
	}
}

// Typed is a typed client of this node alone. It speaks protobuf.
func (n *Node) Typed(t testing.TB) kubernetes.Interface {
	t.Helper()
	cfg := n.Config()
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Client is for a kubeconfig, without limits of its own.
func Client(t testing.TB, kubeconfig string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	config.Timeout = 0
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Dynamic is a dynamic client of this node alone. It speaks JSON.
func (n *Node) Dynamic(t testing.TB) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(n.Config())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// HTTP is a client with the administrator's certificate.
func (n *Node) HTTP(t testing.TB) *http.Client {
	t.Helper()
	if n.http == nil {
		tlsConfig, err := n.TLS()
		if err != nil {
			t.Fatal(err)
		}
		n.http = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true}}
	}
	return n.http
}

// TLS is the administrator's configuration for connections.
func (n *Node) TLS() (*tls.Config, error) { return rest.TLSConfigFor(n.Config()) }

func (n *Node) closeClients() {
	if n.http != nil {
		n.http.CloseIdleConnections()
	}
}

// Get reads a path of this node with the administrator's certificate.
func (n *Node) Get(t testing.TB, path string) ([]byte, *http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.API+path, nil)
	if err != nil {
		return nil, nil, err
	}
	resp, err := n.HTTP(t).Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return body, resp, err
}

// MustGet is Get of something that must be there.
func (n *Node) MustGet(t testing.TB, path string) []byte {
	t.Helper()
	body, resp, err := n.Get(t, path)
	if err != nil {
		t.Fatalf("%s: GET %s: %v", n.Name, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: GET %s: %s: %s", n.Name, path, resp.Status, body)
	}
	return body
}

// Status is what `quorate status -o json` prints, as far as tests need it.
type Status struct {
	Quorum  bool
	Voters  int
	Members []struct {
		ID, Name, Role, PeerAddress, Error string
		Voter, Leader                      bool
		Applied, Commit, Lag, Floor        uint64
	}
}

// Status asks this node for the cluster's status.
func (n *Node) Status(t testing.TB) (Status, error) {
	t.Helper()
	var st Status
	body, resp, err := n.Get(t, "/quorate/v1/status")
	if err != nil {
		return st, err
	}
	if resp.StatusCode != http.StatusOK {
		return st, fmt.Errorf("status: %s: %s", resp.Status, body)
	}
	return st, json.Unmarshal(body, &st)
}

// Metric returns the sum of a metric's series on this node.
func (n *Node) Metric(t testing.TB, name string) float64 {
	t.Helper()
	v, ok := n.LookupMetric(t, name)
	if !ok {
		t.Fatalf("%s has no metric %s", n.Name, name)
	}
	return v
}

// LookupMetric is Metric for those, such as counters with labels, that show only
// once something was counted.
func (n *Node) LookupMetric(t testing.TB, name string) (sum float64, ok bool) {
	t.Helper()
	for lines := bufio.NewScanner(bytes.NewReader(n.MustGet(t, "/metrics"))); lines.Scan(); {
		line := lines.Text()
		value := line[strings.LastIndexByte(line, ' ')+1:]
		series, _, _ := strings.Cut(strings.TrimSuffix(line, " "+value), "{")
		if series != name {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%s: metric %q: %v", n.Name, line, err)
		}
		sum, ok = sum+v, true
	}
	return sum, ok
}

// Descriptors is the number of open file descriptors of the node's process.
func (n *Node) Descriptors(t testing.TB) int {
	t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.PID))
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// StateHash saves a snapshot from this node and returns the revision and the
// hash of the whole state, history included, that stand in it.
func (n *Node) StateHash(t testing.TB) (revision, hash string) {
	t.Helper()
	file := filepath.Join(n.Cluster.Dir, "hash-of-"+n.Name)
	// Its own directory has a kubeconfig for this node alone.
	out := n.Cluster.Quorate(t, "snapshot", "save", file, "--kubeconfig", filepath.Join(n.Cluster.Dir, n.Name, "admin.kubeconfig"))
	for lines := bufio.NewScanner(strings.NewReader(out)); lines.Scan(); {
		switch key, value, _ := strings.Cut(lines.Text(), ":"); key {
		case "revision":
			revision = strings.TrimSpace(value)
		case "hash":
			hash = strings.TrimSpace(value)
		}
	}
	if revision == "" || hash == "" {
		t.Fatalf("no hash in:\n%s", out)
	}
	return revision, hash
}
