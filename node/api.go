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
	"github.com/quorate/quorate/apiserver/admission"
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
	"github.com/quorate/quorate/membership"
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

// serveAPI puts the API together: who asks, who may, and which servers are behind it; the server with its
// documents and our own paths; and what works on its objects.
func (n *Node) serveAPI(context.Context) (err error) {
	definitions := crd.New(n.store, n.kinds, n.log)
	n.checks = &checks{cfg: n.cfg, log: n.log, kinds: n.kinds, store: n.store, manager: n.manager, metrics: n.metrics, refusing: &n.refusing}
	n.health = health.New(n.checks.config())
	n.admission = &admissionAPI{node: n.cfg.Name, log: n.log, store: n.store, suspensions: suspension.NewView(n.store, time.Now, n.log)}
	cfg := apiserver.Config{Store: timedStore{n.store, n.metrics}, Reads: n.reads(), Kinds: definitions.Current}
	for _, add := range []func(*apiserver.Config) error{n.addIdentity, n.addAuthorizer, n.addBackends, n.addServed} {
		if err = add(&cfg); err != nil {
			return err
		}
	}
	if n.api, err = apiserver.New(cfg); err != nil {
		return err
	}
	// Plugins use the objects that they decide on. Nothing is served yet.
	if n.api.Objects().Admission, err = n.newAdmission(n.api.Objects(), &cfg); err != nil {
		return err
	}
	n.controllers = n.newControllers(definitions, cfg.Authorizer)
	n.http = n.httpServer(n.refusing.before(beside(n.api, audited(n.audit, n.manager.JoinHandler()))))
	n.listener.Guard(n.http, n.cfg.HTTP2Server == HTTP2Standard)
	return nil
}

// addIdentity adds what says who asks, and issues tokens.
func (n *Node) addIdentity(cfg *apiserver.Config) error {
	accounts, err := n.newAccounts()
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
	cfg.Authenticator, cfg.Reviewer, cfg.Tokens, cfg.OpenID = listener.Greet(authenticator, n.ofRemoved), authenticator, accounts, openID
	return nil
}

// addAuthorizer adds what says who may do what, and how much at a time.
func (n *Node) addAuthorizer(cfg *apiserver.Config) error {
	n.roles, n.podsOfNodes = rbac.New(n.store, n.log), objects.PodsOfNodes(n.store)
	cfg.Authorizer, cfg.Roles = auth.Observed(n.authorizer(), n.metrics.Authorized), n.roles
	cfg.PodsOfNodes, cfg.NodeAuthorizer = n.podsOfNodes, n.cfg.authorizesNodes()
	cfg.Limits = apiserver.Limits{Reads: orUnbounded(n.cfg.MaxReads), Writes: orUnbounded(n.cfg.MaxWrites), Token: n.cfg.MaxTokenExpiry}
	if !n.cfg.Fairness {
		return nil
	}
	n.fairness, n.flowControl = fairness.New(n.cfg.MaxReads+n.cfg.MaxWrites, n.log), fairness.NewView(n.store, n.log)
	cfg.Fairness = n.fairness
	return n.metrics.Registry().Register(n.fairness)
}

// addBackends adds the ways to Services, kubelets, and other API servers.
func (n *Node) addBackends(cfg *apiserver.Config) (err error) {
	if err := n.openEgress(cfg.Authorizer); err != nil {
		return err
	}
	cfg.Resolve = services.New(n.store, n.cfg.EndpointRouting).Resolve
	cfg.Dial, cfg.DialURL = n.dialers.to(egress.Cluster), n.dialers.to(egress.ControlPlane)
	if n.aggregator, err = n.newAggregator(cfg.Resolve); err != nil {
		return err
	}
	err = n.openKubelets()
	cfg.Aggregator, cfg.Kubelets = n.aggregator, n.kubelets
	return err
}

