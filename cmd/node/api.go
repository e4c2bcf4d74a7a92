package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/auth"
	"github.com/quorate/quorate/apiserver/auth/token"
	"github.com/quorate/quorate/apiserver/crd"
	"github.com/quorate/quorate/apiserver/discovery"
	"github.com/quorate/quorate/apiserver/fairness"
	"github.com/quorate/quorate/apiserver/features"
	"github.com/quorate/quorate/apiserver/health"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/listener"
	"github.com/quorate/quorate/apiserver/metrics"
	"github.com/quorate/quorate/apiserver/openapi"
	"github.com/quorate/quorate/apiserver/rbac"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/membership"
)

// kubernetesVersion is the Kubernetes version that is served.
func kubernetesVersion() string { return discovery.VersionInfo(buildVersion()).GitVersion }

func (n *node) openMetrics(context.Context) (err error) {
	if n.metrics, err = metrics.New(discovery.VersionInfo(buildVersion()), buildVersion()); err != nil {
		return err
	}
	return n.metrics.InstallRaftSink()
}

func (n *node) openAPI(context.Context) (err error) {
	l, err := net.Listen("tcp", n.cfg.APIListen)
	if err != nil {
		return fmt.Errorf("api port: %w", err)
	}
	n.listener = listener.New(l, listener.Limit(n.cfg.MaxConnections))
	return nil
}

// serveAPI puts the API together: the resources, the documents about them, and
// our own paths beside them.
func (n *node) serveAPI(context.Context) error {
	definitions := crd.New(n.store, n.kinds, n.log)
	current := definitions.Current
	n.health = health.New(n.healthChecks())
	version := discovery.VersionInfo(buildVersion())
	read := reads{n.reader, n.store, n.metrics}
	accounts, err := n.newAccounts(read)
	if err != nil {
		return err
	}
	openID, err := accounts.OpenID(n.cfg.TokenKeysURL)
	if err != nil {
		return err
	}
	authenticator := &auth.Authentication{
		Authenticators: []auth.Authenticator{&auth.Certificates{Roots: n.pki.APIRoots(), Observe: n.metrics.ClientCertificate, Refuse: n.ofRemoved}},
		Tokens:         []auth.TokenAuthenticator{accounts},
		NoAnonymous:    !n.cfg.AnonymousAuth,
		Observe:        n.metrics.Authenticated,
	}
	n.roles = rbac.New(n.store, n.log)
	if n.cfg.Fairness {
		n.fairness = fairness.New(n.cfg.MaxReads+n.cfg.MaxWrites, n.log)
		if err := n.metrics.Registry().Register(n.fairness); err != nil {
			return err
		}
	}
	n.api, err = apiserver.New(apiserver.Config{
		Store: timedStore{apiserver.StoreOf(n.store), n.metrics}, Reads: read, Kinds: current, Definitions: definitions,
		Authenticator: listener.Greet(authenticator, n.ofRemoved), Authorizer: auth.Observed(auth.Roles(n.roles, n.roles.Empty), n.metrics.Authorized), Roles: n.roles,
		Reviewer: authenticator, Tokens: accounts, OpenID: openID,
		Discovery: discovery.New(current, discovery.WithHashes(n.features.Enabled(features.StorageVersionHash))),
		OpenAPI:   openapi.New(current, version.GitVersion, openapi.WithEnums(n.features.Enabled(features.OpenAPIEnums))), Version: discovery.Version(version),
		Health: n.health, Metrics: n.metrics, ZPages: n.zpages(version.GitVersion), Own: n.ownPaths(), LongRunning: longRunning, Observer: n.metrics, Audit: n.audit, Log: n.log,
		EndpointRouting:  n.cfg.EndpointRouting,
		GarbageCollector: n.cfg.GarbageCollector, EventTTL: n.cfg.EventTTL,
		ServiceBlocks: n.cfg.serviceBlocks, ServicePorts: n.cfg.servicePorts,
		Fairness:        n.fairness,
		Limits:          apiserver.Limits{Reads: orUnbounded(n.cfg.MaxReads), Writes: orUnbounded(n.cfg.MaxWrites), Token: n.cfg.MaxTokenExpiry},
		NoCompression:   !n.features.Enabled(features.APIResponseCompression),
		KeepAnonymous:   !n.features.Enabled(features.UnauthenticatedHTTP2DOSMitigation),
		GoawayChance:    n.cfg.GoawayChance,
		NoWatchList:     !n.features.Enabled(features.WatchList),
		ShutdownTooMany: n.cfg.ShutdownRetryAfter,
	})
	if err != nil {
		return err
	}
	n.http = n.httpServer(n.refusing.before(beside(n.api, n.manager.JoinHandler())))
	n.listener.Guard(n.http)
	return nil
}

