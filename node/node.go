package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/access/audit"
	"github.com/quorate/quorate/apiserver/access/fairness"
	"github.com/quorate/quorate/apiserver/access/rbac"
	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"github.com/quorate/quorate/apiserver/backends/kubelet"
	"github.com/quorate/quorate/apiserver/controllers"
	"github.com/quorate/quorate/apiserver/objects/builtin/service"
	"github.com/quorate/quorate/apiserver/observe/features"
	"github.com/quorate/quorate/apiserver/observe/health"
	"github.com/quorate/quorate/apiserver/observe/metrics"
	"github.com/quorate/quorate/apiserver/transport/listener"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/membership/pki"
	"github.com/quorate/quorate/raftstore"
	"github.com/quorate/quorate/raftstore/peer"
	"github.com/quorate/quorate/raftstore/view"
)

// Node is one node of a cluster, in this process. [Open] makes it, [Node.Run] serves, [Node.Close]
// ends it. Its methods may be called concurrently.
type Node struct {
	cfg *Config
	log *slog.Logger

	// ending ends when the node does: Run waits for it. ran is closed when Run has returned, and nil
	// before it is called.
	ending   context.Context
	end      context.CancelFunc
	mu       sync.Mutex
	ran      chan struct{} // guarded by mu
	closed   bool          // guarded by mu
	closing  sync.Once
	closeErr error

	// The parts, in the order in which they are started.

	lock        *os.File
	identity    *membership.Identity
	pki         *pki.Node
	clientCAs   *clientCAs
	servingPair *keyPair // from files, as the next two; nil: the node's own certificate
	kubeletPair *keyPair
	proxyPair   *keyPair
	aggregator  *aggregator.Aggregator
	kubelets    *kubelet.Client
	metrics     *metrics.Metrics
	kinds       *kinds.Registry
	features    *features.Gates
	followers   []func(context.Context) // of files that admission is configured by
	audit       *audit.Log
	peers       *peer.Host
	rpc         *peer.Transport
	store       *raftstore.Store
	state       atomic.Pointer[raftstore.Store] // store, for those who ask before it is open
	reader      *consistency.Reader
	manager     *membership.Manager
	members     atomic.Pointer[membership.Manager] // manager, for the store, which is there before it
	fairness    *fairness.Controller               // nil: switched off
	flowControl *fairness.View                     // what its objects say; nil with it
	api         *apiserver.Server
	controllers *controllers.Manager
	tokenKeys   *tokenKeys
	roles       *rbac.Authorizer
	podsOfNodes *view.FieldIndex
	checks      *checks
	health      *health.Handler
	admission   *admissionAPI
	dialers     dialers
	listener    *listener.Listener
	http        *http.Server

	serviceBlocks []netip.Prefix
	servicePorts  service.PortRange

	systemd notifier
	// refusing says why nothing is served any more.
	refusing refusal
}

// Open opens a node: its directory, its ports, its state. It takes part in nothing yet but listens
// already, so that a taken port fails here. ctx bounds what it waits for, such as the answer to a
// join token, and is not kept. When Open fails, nothing stays open.
func Open(ctx context.Context, cfg Config) (*Node, error) {
	if err := cfg.Complete(); err != nil {
		return nil, errors.Join(err, closeListeners(&cfg))
	}
	n := &Node{cfg: &cfg, log: cfg.Log}
	n.systemd.silent = !cfg.WholeProcess
	n.ending, n.end = context.WithCancel(context.Background())
	for _, step := range []func(context.Context) error{
		// The directory first: nothing may be touched while another process has it.
		n.openDir,
		func(context.Context) error { return membership.CheckState(cfg.DataDir) },
		func(context.Context) error { return membership.CheckRemoved(cfg.DataDir) },
		n.openIdentity,
		n.openMetrics,
		n.openResources,
		// Ports before the state: a taken port must fail at once, and peers that
		// dial early wait in the kernel instead of being refused.
		n.openPeers,
		n.openAPI,
		n.openStore,
		n.openMembership,
		n.serveAPI,
	} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	return n, nil
}

// Run serves until ctx ends, or Close is called, or the node cannot go on, and then stops in order:
// leadership goes to another node, and requests finish. It returns nil for an end that was asked
// for. It may be called once.
func (n *Node) Run(ctx context.Context) error {
	if err := n.begin(); err != nil {
		return err
	}
	defer close(n.ran)
	defer n.end() // who waits until it is ready need not wait any more
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.ending, cancel)()
	return n.serve(ctx)
}

// begin notes that Run is called.
func (n *Node) begin() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed:
		return ErrClosed
	case n.ran != nil:
		return errors.New("the node runs already, or has run")
	}
	n.ran = make(chan struct{})
	return nil
}

// ErrClosed is returned for a node that has ended, or was closed.
var ErrClosed = errors.New("the node is closed")

// Close ends Run, waits for it, and releases all that the node has: ports, files, goroutines. It may
// be called more than once, also at the same time.
func (n *Node) Close() error {
	n.end()
	n.mu.Lock()
	n.closed = true
	ran := n.ran
	n.mu.Unlock()
	if ran != nil {
		<-ran
	}
	n.closing.Do(func() { n.closeErr = n.close() })
	return n.closeErr
}

