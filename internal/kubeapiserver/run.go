package kubeapiserver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/quorate/quorate/node"
)

// Process is what the program around the server knows.
type Process struct {
	Version    string
	Log        *slog.Logger
	LogBlocked func() time.Duration
	// Fatal ends the process when a node can no longer be trusted.
	Fatal func(error)
}

// Run serves until ctx ends, or the process that started this one is gone, unless this one is to outlive it.
// An error says which flags are refused, or why the server does not start or go on.
func Run(ctx context.Context, o *Options, p Process) (err error) {
	if look().ending() == orphan {
		p.Log.Info(parentGone)
		return nil
	}
	notes, err := o.complete()
	for _, note := range notes {
		p.Log.Info(note)
	}
	if err != nil {
		return err
	}
	at, err := o.place(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, at.leave()) }()
	p.Log.Info("the data is in "+at.dir, "ends-with-the-server", at.temporary, "kept-by", at.keptBy)
	if err := o.serving(); err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	if !outlives() {
		go func() {
			if awaitOrphaned(ctx) {
				p.Log.Info(parentGone)
				end()
			}
		}()
	}
	fatal := p.Fatal
	p.Fatal = func(err error) {
		_ = at.leave() // no deferred call runs any more
		fatal(err)
	}
	return o.run(ctx, at, p)
}

// run opens all nodes at once and runs them until ctx ends or one of them does.
func (o *Options) run(ctx context.Context, at *place, p Process) error {
	configs, err := o.nodes(at, p)
	if err != nil {
		return err
	}
	nodes, errs := make([]*node.Node, len(configs)), make([]error, len(configs))
	var all sync.WaitGroup
	for i, c := range configs {
		all.Go(func() { nodes[i], errs[i] = node.Open(ctx, c) })
	}
	all.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	if errors.Join(errs...) == nil {
		for i, n := range nodes {
			all.Go(func() {
				errs[i] = n.Run(ctx)
				end() // one is not the server that was asked for
			})
		}
		all.Wait()
	}
	for i, n := range nodes {
		if n != nil {
			errs[i] = errors.Join(errs[i], n.Close())
		}
	}
	return errors.Join(errs...)
}

// A node that is alone leads after its first heartbeat; several need longer ones, on machines with
// much else to do.
const (
	heartbeatOfOne  = 25 * time.Millisecond
	heartbeatOfMany = 250 * time.Millisecond
	noLeaderTimeout = 10 * time.Second
)

// nodes are the settings of all nodes. The first one has the port that was asked for, the others ones that the
// kernel has chosen.
func (o *Options) nodes(at *place, p Process) (out []node.Config, err error) {
	defer func() {
		if err != nil {
			for _, c := range out {
				for _, l := range []net.Listener{c.APIListener, c.PeerListener} {
					if l != nil {
						l.Close()
					}
				}
			}
		}
	}()
	secret := filepath.Join(at.dir, "token")
	if err := makeSecret(secret); err != nil {
		return nil, err
	}
	var peers []string
	for i := range o.Nodes {
		c := o.config
		c.Name, c.BootstrapExpect, c.TokenFile = fmt.Sprintf("n%d", i+1), o.Nodes, secret
		c.DataDir = filepath.Join(at.dir, c.Name)
		c.Version, c.Log, c.LogBlocked, c.Fatal, c.Flagz = p.Version, p.Log, p.LogBlocked, p.Fatal, o.values
		if v := o.Version(); v != "" {
			c.GitVersion = v
		}
		if o.Nodes > 1 {
			c.Log = c.Log.With("node", c.Name)
		}
		c.WholeProcess = i == 0
		if !outlives() {
			c.ShutdownGrace = 0 // nobody waits for what a test has left
		}
		c.HeartbeatTimeout, c.NoLeaderTimeout = heartbeatOfOne, noLeaderTimeout
		if o.Nodes > 1 {
			c.HeartbeatTimeout = heartbeatOfMany
		}
		c.ElectionTimeout, c.LeaseTimeout = c.HeartbeatTimeout, c.HeartbeatTimeout
		if i > 0 {
			c.APIListen, c.APIAdvertise = "127.0.0.1:0", ""
			c.AuditPath, c.AuditPolicy = "", "" // one file has one writer
		}
		out = append(out, c)
		c = node.Config{}
		last := &out[len(out)-1]
		if last.APIListener, err = net.Listen("tcp", last.APIListen); err != nil {
			return out, err
		}
		if last.PeerListener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return out, err
		}
		peers = append(peers, last.PeerListener.Addr().String())
	}
	for i := range out {
		if o.Nodes > 1 {
			out[i].Join = peers
		}
	}
	return out, nil
}

// makeSecret makes the secret of the cluster, unless there is one.
func makeSecret(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	b := make([]byte, 32)
	rand.Read(b)
	return os.WriteFile(path, []byte(hex.EncodeToString(b)+"\n"), 0o600)
}

// values are the flags that were given, for /flagz. None of them is a secret: those are in files.
func (o *Options) values() map[string]string {
	out := map[string]string{}
	for _, f := range o.flags {
		if given := o.set.Lookup(f.name); given != nil && given.Changed {
			out[f.name] = value(given)
		}
	}
	return out
}