// newAccounts issues and recognizes the tokens of service accounts.
func (n *node) newAccounts(read reads) (*token.Accounts, error) {
	n.tokenKeys = &tokenKeys{store: n.store, own: n.pki.TokenKey(), shared: n.pki.AccountKey(), accept: n.pki.AccountKeys(), log: n.log}
	return token.New(token.Config{
		Issuer: n.cfg.TokenIssuer, Audiences: n.cfg.APIAudiences, Keys: n.tokenKeys.Keys, Uses: listener.NoteKey, Store: n.store,
		Confirm: func(ctx context.Context) error {
			_, err := read.Await(ctx, consistency.Plan{Mode: consistency.MostRecent})
			return err
		},
	})
}

// orUnbounded is a limit as package apiserver wants it, where zero is the default.
func orUnbounded(limit int) int {
	if limit == 0 {
		return -1
	}
	return limit
}

// beside serves the exchange of join tokens next to the API: it is for nodes that are
// nobody yet. The API sees all other paths as they came; a mux in front of it would redirect unclean
// ones, and cost each request.
func beside(api, join http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == membership.JoinPath {
			join.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}

const profilesPath = "/debug/pprof/"

// ownPaths are those that are not Kubernetes'. Who may use which is a matter of roles.
func (n *node) ownPaths() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", status.PlainNotFound)
	mux.Handle(membership.AdminPath, noted(n.log, n.manager.AdminHandler()))
	mux.Handle(processPath, serveProcess(n.cfg.Name))
	mux.HandleFunc(snapshotPath, serveAtMost(backupsAtOnce, "backups", n.saveSnapshot))
	if n.cfg.Profiling {
		mux.HandleFunc(profilesPath, pprof.Index)
		mux.HandleFunc(profilesPath+"profile", pprof.Profile)
		mux.HandleFunc(profilesPath+"symbol", pprof.Symbol)
		mux.HandleFunc(profilesPath+"trace", pprof.Trace)
	}
	return mux
}

// longRunning are the own paths whose answers take as long as they take.
func longRunning(path string) bool {
	return path == snapshotPath || strings.HasPrefix(path, profilesPath)
}

// noted logs what changes the cluster, or hands its secret out: members, leadership and
// join tokens.
func noted(log *slog.Logger, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			h.ServeHTTP(w, r)
			return
		}
		log.Info("administration", "method", r.Method, "path", r.URL.Path, "user", userName(r), "from", r.RemoteAddr)
		h.ServeHTTP(w, r)
	})
}

func userName(r *http.Request) string {
	if u := auth.UserFrom(r.Context()); u != nil {
		return u.Name
	}
	return ""
}

// Bounds of connections. Requests have their own limits in package apiserver, all
// shorter than answerTimeout: that one is for the last bytes of a short answer, which
// wait for their client when nobody looks after the request any more. Watches lift it,
// backups move it on.
const (
	answerTimeout  = 2 * time.Minute
	idleTimeout    = 90 * time.Second
	maxHeaderBytes = 64 << 10
)

func (n *node) httpServer(h http.Handler) *http.Server {
	s := &http.Server{
		Handler:        h,
		WriteTimeout:   answerTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       n.metrics.ErrorLog(n.log),
		HTTP2:          &http.HTTP2Config{MaxConcurrentStreams: n.cfg.MaxStreams},
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: n.pki.ServingCertificate,
			// Clients may present a certificate, and are told whose. auth.Certificates verifies it.
			ClientAuth: tls.RequestClientCert,
			ClientCAs:  n.pki.APIRoots(),
			NextProtos: []string{"h2", "http/1.1"},
		},
	}
	return s
}