// addServed adds the documents about the resources, our own paths beside them, and how all of it is served.
func (n *Node) addServed(cfg *apiserver.Config) error {
	version, others := n.cfg.versionInfo(), n.aggregator.Discovered
	cfg.Discovery = discovery.New(cfg.Kinds, discovery.WithHashes(n.features.Enabled(features.StorageVersionHash)), discovery.WithOthers(others))
	cfg.OpenAPI = openapi.New(cfg.Kinds, version.GitVersion, openapi.WithEnums(n.features.Enabled(features.OpenAPIEnums)), openapi.WithOthers(others))
	cfg.Version, cfg.ZPages = discovery.Version(version), n.zpages(version.GitVersion)
	cfg.Health, cfg.Metrics, cfg.Own, cfg.LongRunning = n.health, n.metrics, n.ownPaths(), longRunning
	cfg.Observer, cfg.Audit, cfg.Log = n.metrics, n.audit, n.log
	cfg.GarbageCollector, cfg.EventTTL = n.cfg.GarbageCollector, n.cfg.EventTTL
	cfg.ServiceBlocks, cfg.ServicePorts = n.serviceBlocks, n.servicePorts
	cfg.ResponseCompression = n.features.Enabled(features.APIResponseCompression)
	cfg.UnauthenticatedHTTP2DOSMitigation = n.features.Enabled(features.UnauthenticatedHTTP2DOSMitigation)
	cfg.WatchList = n.features.Enabled(features.WatchList)
	cfg.StaticAdmission = n.features.Enabled(features.ManifestBasedAdmissionControlConfig)
	cfg.GoawayChance, cfg.ShutdownSendRetryAfter, cfg.NoQuorum = n.cfg.GoawayChance, n.cfg.ShutdownRetryAfter, n.manager.NoQuorum
	cfg.Delivery = delivery.New(delivery.Config{Behind: n.store.WatchesBehind, Log: n.log})
	return n.metrics.Registry().Register(cfg.Delivery)
}

// newAdmission returns what may change or refuse writes of the objects of a server.
func (n *Node) newAdmission(s *objects.Store, cfg *apiserver.Config) (*admission.Chain, error) {
	return plugins.New(plugins.Config{
		Enable: n.cfg.AdmissionEnable, Disable: n.cfg.AdmissionDisable, File: n.cfg.AdmissionConfig,
		NotReadySeconds: n.cfg.NotReadyTolerationSeconds, UnreachableSeconds: n.cfg.UnreachableTolerationSeconds,
		Store: n.store, Confirm: n.reads().confirm, Registerer: n.metrics.Registry(), Suspensions: n.admission.suspensions, Authorizer: cfg.Authorizer,
		Kinds: cfg.Kinds, Log: n.log, Resolve: cfg.Resolve, Dial: cfg.Dial, DialURL: cfg.DialURL,
		Observer: n.metrics, Loaded: func(l plugins.Loaded) { n.metrics.AdmissionPlugins(l.Hash, len(l.Plugins)) },
		CreateNamespace: func(ctx context.Context, name string) error {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			return objects.NewClient(s).Create(ctx, corev1.SchemeGroupVersion.WithResource(objects.NamespacesTable), "", ns)
		},
		Convert: s.ConvertWhole, Decode: s.DecodeAll,
		Static: static.Files{
			Enabled: n.features.Enabled(features.ManifestBasedAdmissionControlConfig), Check: builtin.CheckAdmission, Server: n.cfg.Name,
			Run:    func(follow func(context.Context)) { n.followers = append(n.followers, follow) },
			Listed: func(rules func() []static.Rule) { n.admission.fromFiles = append(n.admission.fromFiles, rules) },
		},
	})
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
func (n *Node) newAccounts() (*token.Accounts, error) {
	fixed, err := n.cfg.fixedTokenKeys()
	if err != nil {
		return nil, err
	}
	n.tokenKeys = &tokenKeys{fixed: fixed, store: n.store, own: n.pki.TokenKey(), log: n.log}
	return token.New(token.Config{
		Issuer: n.cfg.TokenIssuer, Audiences: n.cfg.APIAudiences, Keys: n.tokenKeys.Keys, KeyTables: tokenKeyTables[:], Uses: listener.NoteKey, Store: n.store,
		Confirm: n.reads().confirm,
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
