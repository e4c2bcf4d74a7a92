package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/audit"
	"github.com/quorate/quorate/apiserver/controllers"
	"github.com/quorate/quorate/apiserver/fairness"
	"github.com/quorate/quorate/apiserver/features"
	"github.com/quorate/quorate/apiserver/health"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/listener"
	"github.com/quorate/quorate/apiserver/metrics"
	"github.com/quorate/quorate/apiserver/rbac"
	"github.com/quorate/quorate/apiserver/services"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/membership/pki"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/peer"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func nodeCommand() *cobra.Command {
	c := settingsCommand("node", "Run one node", func(cmd *cobra.Command, c *Config, _ *pflag.FlagSet, _ map[string]origin) error {
		log, watched := newLogger(c, os.Stderr)
		return runNode(cmd.Context(), c, log, watched)
	})
	c.Long = `Runs one node of a cluster. The same command line serves for the first start, for
every restart and for nodes that join later: whether the node is new is told from
its data directory. With --bootstrap-expect N, N nodes that know each other from
--join and share the secret of --token-file make a new cluster; if one of them
belongs to a cluster already, the others join it.

Every flag is also a variable, --data-dir is QUORATE_DATA_DIR, and a key of the
file that --config names. A flag wins over a variable, a variable over the file.
'quorate config view --show-origin' shows what came from where.`
	c.Example = `  # a cluster of one
  quorate node --data-dir DIR --bootstrap-expect 1

  # three hosts, each with its own addresses, and the same secret in FILE
  quorate node --bootstrap-expect 3 --join a:7443,b:7443,c:7443 --token-file FILE \
    --api-address 10.0.0.1:6443 --peer-address 10.0.0.1:7443

  # one more node; the token is from 'quorate token create'
  quorate node --join a:6443 --join-token @FILE \
    --api-address 10.0.0.4:6443 --peer-address 10.0.0.4:7443`
	exitCodes(c,
		note{"1", "it did not start, or has to stop for good: a setting, a port, its data directory, its removal from the cluster"},
		note{"2", "it ended itself, because going on could have lost or invented data; start it again"})
	files(c,
		note{"DATA-DIR/node.json", "who the node is: its id and its cluster"},
		note{"DATA-DIR/raft.db, DATA-DIR/state.db, DATA-DIR/snapshot.meta", "the log, the state, the newest snapshot"},
		note{"DATA-DIR/token", "the cluster's secret, unless --token-file names another file"},
		note{"DATA-DIR/pki", "certificates and keys, all made from the secret"},
		note{"DATA-DIR/admin.kubeconfig", "an administrator's kubeconfig for this node"})
	return c
}

// node is one node's parts, in the order in which they are started.
type node struct {
	cfg  *Config
	log  *slog.Logger
	logs *watchedLog

	lock      *os.File
	identity  *membership.Identity
	pki       *pki.Node
	metrics   *metrics.Metrics
	kinds     *kinds.Registry
	features  *features.Gates
	audit     *audit.Log
	peers     *peer.Host
	rpc       *peer.Transport
	store     *raftstore.Store
	state     atomic.Pointer[raftstore.Store] // store, for those who ask before it is open
	reader    *consistency.Reader
	manager   *membership.Manager
	fairness  *fairness.Controller // nil: switched off
	api       *apiserver.Server
	tokenKeys *tokenKeys
	roles     *rbac.Authorizer
	health    *health.Handler
	listener  *listener.Listener
	http      *http.Server

	systemd notifier
	// refusing says why nothing is served any more.
	refusing refusal
}

// runNode runs a node until ctx ends or it cannot go on.
func runNode(ctx context.Context, c *Config, log *slog.Logger, logs *watchedLog) (err error) {
	n := &node{cfg: c, log: log, logs: logs}
	// Secrets lie in the data directory, whoever starts us.
	syscall.Umask(0o077)
	for _, step := range []func(context.Context) error{
		// The directory first: nothing may be touched while another process has it.
		n.openDir,
		func(context.Context) error { return membership.CheckState(c.DataDir) },
		func(context.Context) error { return membership.CheckRemoved(c.DataDir) },
		n.openIdentity,
		n.openMetrics,
		n.openSurface,
		// Ports before the state: a taken port must fail at once, and peers that
		// dial early wait in the kernel instead of being refused.
		n.openPeers,
		n.openAPI,
		n.openStore,
		n.openMembership,
		n.serveAPI,
	} {
		if err := step(ctx); err != nil {
			return errors.Join(err, n.close())
		}
	}
	return errors.Join(n.serve(ctx), n.close())
}

