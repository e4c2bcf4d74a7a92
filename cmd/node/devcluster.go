package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/quorate/quorate/membership/pki"
)

// devCluster is cluster.json: what programs need to know of a playground.
type devCluster struct {
	Nodes                 []*devNode `json:"nodes"`
	Kubeconfig            string     `json:"kubeconfig"`
	CAFile                string     `json:"caFile"`
	AdminCertFile         string     `json:"adminCertFile"`
	AdminKeyFile          string     `json:"adminKeyFile"`
	ServiceAccountKeyFile string     `json:"serviceAccountKeyFile"`

	dir string
	// tied nodes end with this process, however it ends.
	tied bool
}

// devNode is one node of a playground.
type devNode struct {
	Name    string `json:"name"`
	PID     int    `json:"pid"`
	API     string `json:"api"`
	Peer    string `json:"peer"`
	DataDir string `json:"dataDir"`
	Log     string `json:"log"`

	child *exec.Cmd
}

// errNoCluster is returned for a directory without a cluster.json.
var errNoCluster = errors.New("there is no playground cluster")

func clusterFile(dir string) string { return filepath.Join(dir, "cluster.json") }

// readCluster reads the cluster.json of a playground.
func readCluster(dir string) (*devCluster, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(clusterFile(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w in %s: start one with 'quorate dev --data-dir %s'", errNoCluster, dir, dir)
	}
	if err != nil {
		return nil, err
	}
	c := &devCluster{dir: dir}
	if err := json.Unmarshal(b, c); err != nil {
		return nil, fmt.Errorf("%s: %w", clusterFile(dir), err)
	}
	return c, nil
}

func (c *devCluster) write() error {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return pki.WriteFile(clusterFile(c.dir), append(b, '\n'), 0o600)
}

// openCluster returns the cluster of a data directory, made anew if it has none:
// the shared secret, a configuration file per node, certificates, kubeconfig.
func openCluster(o devOptions) (*devCluster, error) {
	dir, err := filepath.Abs(o.dataDir)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := filepath.Abs(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	set, err := parseSettings(o.set)
	if err != nil {
		return nil, err
	}
	c, err := readCluster(dir)
	if err == nil {
		c.Kubeconfig = kubeconfig
		return c, errors.Join(c.changeSettings(set), c.credentials())
	}
	if !errors.Is(err, errNoCluster) {
		return nil, err
	}
	if o.nodes < 1 || o.nodes > 9 {
		return nil, fmt.Errorf("--nodes %d: must be 1 to 9", o.nodes)
	}
	all := o.nodes + o.nonvoters
	if o.nonvoters < 0 || all > 9 {
		return nil, fmt.Errorf("--nonvoters %d: must be 0 to %d with --nodes %d", o.nonvoters, 9-o.nodes, o.nodes)
	}
	if o.apiPort < 1 || o.apiPort+1000+all-1 > 65535 {
		return nil, fmt.Errorf("--api-port %d: must leave room for %d ports here and 1000 higher", o.apiPort, all)
	}
	c = &devCluster{dir: dir, Kubeconfig: kubeconfig}
	peers := make([]string, all)
	for i := range all {
		name := fmt.Sprintf("n%d", i+1)
		peers[i] = fmt.Sprintf("127.0.0.1:%d", o.apiPort+1000+i)
		c.Nodes = append(c.Nodes, &devNode{
			Name:    name,
			API:     fmt.Sprintf("https://127.0.0.1:%d", o.apiPort+i),
			Peer:    peers[i],
			DataDir: filepath.Join(dir, name),
			Log:     filepath.Join(dir, name+".log"),
		})
	}
	for i, n := range c.Nodes {
		if err := c.writeSettings(n, peers[:o.nodes], i >= o.nodes, set); err != nil {
			return nil, err
		}
	}
	return c, c.credentials()
}

// credentials makes the shared secret, if there is none, and from it the
// administrator's certificate and kubeconfig.
func (c *devCluster) credentials() error {
	secrets, _, err := pki.LoadOrCreateSecrets(filepath.Join(c.dir, "token"))
	if err != nil {
		return err
	}
	dir := filepath.Join(c.dir, "pki")
	admin, err := pki.Open(pki.Options{Dir: dir, Secrets: secrets, AdminOnly: true})
	if err != nil {
		return err
	}
	c.CAFile, c.AdminCertFile, c.AdminKeyFile = filepath.Join(dir, pki.FileAPICA), filepath.Join(dir, pki.FileAdminCert), filepath.Join(dir, pki.FileAdminKey)
	c.ServiceAccountKeyFile = filepath.Join(dir, pki.FileAccountKey)
	cert, key := admin.Admin()
	k := pki.Kubeconfig{CA: admin.APICAs(), Cert: cert, Key: key}
	for _, n := range c.Nodes {
		k.Endpoints = append(k.Endpoints, pki.Endpoint{Name: "quorate-" + n.Name, Server: n.API})
	}
	return k.Write(c.Kubeconfig)
}

func (c *devCluster) node(name string) *devNode {
	for _, n := range c.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// down reports whether no node runs.
func (c *devCluster) down() bool {
	for _, n := range c.Nodes {
		if n.running() {
			return false
		}
	}
	return true
}

func (c *devCluster) names() []string {
	var names []string
	for _, n := range c.Nodes {
		names = append(names, n.Name)
	}
	return names
}

// start starts a node's process in a session of its own, so that it outlives
// this one, and notes its pid.
func (c *devCluster) start(n *devNode) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(n.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	n.child = exec.Command(self, "node", "--config", c.settingsFile(n))
	n.child.Stdout, n.child.Stderr = log, log
	n.child.Env = c.environment(os.Environ(), runtime.NumCPU())
	n.child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if c.tied {
		dieWithParent(n.child.SysProcAttr)
	}
	if err := n.child.Start(); err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	n.PID = n.child.Process.Pid
	return c.write()
}

// environment is that of a playground's node: without our own variables, since
// the nodes have files, and with a fair share of the processors. Nodes that may
// each use all of them wake and spin them for each other. But never one alone:
// then everything waits while a sync of the disk blocks it, and writes cost an
// eighth more. GOMAXPROCS of the caller goes before it.
func (c *devCluster) environment(env []string, processors int) []string {
	share := "GOMAXPROCS=" + strconv.Itoa(max(2, (processors+len(c.Nodes)-1)/len(c.Nodes)))
	var out []string
	for _, e := range env {
		if strings.HasPrefix(e, "GOMAXPROCS=") {
			share = e
		}
		if !strings.HasPrefix(e, envPrefix) {
			out = append(out, e)
		}
	}
	return append(out, share)
}

// running reports whether the noted process is alive and a node of this
// directory, not another program that got its pid.
func (n *devNode) running() bool {
	if n.PID == 0 {
		return false
	}
	proc := filepath.Join("/proc", strconv.Itoa(n.PID))
	line, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil || len(line) > 0 {
		return err == nil && bytes.Contains(line, []byte(n.DataDir+".yaml"))
	}
	// A process that has ended and waits for its parent has no command line, and for
	// a moment neither has one that is being started.
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	return err == nil && !bytes.Contains(stat, []byte(") Z ")) && !bytes.Contains(stat, []byte(") X "))
}

// waitReady waits until the nodes answer /readyz. It fails at once when one of
// them exits, with the end of its log.
func (c *devCluster) waitReady(ctx context.Context, nodes ...*devNode) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	for _, n := range nodes {
		for {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.API+"/readyz", nil)
			if err != nil {
				return err
			}
			if resp, err := client.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
				resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					break
				}
			}
			if !n.running() {
				return fmt.Errorf("%s has exited; the end of %s:\n%s", n.Name, n.Log, tail(n.Log, 2000))
			}
			select {
			case <-ctx.Done():
				if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
					return context.Cause(ctx)
				}
				return fmt.Errorf("%s is not ready after %s (%w); the end of %s:\n%s", n.Name, readyWithin, ctx.Err(), n.Log, tail(n.Log, 2000))
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return nil
}

// client trusts the cluster's CA and presents the administrator's certificate.
func (c *devCluster) client() (*http.Client, error) {
	config, err := c.tls()
	if err != nil {
		return nil, err
	}
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: config}}, nil
}

