package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/access/audit"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/access/auth/bootstraptoken"
	"github.com/quorate/quorate/apiserver/access/auth/token"
	"github.com/quorate/quorate/apiserver/access/fairness"
	"github.com/quorate/quorate/apiserver/access/rbac"
	"github.com/quorate/quorate/apiserver/admission/plugins"
	"github.com/quorate/quorate/apiserver/admission/static"
	"github.com/quorate/quorate/apiserver/admission/suspension"
	"github.com/quorate/quorate/apiserver/backends/egress"
	"github.com/quorate/quorate/apiserver/backends/services"
	"github.com/quorate/quorate/apiserver/catalog/discovery"
	"github.com/quorate/quorate/apiserver/catalog/openapi"
	"github.com/quorate/quorate/apiserver/controllers"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/builtin"
	"github.com/quorate/quorate/apiserver/objects/builtin/service"
	"github.com/quorate/quorate/apiserver/observe/features"
	"github.com/quorate/quorate/apiserver/observe/health"
	"github.com/quorate/quorate/apiserver/observe/metrics"
	"github.com/quorate/quorate/apiserver/transport/delivery"
	"github.com/quorate/quorate/apiserver/transport/listener"
	"github.com/quorate/quorate/apiserver/types/crd"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/raftstore/mvcc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/controller/certificates/authority"
)

func (n *Node) openMetrics(context.Context) (err error) {
	if n.metrics, err = metrics.New(n.cfg.versionInfo(), n.cfg.Version); err != nil {
		return err
	}
	if !n.cfg.WholeProcess {
		return nil
	}
	return n.metrics.InstallRaftSink()
}

func (n *Node) openAPI(context.Context) (err error) {
	l, err := listen(n.cfg.APIListener, n.cfg.APIListen)
	if err != nil {
		return fmt.Errorf("api port: %w", err)
	}
	n.listener = listener.New(l, listener.Limit(n.cfg.MaxConnections))
	n.listener.ObserveTurns(n.metrics.WaitedForTurn)
	return nil
}