// Ready waits until the node can serve: until /readyz is ok. It fails when ctx ends, with what
// the node is not ready for, and with ErrClosed when the node ends.
func (n *Node) Ready(ctx context.Context) error {
	var why error
	for {
		err := n.health.Ready(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() == nil:
			why = err
		case why == nil: // it was over before anything was found out
			why = context.Cause(ctx)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("node %s is not ready: %w", n.cfg.Name, why)
		case <-n.ending.Done():
			return ErrClosed
		case <-time.After(readyPoll):
		}
	}
}

// readyPoll is how often Ready looks.
const readyPoll = 5 * time.Millisecond

// Name is the node's name, for people.
func (n *Node) Name() string { return n.cfg.Name }

// URL is where clients reach the API: https://host:port.
func (n *Node) URL() string { return "https://" + n.cfg.APIAdvertise }

// Kubeconfig is an administrator's for this node, as in admin.kubeconfig of its data directory. Its
// certificate is renewed there; who keeps this one for months asks again.
func (n *Node) Kubeconfig() ([]byte, error) { return n.kubeconfig().Encode() }

// die ends the process at once: the log, the disk or the state machine can no
// longer be trusted, and going on could acknowledge what is not there.
func (n *Node) die(err error) {
	n.log.Error("cannot go on", "err", err)
	if n.cfg.Fatal != nil {
		n.cfg.Fatal(err)
	}
	panic(fmt.Errorf("node %s cannot go on: %w", n.cfg.Name, err))
}

// serve runs everything that goes on in the background until ctx ends or one of
// the parts fails for good.
func (n *Node) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	// The first part that fails ends the others.
	run := func(what string, f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				cancel(failure{fmt.Errorf("%s: %w", what, err)})
			}
		})
	}
	run("api", func(context.Context) error { return ignoreClosed(n.http.ServeTLS(n.listener, "", "")) })
	run("answers", func(ctx context.Context) error {
		return n.listener.CloseUntaken(ctx, n.metrics.ClosedForUntakenAnswers, n.log)
	})
	run("membership", n.manager.Run)
	run("certificates", func(ctx context.Context) error { n.pki.Run(ctx); return nil })
	if n.cfg.ClientCA != "" {
		run("client certificates", func(ctx context.Context) error { n.clientCAs.follow(ctx); return nil })
	}
	for _, pair := range []*keyPair{n.servingPair, n.kubeletPair, n.proxyPair} {
		if pair != nil {
			run(pair.certSetting, pair.follow)
		}
	}
	for _, follow := range n.followers {
		run("admission files", func(ctx context.Context) error { follow(ctx); return nil })
	}
	run("aggregated API servers", func(ctx context.Context) error { return n.aggregator.Run(ctx, n.api.Objects().WatchTable) })
	run("roles", func(ctx context.Context) error { return n.checks.ensureRoles(ctx, n.roles, n.api.Objects()) })
	run("controllers", func(ctx context.Context) error { return n.controllers.Run(ctx, n.store) })
	if n.fairness != nil {
		run("fairness", func(ctx context.Context) error { n.fairness.Run(ctx); return nil })
		run("flow control", func(ctx context.Context) error {
			return n.fairness.Follow(ctx, n.flowControl, n.api.Objects().WatchTable)
		})
	}
	if !n.systemd.silent {
		run("systemd", func(ctx context.Context) error {
			n.systemd.follow(ctx, n.manager.LocalStatus, n.store.Alive)
			return nil
		})
	}
	n.systemd.ready()
	n.log.Info("this node serves", "name", n.cfg.Name, "id", n.identity.ID(), "api", n.cfg.APIAdvertise, "peer", n.cfg.PeerAdvertise, "version", n.cfg.Version)

	<-ctx.Done()
	n.stop()
	wg.Wait()
	if f, failed := context.Cause(ctx).(failure); failed && !errors.Is(f, context.Canceled) {
		return f.error
	}
	return nil
}

// failure is why a node ends by itself: one of its parts has failed for good.
type failure struct{ error }

// Unwrap lets errors.Is see the cause.
func (f failure) Unwrap() error { return f.error }

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// close releases what was opened, last first. Parts that were never opened are nil.
func (n *Node) close() error {
	var errs []error
	closeIf := func(c io.Closer, open bool) {
		if open {
			errs = append(errs, c.Close())
		}
	}
	if n.listener != nil {
		errs = append(errs, ifOpen(n.listener.Close()))
	}
	if n.api != nil {
		_ = n.api.Shutdown(n.ending) // nothing runs any more but what New has begun, if Run was not called
	}
	if n.kubelets != nil {
		n.kubelets.Close()
	}
	if n.dialers.tunnels != nil {
		n.dialers.tunnels.Close()
	}
	if n.reader != nil {
		n.reader.Close()
	}
	closeIf(n.store, n.store != nil)
	if n.rpc != nil {
		n.rpc.CloseStreams()
		errs = append(errs, n.rpc.Close())
	}
	closeIf(n.peers, n.peers != nil)
	errs = append(errs, closeListeners(n.cfg)) // those that nobody has taken over yet
	closeIf(n.audit, n.audit != nil)
	closeIf(n.lock, n.lock != nil)
	return errors.Join(errs...)
}

// closeListeners closes those that Open was given, if they are open.
func closeListeners(c *Config) error {
	var errs []error
	for _, l := range []net.Listener{c.APIListener, c.PeerListener} {
		if l != nil {
			errs = append(errs, ifOpen(l.Close()))
		}
	}
	return errors.Join(errs...)
}

// ifOpen is the error of a Close, unless something had been closed before.
func ifOpen(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