// die ends the process at once: the log, the disk or the state machine can no
// longer be trusted, and going on could acknowledge what is not there.
func (n *node) die(err error) {
	n.log.Error("cannot go on", "error", err)
	os.Exit(2)
}

func (n *node) openDir(context.Context) error {
	// Before anything is made in it: a directory like that is to be emptied.
	if err := disk.Unfinished(n.cfg.DataDir); err != nil {
		return err
	}
	if err := os.MkdirAll(n.cfg.DataDir, 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	lock, err := lockDir(n.cfg.DataDir)
	if err != nil {
		return err
	}
	n.lock = lock
	// And again, now that it is ours. Before the identity: half way through a recovery
	// there may be none.
	return disk.Unfinished(n.cfg.DataDir)
}

// lockDir takes a data directory for this process, until the file is closed.
func lockDir(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("data directory %s is in use by another process", dir), lock.Close())
	}
	return lock, nil
}

// openIdentity finds out who this node is and makes what proves it.
func (n *node) openIdentity(ctx context.Context) (err error) {
	if n.identity, err = membership.LoadIdentity(n.cfg.DataDir, n.cfg.Name); err != nil {
		return err
	}
	secrets, err := n.secrets(ctx)
	if err == nil {
		err = n.checkSecrets(secrets)
	}
	if err != nil {
		return err
	}
	hosts := append([]string{}, n.cfg.TLSNames...)
	for _, addr := range []string{n.cfg.APIListen, n.cfg.APIAdvertise} {
		if host, _, err := net.SplitHostPort(addr); err == nil && host != "" {
			if ip := net.ParseIP(host); ip == nil || !ip.IsUnspecified() {
				hosts = append(hosts, host)
			}
		}
	}
	n.pki, err = pki.Open(pki.Options{
		Dir: filepath.Join(n.cfg.DataDir, "pki"), Secrets: secrets, NodeID: n.identity.ID(), Name: n.identity.Name(),
		Hosts: hosts, Logger: n.log, OnRenew: n.writeKubeconfig,
	})
	if err != nil {
		return err
	}
	n.writeKubeconfig()
	return nil
}

// secrets are the cluster's, from the file that the operator shares among the
// nodes, from a join token on the first start, or made by a node that is alone.
func (n *node) secrets(ctx context.Context) ([]pki.Secret, error) {
	file := n.cfg.TokenFile
	if file == "" {
		file = filepath.Join(n.cfg.DataDir, "token")
	}
	secrets, err := pki.LoadSecrets(file)
	switch {
	case err == nil && n.cfg.JoinToken != "":
		return secrets, n.joinKeptPeers()
	case !errors.Is(err, fs.ErrNotExist):
		return secrets, err
	case n.cfg.JoinToken != "":
		return n.joinWithToken(ctx, file)
	case n.cfg.TokenFile == "" && n.cfg.BootstrapExpect == 1:
		secrets, _, err := pki.LoadOrCreateSecrets(file)
		return secrets, err
	}
	return nil, fmt.Errorf(`there is no cluster secret in %s
  to make a cluster of one node:    --bootstrap-expect 1
  to make a cluster of several:     put the same secret on every node, for example from: openssl rand -hex 32
  to join a cluster that exists:    --join-token @FILE, with the output of: quorate token create`, file)
}

// writeKubeconfig keeps the administrator's kubeconfig for this node current.
func (n *node) writeKubeconfig() {
	cert, key := n.pki.Admin()
	k := pki.Kubeconfig{
		Endpoints: []pki.Endpoint{{Name: "quorate-" + n.cfg.Name, Server: "https://" + n.cfg.APIAdvertise}},
		CA:        n.pki.APICAs(), Cert: cert, Key: key,
	}
	if err := k.Write(filepath.Join(n.cfg.DataDir, "admin.kubeconfig")); err != nil {
		n.log.Error("cannot write the administrator's kubeconfig", "error", err)
	}
}