// healthChecks say when this node is alive (never a matter of other nodes) and
// when it can serve Most Recent reads.
func (n *node) healthChecks() health.Config {
	raftLog := health.Check{Name: "raft-log", Check: func(context.Context) error {
		if !n.store.Alive(n.cfg.HungDiskTimeout) {
			return errors.New("the state machine does not follow the log")
		}
		return nil
	}}
	formed := health.Check{Name: "membership", Check: func(context.Context) error {
		if err := n.refusing.reason(); errors.Is(err, membership.ErrRemoved) {
			return err
		}
		select {
		case <-n.manager.Formed():
			if n.store.Role() == "removed" {
				return errors.New("this node is not in the configuration of the cluster: it was removed, or has not caught up to where it was added")
			}
			return nil
		default:
			return errors.New("not part of a cluster yet")
		}
	}}
	namespaces := health.Check{Name: "poststarthook/start-system-namespaces", Check: func(context.Context) error {
		state := n.store.State()
		if t := state.Table("namespaces"); t != nil {
			if v, err := t.Get("default", state.Applied()); err == nil && v != nil {
				return nil
			}
		}
		return errors.New("the first namespaces are not there yet")
	}}
	state := health.Check{Name: "state", Check: func(context.Context) error {
		if err := n.refusing.reason(); !errors.Is(err, membership.ErrRemoved) {
			return err
		}
		return nil
	}}
	var ensured atomic.Bool // who takes a role away later does not make the node unready
	roles := health.Check{Name: "poststarthook/rbac/bootstrap-roles", Check: func(context.Context) error {
		if ensured.Load() || n.roles.Ensured() {
			ensured.Store(true)
			return nil
		}
		return errors.New("the first roles are not there yet")
	}}
	read := health.Barrier("read-index", time.Second, func(ctx context.Context) error {
		index, err := n.store.ReadIndex(ctx)
		if err != nil {
			return err
		}
		return n.store.WaitApplied(ctx, index)
	})
	return health.Config{
		Livez: []health.Check{n.logs.check(), raftLog},
		// The node serves before it has replayed its log. A state machine that has
		// begun late is not one that hangs.
		StartupGrace: cmp.Or(n.cfg.LivezGrace, n.cfg.HungDiskTimeout),
		Readyz:       []health.Check{n.logs.check(), raftLog, state, formed, read, namespaces, roles},
		Observe:      n.metrics.HealthCheck,
		Log:          n.logs.unlessBlocked(n.log),
	}
}

// storeStats gathers what the metrics say about the store.
func (n *node) storeStats() metrics.StoreStats {
	st, c := n.store.Status(), n.store.Counters()
	out := metrics.StoreStats{
		ClusterID: st.ClusterId, HasLeader: st.LeaderId != "", IsLeader: n.store.IsLeader(),
		Term: st.Term, Commit: st.Commit, Applied: st.Applied, Floor: st.Floor,
		Staleness: n.store.Staleness(), LastContact: time.Duration(max(0, st.LastContactMs)) * time.Millisecond,
		LeaderChanges: c.LeaderChanges, HeartbeatSendFailures: uint64(c.HeartbeatsFailed), ProposalsPending: c.PendingProposals, ProposalsFailed: c.FailedProposals,
		ProposalsForwarded: c.ForwardedProposals, ReadIndexes: c.ReadIndexes, ReadIndexRounds: c.ReadIndexRounds,
		SnapshotsInstalled: c.SnapshotsInstalled, Watchers: c.Watchers, Divergences: n.manager.Divergences(), WrongStates: len(n.manager.WrongStates()), DBBytes: st.DbBytes, DBBytesInUse: st.DbBytes,
	}
	out.FeatureVersion, out.FeatureSupported = n.store.Features()
	out.HistoryVersions, out.HistoryBytes = n.store.State().History()
	out.HistoryMaxBytes = n.cfg.HistoryMaxBytes
	for name, t := range n.store.State().Tables() {
		resource, ofAPI := kinds.OfTable(name)
		if !ofAPI {
			continue
		}
		live, _ := t.Live()
		out.Tables = append(out.Tables, metrics.TableStats{Group: resource.Group, Resource: resource.Resource, Objects: live})
	}
	return out
}