// serveAPI puts the API together: the resources, the documents about them, and
// our own paths beside them.
func (n *Node) serveAPI(context.Context) error {
	definitions := crd.New(n.store, n.kinds, n.log)
	current := definitions.Current
	n.checks = &checks{cfg: n.cfg, log: n.log, kinds: n.kinds, store: n.store, manager: n.manager, metrics: n.metrics, refusing: &n.refusing}
	n.health = health.New(n.checks.config())
	version := n.cfg.versionInfo()
	read := reads{n.reader, n.store, n.metrics}
	accounts, err := n.newAccounts(read)
	if err != nil {
		return err
	}
	openID, err := accounts.OpenID(n.cfg.TokenKeysURL)
	if err != nil {
		return err
	}
	tokens := []auth.TokenAuthenticator{accounts}
	if n.cfg.TokenAuth != "" {
		static, err := auth.ReadTokens(n.cfg.TokenAuth)
		if err != nil {
			return fmt.Errorf("token-auth-file: %w", err)
		}
		tokens = append([]auth.TokenAuthenticator{static}, tokens...) // as upstream: it knows at once whether a token is its own
	}
	if n.cfg.BootstrapTokenAuth {
		tokens = append(tokens, bootstraptoken.New(n.store, time.Now))
	}
	authenticator := &auth.Authentication{
		Authenticators: []auth.Authenticator{&auth.Certificates{Roots: n.clientCAs.roots, Observe: n.metrics.ClientCertificate, Refuse: n.refuseCertificate}},
		Tokens:         tokens,
		NoAnonymous:    !n.cfg.AnonymousAuth,
		Observe:        n.metrics.Authenticated,
	}
	n.roles, n.podsOfNodes = rbac.New(n.store, n.log), objects.PodsOfNodes(n.store)
	if n.cfg.Fairness {
		n.fairness = fairness.New(n.cfg.MaxReads+n.cfg.MaxWrites, n.log)
		if err := n.metrics.Registry().Register(n.fairness); err != nil {
			return err
		}
		n.flowControl = fairness.NewView(n.store, n.log)
	}
	authorizer := auth.Observed(n.authorizer(), n.metrics.Authorized)
	n.admission = &admissionAPI{node: n.cfg.Name, log: n.log, store: n.store, suspensions: suspension.NewView(n.store, time.Now, n.log)}
	resolve := services.New(n.store, n.cfg.EndpointRouting).Resolve
	if err := n.openEgress(authorizer); err != nil {
		return err
	}
	if n.aggregator, err = n.newAggregator(resolve); err != nil {
		return err
	}
	if err := n.openKubelets(); err != nil {
		return err
	}
	chain, err := plugins.New(plugins.Config{
		Enable: n.cfg.AdmissionEnable, Disable: n.cfg.AdmissionDisable, File: n.cfg.AdmissionConfig,
		NotReadySeconds: n.cfg.NotReadyTolerationSeconds, UnreachableSeconds: n.cfg.UnreachableTolerationSeconds,
		Store: n.store, Confirm: read.confirm, Registerer: n.metrics.Registry(), Suspensions: n.admission.suspensions, Authorizer: authorizer, Kinds: current, Log: n.log, Resolve: resolve, Dial: n.dialers.to(egress.Cluster), DialURL: n.dialers.to(egress.ControlPlane),
		Observer: n.metrics, Loaded: func(l plugins.Loaded) { n.metrics.AdmissionPlugins(l.Hash, len(l.Plugins)) },
		// The plugins are made before the server, and asked after it.
		CreateNamespace: func(ctx context.Context, name string) error {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			return objects.NewClient(n.api.Objects()).Create(ctx, corev1.SchemeGroupVersion.WithResource(objects.NamespacesTable), "", ns)
		},
		Convert: func(obj tree.Object, from, to *kinds.Resource) (tree.Object, error) {
			return n.api.Objects().ConvertWhole(obj, from, to)
		},
		Decode: func(ctx context.Context, res *kinds.Resource, versions []*mvcc.Version) ([]tree.Object, error) {
			return n.api.Objects().DecodeAll(ctx, res, versions)
		},
		Static: static.Files{
			Enabled: n.features.Enabled(features.ManifestBasedAdmissionControlConfig), Check: builtin.CheckAdmission, Server: n.cfg.Name,
			Run:    func(follow func(context.Context)) { n.followers = append(n.followers, follow) },
			Listed: func(rules func() []static.Rule) { n.admission.fromFiles = append(n.admission.fromFiles, rules) },
		},
	})
	if err != nil {
		return err
	}
	delays := delivery.New(delivery.Config{Behind: n.store.WatchesBehind, Log: n.log})
	if err := n.metrics.Registry().Register(delays); err != nil {
		return err
	}
	n.api, err = apiserver.New(apiserver.Config{
		Store: timedStore{n.store, n.metrics}, Reads: read, Kinds: current,
		Authenticator: listener.Greet(authenticator, n.ofRemoved), Authorizer: authorizer, Roles: n.roles, Admission: chain,
		PodsOfNodes: n.podsOfNodes, NodeAuthorizer: n.cfg.authorizesNodes(),
		Reviewer: authenticator, Tokens: accounts, OpenID: openID,
		Discovery: discovery.New(current, discovery.WithHashes(n.features.Enabled(features.StorageVersionHash)), discovery.WithOthers(n.aggregator.Discovered)),
		OpenAPI:   openapi.New(current, version.GitVersion, openapi.WithEnums(n.features.Enabled(features.OpenAPIEnums)), openapi.WithOthers(n.aggregator.Discovered)), Version: discovery.Version(version),
		Health: n.health, Metrics: n.metrics, ZPages: n.zpages(version.GitVersion), Own: n.ownPaths(), LongRunning: longRunning, Delivery: delays, Observer: n.metrics, Audit: n.audit, Log: n.log,
		Resolve:          resolve,
		Dial:             n.dialers.to(egress.Cluster),
		DialURL:          n.dialers.to(egress.ControlPlane),
		Aggregator:       n.aggregator,
		Kubelets:         n.kubelets,
		GarbageCollector: n.cfg.GarbageCollector, EventTTL: n.cfg.EventTTL,
		ServiceBlocks: n.serviceBlocks, ServicePorts: n.servicePorts,
		Fairness:                          n.fairness,
		Limits:                            apiserver.Limits{Reads: orUnbounded(n.cfg.MaxReads), Writes: orUnbounded(n.cfg.MaxWrites), Token: n.cfg.MaxTokenExpiry},
		ResponseCompression:               n.features.Enabled(features.APIResponseCompression),
		UnauthenticatedHTTP2DOSMitigation: n.features.Enabled(features.UnauthenticatedHTTP2DOSMitigation),
		GoawayChance:                      n.cfg.GoawayChance,
		WatchList:                         n.features.Enabled(features.WatchList),
		NoQuorum:                          n.manager.NoQuorum,
		StaticAdmission:                   n.features.Enabled(features.ManifestBasedAdmissionControlConfig),
		ShutdownSendRetryAfter:            n.cfg.ShutdownRetryAfter,
	})
	if err != nil {
		return err
	}
	n.controllers = n.newControllers(definitions, authorizer)
	n.http = n.httpServer(n.refusing.before(beside(n.api, audited(n.audit, n.manager.JoinHandler()))))
	n.listener.Guard(n.http, n.cfg.HTTP2Server == HTTP2Standard)
	return nil
}