func (n *node) openPeers(context.Context) error {
	listener, err := net.Listen("tcp", n.cfg.PeerListen)
	if err != nil {
		return fmt.Errorf("peer port: %w", err)
	}
	n.peers, err = peer.New(peer.Config{
		NodeID: n.identity.ID(), Credentials: n.pki, Listener: listener, Advertise: n.cfg.PeerAdvertise,
		Cluster: n.identity.Cluster, Removed: n.removed, Logger: n.log, Fatal: n.die,
		Traffic: func(id proto.NodeID) peer.Traffic { return n.metrics.Peer(string(id)) },
	})
	if err != nil {
		return errors.Join(fmt.Errorf("peer port: %w", err), listener.Close())
	}
	n.rpc = peer.NewTransport(n.peers)
	return nil
}

// removed says whether a member was removed, as far as this node's state knows: nothing
// before it is loaded.
func (n *node) removed(id proto.NodeID) bool {
	s := n.state.Load()
	return s != nil && membership.IsRemoved(smallTables{s}, id)
}

// ofRemoved refuses a client certificate of a node that was removed: anyone who has that
// node's disk has its key.
func (n *node) ofRemoved(leaf *x509.Certificate) error {
	if len(leaf.URIs) == 0 { // a user's
		return nil
	}
	for _, id := range pki.NodesOf(leaf) {
		if n.removed(id) {
			return fmt.Errorf("it is that of node %s, which was removed from the cluster", id)
		}
	}
	return nil
}

func (n *node) openStore(context.Context) (err error) {
	n.systemd.loading()
	began := time.Now()
	n.store, err = raftstore.Open(raftstore.Config{
		Dir: n.cfg.DataDir, Node: n.identity.ID(), Name: n.identity.Name(),
		Transport: n.rpc, Peers: n.peers, Cluster: n.identity.Cluster, Fatal: n.die, Logger: n.log,
		Timing: raftstore.Timing{
			Heartbeat: n.cfg.HeartbeatTimeout, Election: n.cfg.ElectionTimeout, Lease: n.cfg.LeaseTimeout,
			NoLeader: n.cfg.NoLeaderTimeout, HungDisk: n.cfg.HungDiskTimeout,
			History: n.cfg.HistoryRetention, SnapshotInterval: n.cfg.SnapshotInterval,
		},
		Limits: raftstore.Limits{
			HistoryBytes: n.cfg.HistoryMaxBytes, TrailingLogs: n.cfg.TrailingLogs, SnapshotThreshold: n.cfg.SnapshotEntries,
			SnapshotLogBytes: n.cfg.SnapshotLogBytes,
		},
	})
	if err != nil {
		return err
	}
	n.state.Store(n.store)
	n.log.Info("the state is loaded", "applied", n.store.Applied(), "took", time.Since(began))
	n.store.Observe(n.metrics.LogWrite, n.metrics.BackendCommit, n.metrics.ReadIndexWait)
	n.store.ObserveRoundTrips(func(to proto.NodeID, d time.Duration) { n.metrics.PeerRoundTrip(string(to), d) })
	n.metrics.SetStore(n.storeStats)
	n.reader = consistency.NewReader(n.store, consistency.Options{MostRecentTimeout: n.cfg.NoLeaderTimeout, Observe: n.metrics.ReadWait})
	return nil
}

func (n *node) openMembership(context.Context) (err error) {
	n.manager, err = membership.New(membership.Options{
		Dir: n.cfg.DataDir, Identity: n.identity, Consensus: consensus{n.store, n.identity}, KV: smallTables{n.store},
		Peers: n.peers, Caller: peer.CallerOf, Certificates: n.pki,
		PeerAddress: n.cfg.PeerAdvertise, APIAddress: "https://" + n.cfg.APIAdvertise, Version: buildVersion(),
		BootstrapExpect: n.cfg.BootstrapExpect, Join: n.cfg.Join, NonVoter: n.cfg.Nonvoter,
		OnRemoved: func(proto.NodeID) {
			n.listener.Expel(n.ofRemoved)
			n.listener.ExpelKeys(func(key string) bool { return n.tokenKeys.Keys().Has(key) })
		},
		// Where there is no bound, clients may have asked for longer. A year is what pods have.
		TokenLifetime: max(membership.TokenLifetime, n.cfg.MaxTokenExpiry),
		Limits: membership.Limits{
			Stable: n.cfg.PromoteAfter,
			// A leader sends at least every fifth of this.
			Contact: max(time.Second, n.cfg.HeartbeatTimeout/2),
		},
		Logger: n.log, Refuse: n.refuse,
	})
	if err != nil {
		return err
	}
	n.store.Register(n.peers.GRPC(), peer.CallerOf, n.manager.LocalStatus)
	proto.RegisterMembershipServer(n.peers.GRPC(), n.manager)
	n.peers.Serve()
	return nil
}

