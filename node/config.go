package node

import (
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/quorate/quorate/apiserver/backends/kubelet"
	"github.com/quorate/quorate/apiserver/objects/builtin/service"
)

// The implementations of HTTP/2; see docs/security.md, "Another HTTP/2 server".
const (
	HTTP2Own      = "own"
	HTTP2Standard = "net/http"
)

// Config is what one node is told. Begin with [Defaults]: for many settings the zero value means
// something else than the default. Errors name a setting as the command line does, --data-dir for DataDir;
// that name is behind each field.
type Config struct {
	// Name of the node, for people (name). Its id is made once and kept in the data directory.
	Name string
	// DataDir is where the node keeps everything (data-dir). It is made with mode 0700. One node at a
	// time has it.
	DataDir string

	// APIListen is the host:port of the Kubernetes API, HTTPS (api-address); APIAdvertise the one
	// under which clients and other nodes reach it (api-advertise-address; default: APIListen).
	APIListen, APIAdvertise string
	// PeerListen is the host:port for other nodes, mutual TLS (peer-address); PeerAdvertise the one
	// under which they reach it (peer-advertise-address; default: PeerListen).
	PeerListen, PeerAdvertise string
	// APIListener and PeerListener, if they are set, are listened on instead, and APIListen and
	// PeerListen are theirs: so the kernel may choose a port (127.0.0.1:0). Open takes them
	// over, also when it fails.
	APIListener, PeerListener net.Listener
	// TLSNames are further names and addresses for the API's certificate (tls-san).
	TLSNames []string

	// BootstrapExpect makes a new cluster when this many nodes have found each other through Join; 1
	// makes one at once (bootstrap-expect). It is ignored once the node has data.
	BootstrapExpect int
	// Join are the peer addresses of the nodes, its own may be among them, or the API address of one
	// node with a JoinToken (join). Once the node has data it serves to find members that have moved.
	Join []string
	// TokenFile has the cluster's secret, 64 hex digits, the same for every node (token-file;
	// default: token in DataDir, which a node that is alone makes).
	TokenFile string
	// JoinToken is a join token instead of the secret; @FILE reads it from a file (join-token).
	JoinToken string
	// Nonvoter stays a non-voter: it serves reads and watches, and takes no part in quorums (nonvoter).
	Nonvoter bool

	// ServiceClusterIPRange is the CIDR of the addresses of Services, or one of each family, separated
	// by a comma; ServiceNodePortRange their ports on nodes, both ends included
	// (service-cluster-ip-range, service-node-port-range). The same on every node.
	ServiceClusterIPRange, ServiceNodePortRange string
	// TokenIssuer is the issuer of service account tokens, an https URL (service-account-issuer). The
	// same on every node.
	TokenIssuer string
	// TokenSigningKey is a file with the private key that this node signs service account tokens with,
	// instead of one of its own, and TokenKeys are files with the keys that all are verified with,
	// in PEM: public keys, certificates or private keys, of RSA or ECDSA
	// (service-account-signing-key-file, service-account-key-file). Either names the keys of the whole
	// cluster: then there are no others, and both must be the same on every node.
	TokenSigningKey string
	TokenKeys       []string
	// APIAudiences are the audiences of tokens for this API (api-audiences; default: the issuer).
	APIAudiences []string
	// TokenKeysURL is where others fetch the keys of service account tokens
	// (service-account-jwks-uri; default: /openid/v1/jwks at APIAdvertise).
	TokenKeysURL string
	// MaxTokenExpiry is the longest validity of a service account token; 0 is no bound
	// (service-account-max-token-expiration).
	MaxTokenExpiry time.Duration

	// HeartbeatTimeout is how long a voter gets no heartbeat before it campaigns, half of it how long the
	// leader answers no question before a majority does. ElectionTimeout is how long an election may
	// take, LeaseTimeout how long a leader goes on without hearing from a majority (heartbeat-timeout,
	// election-timeout, leader-lease-timeout; 0: as HeartbeatTimeout). All must exceed the worst stall
	// of the disk, behind which heartbeats wait. LeaseTimeout <= HeartbeatTimeout <= ElectionTimeout.
	HeartbeatTimeout, ElectionTimeout, LeaseTimeout time.Duration
	// NoLeaderTimeout is how long requests wait for a leader before they fail (no-leader-timeout).
	NoLeaderTimeout time.Duration
	// HungDiskTimeout is how long a write of the log may take before the node goes on no more: see
	// Fatal (hung-disk-timeout).
	HungDiskTimeout time.Duration
	// PromoteAfter is how long a joined node must keep up before it gets a vote (promote-after).
	PromoteAfter time.Duration
	// RemoveNonvoterAfter is for how long a node without a vote does not answer the leader before it is removed from
	// the cluster; 0 is for ever (remove-nonvoter-after).
	RemoveNonvoterAfter time.Duration

	// HistoryRetention is how far back watches and exact reads reach, less than 10 min, unless the
	// history has more than HistoryMaxBytes (history-retention, history-max-bytes; 0: half of what all objects may take,
	// between 64 MiB and 1 GiB).
	HistoryRetention time.Duration
	HistoryMaxBytes  int64
	// StorageBytes is what this node would have the objects of the cluster take at most (storage-bytes; 0: a quarter
	// of its memory). The least that a voter says counts on all nodes.
	StorageBytes int64
	// DiskReserveBytes are taken of the disk for when it is full (disk-reserve-bytes; 0: none).
	DiskReserveBytes int64
	// SnapshotInterval is how often a snapshot of the log is considered, SnapshotEntries how many
	// entries since the last one make it worth it (snapshot-interval, snapshot-entries).
	SnapshotInterval time.Duration
	SnapshotEntries  uint64
	// TrailingLogs are the entries that are kept behind a snapshot for followers that lag
	// (trailing-logs).
	TrailingLogs uint64
	// SnapshotLogBytes is what the log may grow by, while it is kept for a node that is being sent a
	// snapshot (snapshot-log-max-bytes).
	SnapshotLogBytes int64

	// Fairness queues and refuses requests by FlowSchemas and PriorityLevelConfigurations
	// (enable-priority-and-fairness); without it they are bounded by their number alone.
	Fairness bool
	// MaxReads and MaxWrites are requests at once; 0 is no bound (max-requests-inflight,
	// max-mutating-requests-inflight). With Fairness, their sum is what all levels share.
	MaxReads, MaxWrites int
	// MaxConnections bounds the connections to the API, and so do three quarters of the descriptors
	// that the process may have (max-connections).
	MaxConnections int
	// MaxStreams are the requests at once on one HTTP/2 connection
	// (http2-max-streams-per-connection).
	MaxStreams int
	// HTTP2Server is the implementation of HTTP/2 that serves the API: HTTP2Own or HTTP2Standard (http2-server). The other one is
	// for the day on which a hole is found in this one.
	HTTP2Server string
	// GoawayChance is the fraction of HTTP/2 requests, at most 0.02, after which the client is asked
	// for another connection (goaway-chance).
	GoawayChance float64
	// RuntimeConfig switches APIs on or off, KEY[=true|false] (runtime-config). The same on every node.
	RuntimeConfig []string
	// FeatureGates are NAME=true|false (feature-gates). The same on every node.
	FeatureGates []string
	// ShowHidden is the previous minor version, such as 1.35, to show metrics that are hidden since
	// (show-hidden-metrics-for-version).
	ShowHidden string

	// ClientCA is a file with the certificates of authorities, in PEM, beside the cluster's own: whose
	// certificate one of them has signed is a user, its common name, of the groups that are its
	// organizations (client-ca-file). It is read again when it changes.
	ClientCA string
	// ComponentKubeconfigs is a directory for the credentials of kube-controller-manager and
	// kube-scheduler, at this node's API (component-kubeconfigs): each gets a directory of its name there,
	// with a kubeconfig and the files that this names, which are renewed before they expire.
	ComponentKubeconfigs string
	// ServingCert and ServingKey are files with the certificate that the API shows, with those that have
	// signed it, and its key, in PEM (tls-cert-file, tls-private-key-file). They are read again when they
	// change. Default: a certificate of the node's own, by the cluster's authority; who asks for the
	// server of the name in the administrator's kubeconfig is shown that one in any case.
	ServingCert, ServingKey string
	// ProxyClientCert and ProxyClientKey are files with the certificate, and its key, in PEM, that this node shows
	// to aggregated API servers (proxy-client-cert-file, proxy-client-key-file). They are read again
	// when they change. Default: a certificate of the node's own, by an authority that is for that alone.
	ProxyClientCert, ProxyClientKey string
	// RequestHeaderCA is a file with authorities, in PEM, that aggregated API servers are told to trust beside
	// the cluster's own: that of ProxyClientCert (requestheader-client-ca-file). The same on every node.
	RequestHeaderCA string
	// RejectRedirects answers 502 where an aggregated API server redirects
	// (aggregator-reject-forwarding-redirect).
	RejectRedirects bool
	// KubeletAddressTypes say which of a Node's addresses its kubelet is reached at: the first type of which it
	// has one (kubelet-preferred-address-types). KubeletTimeout bounds the making of a connection (kubelet-timeout).
	KubeletAddressTypes []string
	KubeletTimeout      time.Duration
	// KubeletClientCert and KubeletClientKey are files with the certificate that kubelets are shown, and its
	// key, in PEM (kubelet-client-certificate, kubelet-client-key). They are read again when they change.
	// Default: a certificate of the node's own, by the cluster's authority, of the user pki.KubeletUser.
	KubeletClientCert, KubeletClientKey string
	// KubeletCA is a file with the authorities that have signed the serving certificates of kubelets, in PEM
	// (kubelet-certificate-authority). It is read once. Default: those are not verified.
	KubeletCA string
	// TokenAuth is a file with tokens and their users (token-auth-file): CSV of token, user, uid, and the
	// groups in quotes. It is read once.
	TokenAuth string
	// BootstrapTokenAuth takes the Secrets of type bootstrap.kubernetes.io/token in kube-system for tokens
	// (enable-bootstrap-token-auth).
	BootstrapTokenAuth bool
	// Authorization are the authorizers that are asked in turn: Node, RBAC, AlwaysAllow, AlwaysDeny
	// (authorization-mode). Default: Node and RBAC.
	Authorization []string
	// AnonymousAuth serves requests without a credential as system:anonymous, as far as roles let it
	// (anonymous-auth).
	AnonymousAuth bool

	// AuditPolicy is a file with an audit policy, AuditPath the file that events are appended to, or -
	// for standard output; each needs the other (audit-policy-file, audit-log-path). AuditMaxSize is
	// in MiB, AuditMaxBackups a number, AuditMaxAge in days; 0 is without a bound
	// (audit-log-maxsize, audit-log-maxbackup, audit-log-maxage).
	AuditPolicy, AuditPath                     string
	AuditMaxSize, AuditMaxBackups, AuditMaxAge int

	// LivezGrace is how long after the start /livez does not fail (livez-grace-period; default:
	// HungDiskTimeout).
	LivezGrace time.Duration
	// ShutdownDelay is how long all is still served at the end, while /readyz fails already
	// (shutdown-delay-duration). ShutdownRetryAfter has new requests answered with 429 after that,
	// until all others are finished (shutdown-send-retry-after). ShutdownGrace is how long they
	// may take; 0 cuts them off (shutdown-grace).
	ShutdownDelay      time.Duration
	ShutdownRetryAfter bool
	ShutdownGrace      time.Duration

	// AdmissionEnable and AdmissionDisable are admission plugins beside the default ones
	// (enable-admission-plugins, disable-admission-plugins). AdmissionConfig is a file with an
	// AdmissionConfiguration, which some of them read (admission-control-config-file). The same on
	// every node.
	AdmissionEnable, AdmissionDisable []string
	AdmissionConfig                   string
	// NotReadyTolerationSeconds and UnreachableTolerationSeconds are for how long Pods that do not
	// say it themselves stay on a node that is not ready or cannot be reached
	// (default-not-ready-toleration-seconds, default-unreachable-toleration-seconds). The same on
	// every node.
	NotReadyTolerationSeconds, UnreachableTolerationSeconds int64

	// Controllers are those that the leader runs: * is all, foo enables foo, -foo disables it
	// (controllers).
	Controllers []string
	// ClusterSigningDuration is for how long certificates are valid at most that the leader signs for
	// CertificateSigningRequests (cluster-signing-duration).
	ClusterSigningDuration time.Duration
	// ControlPlaneEndpoint is host:port of the API for machines that join as nodes, such as that of a load
	// balancer (control-plane-endpoint; default: the APIAdvertise of a member). The same on every node.
	ControlPlaneEndpoint string
	// GarbageCollector honours propagation policies with finalizers for a garbage collector
	// (enable-garbage-collector). The same on all nodes.
	GarbageCollector bool
	// EndpointRouting reaches Services at their endpoints instead of their cluster IPs
	// (enable-aggregator-routing).
	EndpointRouting bool
	// EgressSelectorConfig is a file with an EgressSelectorConfiguration: the proxies through which the
	// cluster and webhooks are dialled (egress-selector-config-file).
	EgressSelectorConfig string
	// EgressTunnels lets workers open tunnels through which their kubelets, and the networks that they
	// offer, are dialled (egress-tunnels).
	EgressTunnels bool
	// EventTTL is how long events are kept after their last write (event-ttl).
	EventTTL time.Duration

	// Profiling serves /debug/pprof, of the whole process, to those whose roles let them (profiling).
	Profiling bool

	// Version of the program, for /version, metrics and other nodes. Default: the version of this
	// module in the build.
	Version string
	// GitVersion is what /version calls the version of Kubernetes. Default: KubernetesVersion of Version.
	GitVersion string
	// Log gets what operators read. Default: nothing is logged.
	Log *slog.Logger
	// LogBlocked says for how long nothing can be logged, 0 if it can; /livez and /readyz fail while it is
	// not 0. It must not wait. Default: always 0.
	LogBlocked func() time.Duration
	// Flagz are the settings as /flagz shows them, without secrets. Default: none.
	Flagz func() map[string]string
	// Fatal is called when the log, the disk or the state machine can no longer be trusted: going on
	// could acknowledge what is not there. It must end the process, and not return. Default: a panic.
	Fatal func(error)
	// WholeProcess is for a program that is nothing but this node: it tells systemd how it is, if the
	// environment names a socket, and shows among its metrics what the Raft library reports (raft_*),
	// which has one place for that in a process. At most one node of a process may have it.
	WholeProcess bool
}