func (c *devCluster) tls() (*tls.Config, error) {
	ca, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s holds no certificate", c.CAFile)
	}
	cert, err := tls.LoadX509KeyPair(c.AdminCertFile, c.AdminKeyFile)
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13}, nil
}

// stopWithin is how long the nodes may take to shut down before they are killed,
// goneWithin how long a killed one may take to be gone.
const (
	stopWithin = 30 * time.Second
	goneWithin = 5 * time.Second
)

// stop ends all nodes, gently first, and waits until they are gone.
func (c *devCluster) stop(ctx context.Context, out io.Writer) error {
	gently, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	var errs []error
	for _, n := range c.Nodes {
		if n.running() {
			// A node that somebody has paused hears nothing before it goes on.
			errs = append(errs, n.signal(syscall.SIGTERM), n.signal(syscall.SIGCONT))
		}
	}
	for _, n := range c.Nodes {
		if n.waitGone(gently) {
			fmt.Fprintf(out, "%s has stopped\n", n.Name)
			continue
		}
		errs = append(errs, fmt.Errorf("%s did not stop within %s and was killed", n.Name, stopWithin), n.signal(syscall.SIGKILL))
		killed, cancel := context.WithTimeout(context.WithoutCancel(ctx), goneWithin)
		if !n.waitGone(killed) {
			errs = append(errs, fmt.Errorf("%s is still there (pid %d)", n.Name, n.PID))
		}
		cancel()
	}
	return errors.Join(errs...)
}

// signal sends a signal; a process that has gone meanwhile needs none.
func (n *devNode) signal(s syscall.Signal) error {
	if err := syscall.Kill(n.PID, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%s to %s: %w", s, n.Name, err)
	}
	return nil
}

// waitGone waits until the node's process is gone, at most until ctx ends.
func (n *devNode) waitGone(ctx context.Context) bool {
	for n.running() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
	return true
}

// tail returns the end of a file, for error messages.
func tail(path string, n int64) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > n {
		if _, err := f.Seek(-n, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, n))
	if err != nil {
		return err.Error()
	}
	return string(b)
}