// refuse ends what this node says about objects: its state is wrong. The process ends
// soon after.
func (n *node) refuse(err error) {
	n.refusing.refuse(err)
	n.api.AbandonWatches()
}

// serve runs everything that goes on in the background until ctx ends or one of
// the parts fails for good.
func (n *node) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	// The first part that fails ends the others.
	run := func(what string, f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", what, err))
			}
		})
	}
	run("api", func(context.Context) error { return ignoreClosed(n.http.ServeTLS(n.listener, "", "")) })
	run("answers", func(ctx context.Context) error {
		return n.listener.CloseUntaken(ctx, n.metrics.ClosedForUntakenAnswers, n.log)
	})
	run("membership", n.manager.Run)
	run("certificates", func(ctx context.Context) error { n.pki.Run(ctx); return nil })
	run("leader's tasks", n.leaderTasks)
	if n.fairness != nil {
		run("fairness", func(ctx context.Context) error { n.fairness.Run(ctx); return nil })
		run("flow control", n.api.FollowFlowControl)
	}
	run("systemd", func(ctx context.Context) error {
		n.systemd.follow(ctx, n.manager.LocalStatus, n.store.Alive)
		return nil
	})
	n.systemd.ready()
	n.log.Info("this node serves", "name", n.cfg.Name, "id", n.identity.ID(), "api", n.cfg.APIAdvertise, "peer", n.cfg.PeerAdvertise, "version", buildVersion())

	<-ctx.Done()
	n.stop()
	wg.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// leaderTasks runs, while this node leads, what exactly one node must do.
func (n *node) leaderTasks(ctx context.Context) error {
	for ctx.Err() == nil {
		changed := n.store.LeaderChanged()
		if !n.store.IsLeader() {
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		term, resign := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { n.ensureNamespaces(term) })
		wg.Go(func() { n.ensureRoles(term) })
		wg.Go(func() { n.aggregateRoles(term) })
		wg.Go(func() { n.tendServices(term) })
		if n.fairness != nil {
			wg.Go(func() { n.keepFlowControl(term) })
		}
		for name, run := range n.controllers() {
			wg.Go(func() { n.control(term, name, run) })
		}
		wg.Go(func() { n.settleDefinitions(term) })
		for n.store.IsLeader() && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-changed:
				changed = n.store.LeaderChanged()
			}
		}
		resign()
		wg.Wait()
	}
	return nil
}

// ensureNamespaces makes the namespaces that every cluster has.
func (n *node) ensureNamespaces(ctx context.Context) {
	for ctx.Err() == nil {
		err := n.api.EnsureNamespaces(ctx)
		if err == nil {
			return
		}
		n.log.Warn("the first namespaces are not there yet", "error", err)
		pause(ctx, ensureAgain)
	}
}

// ensureRoles makes the roles and bindings that every cluster has.
func (n *node) ensureRoles(ctx context.Context) {
	policy, err := rbac.Bootstrap()
	if err != nil {
		n.log.Error("the first roles cannot be read", "error", err)
		return
	}
	for ctx.Err() == nil {
		err := rbac.Ensure(ctx, n.api.Objects(), policy, n.log)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			n.log.Warn("the first roles are not there yet", "error", err)
		}
		pause(ctx, ensureAgain)
	}
}

// aggregateRoles writes the rules of roles that collect those of others.
func (n *node) aggregateRoles(ctx context.Context) {
	for ctx.Err() == nil {
		if err := n.aggregateRolesOnce(ctx); err != nil && ctx.Err() == nil {
			n.log.Warn("the aggregation of roles begins anew", "error", err)
		}
		pause(ctx, controllerAgain)
	}
}

func (n *node) aggregateRolesOnce(ctx context.Context) error {
	objects := n.api.Objects()
	changed, stop, err := objects.WatchTable(rbac.ClusterRoles)
	if err != nil {
		return err
	}
	defer stop()
	return rbac.Aggregate(ctx, n.store, changed, objects, n.log)
}

// controllers are those that the settings ask for.
func (n *node) controllers() map[controllers.Name]controllers.Controller {
	names, _ := controllers.Select(n.cfg.Controllers) // checked at the start
	out := controllers.Make(n.api, n.api.Objects(), controllers.Servers{
		List: n.manager.APIAddresses, Address: services.FirstAddress(n.cfg.serviceBlocks),
	}, names)
	if !n.cfg.GarbageCollector {
		delete(out, controllers.GarbageController)
	}
	return out
}