// Defaults are the settings of a node that is told nothing. DataDir is missing.
func Defaults() Config {
	host, _ := os.Hostname()
	return Config{
		Name:      host,
		APIListen: "127.0.0.1:6443", PeerListen: "127.0.0.1:7443",

		ServiceClusterIPRange: "10.0.0.0/24", ServiceNodePortRange: service.DefaultPorts.String(),
		TokenIssuer: "https://kubernetes.default.svc.cluster.local",

		HeartbeatTimeout: 2 * time.Second, ElectionTimeout: 2 * time.Second,
		NoLeaderTimeout: 1600 * time.Millisecond, HungDiskTimeout: 10 * time.Second, PromoteAfter: 10 * time.Second,
		RemoveNonvoterAfter: 72 * time.Hour, // longer than a machine is off over a weekend

		HistoryRetention: 5 * time.Minute, DiskReserveBytes: 64 << 20,
		SnapshotInterval: 30 * time.Second, SnapshotEntries: 20_000, TrailingLogs: 50_000, SnapshotLogBytes: 1 << 30,

		Fairness: true, MaxReads: 400, MaxWrites: 200, MaxConnections: 10_000, MaxStreams: 250, HTTP2Server: HTTP2Own,
		Authorization: []string{authorizeNode, authorizeRBAC},
		AnonymousAuth: true, BootstrapTokenAuth: true, RejectRedirects: true, EgressTunnels: true,
		KubeletAddressTypes: kubeletAddressTypes, KubeletTimeout: kubelet.DefaultTimeout,
		AuditMaxSize: 100, AuditMaxBackups: 10,

		ShutdownGrace:          10 * time.Second,
		ClusterSigningDuration: 365 * 24 * time.Hour,
		Controllers:            []string{"*"}, GarbageCollector: true, EventTTL: time.Hour,
		NotReadyTolerationSeconds: 300, UnreachableTolerationSeconds: 300,
		Profiling: true,
	}
}
