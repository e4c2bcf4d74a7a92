//go:build linux && amd64

package chaos

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/membership/pki"
	"github.com/quorate/quorate/test/chaos/clock"
	"github.com/quorate/quorate/test/chaos/host"
	"github.com/quorate/quorate/test/chaos/lazyfs"
)

// Shape is what a cluster is made of.
type Shape struct {
	Voters, Nonvoters int
	Network           bool     // machines on a switch, instead of this machine's loopback
	Disks             bool     // disks that can be without current, slow, full
	Clocks            bool     // clocks that can be moved; Binary was built by package clock
	Settings          []string // of every node: "--flag=value"
	Env               []string // of every node
}

// Cluster is a cluster of processes in a directory.
type Cluster struct {
	mu     sync.Mutex
	nodes  []*Node
	Switch *host.Switch // nil without Network

	dir      string
	binary   string
	settings []string
	env      []string
	founders []*Node
	shape    Shape
	tls      *tls.Config
	// Joined returns the present members, once there is a cluster.
	Joined func() []*Node
	// surprise is told of processes that end without a reason.
	surprise func(n *Node, err error)
}

// NewCluster makes the machines of a cluster; no process is started.
func NewCluster(dir, binary string, s Shape) (_ *Cluster, err error) {
	c := &Cluster{dir: dir, binary: binary, settings: s.Settings, env: s.Env, shape: s,
		surprise: func(*Node, error) {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	if err := os.WriteFile(c.tokenFile(), []byte(hex.EncodeToString(secret)+"\n"), 0o600); err != nil {
		return nil, err
	}
	if s.Network {
		c.Switch = host.NewSwitch()
	}
	for range s.Voters {
		n, err := c.Add()
		if err != nil {
			return nil, err
		}
		c.founders = append(c.founders, n)
	}
	for range s.Nonvoters {
		n, err := c.Add()
		if err != nil {
			return nil, err
		}
		n.nonvoter = true
	}
	return c, nil
}

// Nodes returns all machines, also those that were removed from the cluster.
func (c *Cluster) Nodes() []*Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.nodes)
}

func (c *Cluster) tokenFile() string { return filepath.Join(c.dir, "token") }

// Add makes a further machine. Its process, once started, asks to join.
func (c *Cluster) Add() (*Node, error) {
	number := len(c.Nodes()) + 1
	n := &Node{c: c, Name: fmt.Sprintf("n%d", number)}
	n.dir = filepath.Join(c.dir, n.Name)
	if err := os.Mkdir(n.dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	if n.host, err = host.New(host.Options{Network: c.shape.Network, Mounts: c.shape.Disks}); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.nodes = append(c.nodes, n)
	c.mu.Unlock()
	if c.shape.Network {
		n.addr = netip.AddrFrom4([4]byte{10, 77, 0, byte(number)})
		if err := c.Switch.Plug(n.host, n.addr); err != nil {
			return nil, err
		}
		n.API, n.Peer = n.addr.String()+":6443", n.addr.String()+":7443"
	} else if n.API, n.Peer, err = freeAddresses(); err != nil {
		return nil, err
	}
	if c.shape.Disks {
		n.disk = lazyfs.New()
	}
	if c.shape.Clocks {
		if n.clock, err = clock.New(n.dir + ".clock"); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// freeAddresses returns two loopback addresses below the range from which the
// kernel takes ports for connections, so that a restarted node finds its own free.
func freeAddresses() (api, peer string, err error) {
	for range 200 {
		port := 10000 + mathrand.IntN(20000)
		addresses := [2]string{fmt.Sprintf("127.0.0.1:%d", port), fmt.Sprintf("127.0.0.1:%d", port+1)}
		free := true
		for _, a := range addresses {
			l, err := net.Listen("tcp4", a)
			if err != nil {
				free = false
				continue
			}
			l.Close()
		}
		if free {
			return addresses[0], addresses[1], nil
		}
	}
	return "", "", errors.New("no free ports found")
}

// peers are the addresses that a node gets to look for the others: the founders',
// and those of whom a scenario has added.
func (c *Cluster) peers() []string {
	var all []string
	for _, n := range c.Nodes() {
		if slices.Contains(c.founders, n) || c.Joined != nil && slices.Contains(c.Joined(), n) {
			all = append(all, n.Peer)
		}
	}
	return all
}

// Start starts every node and waits until all are ready.
func (c *Cluster) Start(ctx context.Context) error {
	if err := c.credentials(); err != nil {
		return err
	}
	for _, n := range c.Nodes() {
		if err := n.Start(); err != nil {
			return err
		}
	}
	for _, n := range c.Nodes() {
		if err := n.AwaitReady(ctx, time.Minute); err != nil {
			return err
		}
	}
	return nil
}

// credentials makes an administrator's certificate of the cluster's secret. It is no
// node's: those end when their node is removed.
func (c *Cluster) credentials() error {
	secrets, err := pki.LoadSecrets(c.tokenFile())
	if err != nil {
		return err
	}
	admin, err := pki.Open(pki.Options{Dir: filepath.Join(c.dir, "administrator"), Secrets: secrets, AdminOnly: true})
	if err != nil {
		return err
	}
	c.tls = &tls.Config{Certificates: []tls.Certificate{*admin.AdminCertificate()}, RootCAs: admin.APIRoots(), MinVersion: tls.VersionTLS13}
	return nil
}

// Close kills all processes and takes the machines apart. The directory stays.
func (c *Cluster) Close() error {
	var errs []error
	for _, n := range c.Nodes() {
		n.ExpectExit()
	}
	for _, n := range c.Nodes() {
		if n.disk != nil {
			n.disk.Release()
		}
		errs = append(errs, n.Kill(), n.Unplug())
		n.host.Close()
		if n.clock != nil {
			errs = append(errs, n.clock.Close())
		}
	}
	if c.Switch != nil {
		errs = append(errs, c.Switch.Close())
	}
	return errors.Join(errs...)
}

// await polls a condition until it is nil.
func await(ctx context.Context, within time.Duration, what string, condition func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := condition()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %s: %w", what, within, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