// control runs a controller. What ends it, such as a history that moved on before it
// was read, does not concern the next run.
func (n *node) control(ctx context.Context, name controllers.Name, run controllers.Controller) {
	for ctx.Err() == nil {
		if err := run(ctx, n.log.With("controller", string(name))); err != nil && ctx.Err() == nil {
			n.log.Warn("a controller begins anew", "controller", string(name), "error", err)
		}
		pause(ctx, controllerAgain)
	}
}

// tendServices makes the range of service addresses known and takes back what no
// Service holds.
func (n *node) tendServices(ctx context.Context) {
	if err := controllers.TendServices(ctx, n.api, n.log); err != nil && ctx.Err() == nil {
		n.log.Warn("the service addresses are not tended any more", "error", err)
	}
}

// keepFlowControl looks after the objects of priority and fairness.
func (n *node) keepFlowControl(ctx context.Context) {
	for ctx.Err() == nil {
		if err := n.api.KeepFlowControl(ctx); err != nil && ctx.Err() == nil {
			n.log.Warn("the objects of flow control are not looked after", "error", err)
		}
		pause(ctx, controllerAgain)
	}
}

// settleDefinitions runs the loop over the definitions of custom resources.
func (n *node) settleDefinitions(ctx context.Context) {
	for ctx.Err() == nil {
		if err := controllers.SettleDefinitions(ctx, n.api, n.log); err != nil && ctx.Err() == nil {
			n.log.Warn("the loop over definitions begins anew", "error", err)
		}
		pause(ctx, controllerAgain)
	}
}

// Pauses between attempts of the leader's tasks: the cluster is not ready before
// the namespaces are there, while a controller has time.
const (
	ensureAgain     = 100 * time.Millisecond
	controllerAgain = time.Second
)

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// stop is the ordered shutdown: no new work, leadership to another, let what
// runs finish.
func (n *node) stop() {
	n.log.Info("stopping")
	n.systemd.stopping()
	n.health.Shutdown()
	wrong := n.refusing.reason() != nil
	// Whoever watches /readyz has this long to send its clients elsewhere.
	if !wrong {
		pause(context.Background(), n.cfg.ShutdownDelay)
	}
	ctx, cancel := context.WithTimeout(context.Background(), n.cfg.ShutdownGrace)
	defer cancel()
	if wrong {
		n.endRequests(ctx) // no watch may go on
	}
	// Leadership first: while it moves, requests still find a leader through us.
	t, cancelTransfer := context.WithTimeout(ctx, transferBound)
	if err := n.manager.StepDown(t); err != nil {
		n.log.Warn("leadership was not handed over", "error", err)
	}
	cancelTransfer()
	if n.cfg.ShutdownRetryAfter {
		// Whoever comes is told to come again, as long as requests are not finished.
		n.endRequests(ctx)
		if err := n.api.Drain(ctx); err != nil {
			n.log.Warn("not all requests have ended", "error", err)
		}
	}
	// Clients hear that their connections end before their watches do. In the other
	// order they would ask for the next watch here, be refused, and lose a second.
	ended := make(chan error, 1)
	go func() { ended <- n.http.Shutdown(ctx) }()
	pause(ctx, goingAway)
	n.endRequests(ctx)
	if err := <-ended; err != nil {
		n.log.Warn("not all requests have ended", "error", err)
		_ = n.http.Close()
	}
}

// endRequests refuses new requests and ends the watches.
func (n *node) endRequests(ctx context.Context) {
	if err := n.api.Shutdown(ctx); err != nil {
		n.log.Warn("not all watches have ended", "error", err)
	}
}

// goingAway is the time for the news that connections end (GOAWAY in HTTP/2) to
// reach the clients. Until then all requests are served.
const goingAway = 100 * time.Millisecond

// close releases what was opened, last first. Parts that were never opened are nil.
func (n *node) close() error {
	var errs []error
	closeIf := func(c io.Closer, open bool) {
		if open {
			errs = append(errs, c.Close())
		}
	}
	if n.listener != nil && n.http == nil {
		errs = append(errs, n.listener.Close())
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
	closeIf(n.audit, n.audit != nil)
	closeIf(n.lock, n.lock != nil)
	return errors.Join(errs...)
}