// newControllers returns what this node does when it leads.
func (n *Node) newControllers(definitions *crd.Registry, authorizer auth.Authorizer) *controllers.Manager {
	cert, signer := n.pki.APIAuthority()
	joining := controllers.Joining{Endpoint: n.cfg.ControlPlaneEndpoint, Version: n.kubernetesVersion()}
	if n.cfg.ServingCert == "" { // else it is not known whom machines should trust
		joining.Server = n.URL
	}
	names, _ := controllers.Select(n.cfg.Controllers) // checked at the start
	return controllers.NewManager(n.api.Objects(), controllers.Config{
		Controllers: names, Published: n.store.Published, Definitions: definitions, FlowControl: n.flowControl,
		Servers:       controllers.Servers{List: n.manager.APIAddresses, Address: service.FirstAddress(n.serviceBlocks)},
		Members:       n.memberObjects(),
		ServiceBlocks: n.serviceBlocks, Roots: n.publishedRoots(), Aggregator: n.aggregator, Authentication: n.authenticationInfo, Observer: n.metrics, Log: n.log,
		Authorizer: authorizer, Joining: joining,
		Signing: controllers.Signing{Authority: &authority.CertificateAuthority{Certificate: cert, PrivateKey: signer}, Duration: n.cfg.ClusterSigningDuration},
	})
}

// newAccounts issues and recognizes the tokens of service accounts.
func (n *Node) newAccounts(read reads) (*token.Accounts, error) {
	fixed, err := n.cfg.fixedTokenKeys()
	if err != nil {
		return nil, err
	}
	n.tokenKeys = &tokenKeys{fixed: fixed, store: n.store, own: n.pki.TokenKey(), log: n.log}
	return token.New(token.Config{
		Issuer: n.cfg.TokenIssuer, Audiences: n.cfg.APIAudiences, Keys: n.tokenKeys.Keys, KeyTables: tokenKeyTables[:], Uses: listener.NoteKey, Store: n.store,
		Confirm: read.confirm,
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

// audited has the audit log record requests of nobody to a handler that is not the API's. What they and their answers say is
// secret, and in no event.
func audited(log *audit.Log, h http.Handler) http.Handler {
	if log == nil {
		return h
	}
	nobody := auth.AnonymousUser()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		event := log.Begin(r, uuid.NewString(), time.Now(), &audit.Attributes{
			User: &audit.User{Name: nobody.Name, Groups: nobody.Groups}, Verb: strings.ToLower(r.Method), Path: r.URL.Path,
		})
		answer := &coded{ResponseWriter: w}
		defer func() { event.Completed(answer.code) }()
		h.ServeHTTP(answer, r)
	})
}

// coded remembers the code of an answer.
type coded struct {
	http.ResponseWriter
	code int
}

// WriteHeader implements http.ResponseWriter.
func (c *coded) WriteHeader(code int) {
	c.code = code
	c.ResponseWriter.WriteHeader(code)
}

// Unwrap lets http.ResponseController find the connection.
func (c *coded) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// Bounds of connections. Requests have their own limits in package apiserver, all
// shorter than answerTimeout: that one is for the last bytes of a short answer, which
// wait for their client when the request has no other limit any more. Watches lift it,
// backups move it on.
const (
	answerTimeout  = 2 * time.Minute
	idleTimeout    = 90 * time.Second
	maxHeaderBytes = 64 << 10
)

func (n *Node) httpServer(h http.Handler) *http.Server {
	s := &http.Server{
		Handler:        h,
		WriteTimeout:   answerTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       n.metrics.ErrorLog(n.log),
		HTTP2:          &http.HTTP2Config{MaxConcurrentStreams: n.cfg.MaxStreams},
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: n.servingCertificate,
			// Clients may present a certificate, and are told whose. auth.Certificates verifies it.
			ClientAuth:            tls.RequestClientCert,
			VerifyPeerCertificate: auth.BoundCertificates,
			NextProtos:            []string{"h2", "http/1.1"},
		},
	}
	n.clientCAs.serve(s.TLSConfig)
	return s
}
