package commands

import (
	"errors"
	"fmt"
	"strings"

	"github.com/quorate/quorate/apiserver/admission/plugins"
	"github.com/quorate/quorate/apiserver/controllers"
	"github.com/quorate/quorate/apiserver/observe/features"
	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/membership/pki"
	"github.com/quorate/quorate/node"
	"github.com/spf13/pflag"
)

// settings are what the process of one node is told. Every setting is a flag; the environment
// variable QUORATE_<FLAG> and the key <flag> of the file given by --config mean
// the same. A flag wins over the environment, the environment over the file, the
// file over the default.
type settings struct {
	node.Config
	LogFormat string
	LogLevel  string

	// set are the flags that these values come from.
	set *pflag.FlagSet
}

// flags defines a flag for each setting, with its default.
func (s *settings) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("node", pflag.ContinueOnError)
	f.SortFlags = false
	s.Config, s.set = node.Defaults(), f
	s.DataDir, s.LogFormat, s.LogLevel = "/var/lib/quorate", "auto", "info"
	c := &s.Config
	f.StringVar(&c.Name, "name", c.Name, "name of this node, for people; its id is made once and kept in the data directory")
	cli.DefaultIs(f, "name", "the name of the host")
	f.StringVar(&c.DataDir, "data-dir", c.DataDir, "where this node keeps everything; made with mode 0700")
	f.StringVar(&c.APIListen, "api-address", c.APIListen, "host:port of the Kubernetes API (HTTPS)")
	f.StringVar(&c.APIAdvertise, "api-advertise-address", c.APIAdvertise, "host:port under which clients and other nodes reach the API (default: --api-address)")
	f.StringVar(&c.PeerListen, "peer-address", c.PeerListen, "host:port for other nodes (mutual TLS)")
	f.StringVar(&c.PeerAdvertise, "peer-advertise-address", c.PeerAdvertise, "host:port under which other nodes reach this one (default: --peer-address)")
	f.StringSliceVar(&c.TLSNames, "tls-san", c.TLSNames, "further names and addresses for the API's certificate")
	f.IntVar(&c.BootstrapExpect, "bootstrap-expect", c.BootstrapExpect, "make a new cluster when this many nodes have found each other through --join; 1 makes one at once; ignored once the node has data")
	f.StringSliceVar(&c.Join, "join", c.Join, "peer addresses of the nodes (its own may be among them), or the API address of one node with --join-token; once the node has data they serve to find members that have moved")
	f.StringVar(&c.TokenFile, "token-file", c.TokenFile, "file with the cluster's secret, 64 hex digits, the same on every node (default: DATA-DIR/token)")
	f.StringVar(&c.JoinToken, "join-token", c.JoinToken, "join token from 'quorate token create', instead of the secret; @FILE reads it from a file")
	f.BoolVar(&c.Nonvoter, "nonvoter", c.Nonvoter, "stay a non-voter: serve reads and watches, take no part in quorums")
	f.StringVar(&c.ServiceClusterIPRange, "service-cluster-ip-range", c.ServiceClusterIPRange, "CIDR of the addresses of Services, or one of each family, separated by a comma; the same on every node")
	f.StringVar(&c.ServiceNodePortRange, "service-node-port-range", c.ServiceNodePortRange, "ports of Services on nodes, both ends included; the same on every node")
	f.StringVar(&c.TokenIssuer, "service-account-issuer", c.TokenIssuer, "issuer of service account tokens (iss), an https URL; the same on every node")
	f.StringSliceVar(&c.APIAudiences, "api-audiences", c.APIAudiences, "audiences of tokens for this API (default: the issuer)")
	f.StringVar(&c.TokenKeysURL, "service-account-jwks-uri", c.TokenKeysURL, "where others fetch the keys of service account tokens (default: /openid/v1/jwks at --api-advertise-address)")
	f.DurationVar(&c.MaxTokenExpiry, "service-account-max-token-expiration", c.MaxTokenExpiry, "longest validity of a service account token; longer ones are shortened; 0 means no bound, else at least 1h")
	boundFlags(f, c)
	accessFlags(f, c)
	f.DurationVar(&c.LivezGrace, "livez-grace-period", c.LivezGrace, "how long after the start /livez does not fail (default: --hung-disk-timeout)")
	f.DurationVar(&c.ShutdownDelay, "shutdown-delay-duration", c.ShutdownDelay, "how long everything is still served at shutdown, while /readyz fails already and load balancers turn away")
	f.BoolVar(&c.ShutdownRetryAfter, "shutdown-send-retry-after", c.ShutdownRetryAfter, "after that, and until all requests are finished, take connections and answer new requests with 429 and Retry-After")
	f.StringSliceVar(&c.AdmissionEnable, "enable-admission-plugins", c.AdmissionEnable, "admission plugins beside the default ones; must be the same on every node (by default: "+strings.Join(plugins.Defaults(), ", ")+")")
	f.StringSliceVar(&c.AdmissionDisable, "disable-admission-plugins", c.AdmissionDisable, "admission plugins of the default ones that are off; must be the same on every node")
	f.StringVar(&c.AdmissionConfig, "admission-control-config-file", c.AdmissionConfig, "file with an AdmissionConfiguration (apiserver.config.k8s.io/v1): what plugins are told; must say the same on every node")
	f.Int64Var(&c.NotReadyTolerationSeconds, "default-not-ready-toleration-seconds", c.NotReadyTolerationSeconds, "seconds for which Pods that do not say it themselves stay on a node that is not ready; must be the same on every node")
	f.Int64Var(&c.UnreachableTolerationSeconds, "default-unreachable-toleration-seconds", c.UnreachableTolerationSeconds, "seconds for which Pods that do not say it themselves stay on a node that cannot be reached; must be the same on every node")
	f.StringSliceVar(&c.Controllers, "controllers", c.Controllers, "controllers that the leader runs: * is all, foo enables foo, -foo disables it; there are "+controllerNames())
	f.DurationVar(&c.ClusterSigningDuration, "cluster-signing-duration", c.ClusterSigningDuration, "for how long certificates are valid at most that the leader signs for CertificateSigningRequests")
	f.StringVar(&c.ControlPlaneEndpoint, "control-plane-endpoint", c.ControlPlaneEndpoint, "host:port of the API for machines that join as nodes, such as that of a load balancer (default: the --api-advertise-address of a member); the same on every node")
	f.BoolVar(&c.EndpointRouting, "enable-aggregator-routing", c.EndpointRouting, "reach Services, such as those of conversion webhooks, at their endpoints instead of their cluster IPs, for hosts without a kube-proxy")
	f.StringVar(&c.EgressSelectorConfig, "egress-selector-config-file", c.EgressSelectorConfig, "file with an EgressSelectorConfiguration (apiserver.k8s.io/v1beta1): the proxies through which kubelets, Services and webhooks are dialled")
	f.BoolVar(&c.EgressTunnels, "egress-tunnels", c.EgressTunnels, "let workers open tunnels ('quorate proxy --tunnel') through which their kubelets, and the networks that they offer, are dialled")
	f.BoolVar(&c.GarbageCollector, "enable-garbage-collector", c.GarbageCollector, "honour propagation policies with finalizers for a garbage collector, this one or kube-controller-manager's; the same on all nodes")
	f.DurationVar(&c.EventTTL, "event-ttl", c.EventTTL, "how long events are kept after their last write")
	f.DurationVar(&c.ShutdownGrace, "shutdown-grace", c.ShutdownGrace, "how long requests may take to finish at shutdown")
	f.StringVar(&s.LogFormat, "log-format", s.LogFormat, "text, json, or auto (text on a terminal)")
	f.StringVar(&s.LogLevel, "log-level", s.LogLevel, "debug, info, warn or error")
	f.BoolVar(&c.Profiling, "profiling", c.Profiling, "serve /debug/pprof to those whose roles let them")
	return f
}

// boundFlags define those of how long things may take, and how much there may be.
func boundFlags(f *pflag.FlagSet, c *node.Config) {
	f.DurationVar(&c.HeartbeatTimeout, "heartbeat-timeout", c.HeartbeatTimeout, "a voter that gets no heartbeat for so long campaigns; a leader that does not even answer questions, which wait for no disk, is replaced after half of it")
	f.DurationVar(&c.ElectionTimeout, "election-timeout", c.ElectionTimeout, "how long an election may take")
	f.DurationVar(&c.LeaseTimeout, "leader-lease-timeout", c.LeaseTimeout, "how long a leader goes on without hearing from a majority; 0 means as long as --heartbeat-timeout")
	f.DurationVar(&c.NoLeaderTimeout, "no-leader-timeout", c.NoLeaderTimeout, "how long requests wait for a leader, or for one that has fallen silent, before they fail")
	f.DurationVar(&c.HungDiskTimeout, "hung-disk-timeout", c.HungDiskTimeout, "a log write that takes longer ends the process")
	f.DurationVar(&c.PromoteAfter, "promote-after", c.PromoteAfter, "how long a joined node must keep up before it gets a vote")
	f.DurationVar(&c.RemoveNonvoterAfter, "remove-nonvoter-after", c.RemoveNonvoterAfter, "remove a node without a vote from the cluster when it has not answered the leader for so long; its data directory is worth nothing then; 0: never; the same on every node")
	f.DurationVar(&c.HistoryRetention, "history-retention", c.HistoryRetention, "how far back watches and exact reads reach; must be less than 10m")
	f.Int64Var(&c.StorageBytes, "storage-bytes", c.StorageBytes, "refuse what would make all objects take more than this many bytes; 0: a quarter of the memory. The least of all voters counts")
	f.Int64Var(&c.DiskReserveBytes, "disk-reserve-bytes", c.DiskReserveBytes, "what the files take of the disk, in bytes, for when it is full; 0: nothing, then deletes may find no room on a full disk")
	f.Int64Var(&c.HistoryMaxBytes, "history-max-bytes", c.HistoryMaxBytes, "give up older history above this many bytes; 0: half of what all objects may take (--storage-bytes), between 64 MiB and 1 GiB")
	f.DurationVar(&c.SnapshotInterval, "snapshot-interval", c.SnapshotInterval, "how often a snapshot of the log is considered")
	f.Uint64Var(&c.SnapshotEntries, "snapshot-entries", c.SnapshotEntries, "log entries since the last snapshot that make a new one worth it")
	f.Uint64Var(&c.TrailingLogs, "trailing-logs", c.TrailingLogs, "log entries kept behind a snapshot for followers that lag")
	f.Int64Var(&c.SnapshotLogBytes, "snapshot-log-max-bytes", c.SnapshotLogBytes, "what the log may grow by, in bytes, while it is kept for a node that is being sent a snapshot")
	f.BoolVar(&c.Fairness, "enable-priority-and-fairness", c.Fairness, "queue and refuse requests by FlowSchemas and PriorityLevelConfigurations; without it, by their number alone")
	f.IntVar(&c.MaxReads, "max-requests-inflight", c.MaxReads, "reads at once (0: no bound); with priority and fairness, the sum of this and the next is what all levels share")
	f.IntVar(&c.MaxWrites, "max-mutating-requests-inflight", c.MaxWrites, "changes at once (0: no bound)")
	f.IntVar(&c.MaxConnections, "max-connections", c.MaxConnections, "connections to the API at once, and at most three quarters of the file descriptors; above it those end first on which nobody has authenticated, the oldest first, of the address that has the most")
	f.IntVar(&c.MaxStreams, "http2-max-streams-per-connection", c.MaxStreams, "requests at once on one HTTP/2 connection")
	f.StringVar(&c.HTTP2Server, "http2-server", c.HTTP2Server, "the implementation of HTTP/2 that serves the API: "+node.HTTP2Own+", or "+node.HTTP2Standard+", which costs more and lacks some bounds: for the day on which a hole is found in the first")
	f.Float64Var(&c.GoawayChance, "goaway-chance", c.GoawayChance, "fraction of HTTP/2 requests, at most 0.02, after which the client is asked to connect again, so that a load balancer spreads clients again")
	f.StringSliceVar(&c.RuntimeConfig, "runtime-config", c.RuntimeConfig, "APIs to switch on or off, KEY[=true|false]: api/all, api/ga, api/beta, GROUP/VERSION, GROUP/VERSION/RESOURCE; must be the same on every node")
	f.StringSliceVar(&c.FeatureGates, "feature-gates", c.FeatureGates, "feature gates, NAME=true|false; must be the same on every node ("+strings.Join(features.Names(), ", ")+")")
	f.StringVar(&c.ShowHidden, "show-hidden-metrics-for-version", c.ShowHidden, "the previous minor version (such as 1.35), to show metrics that are hidden since")
}

// accessFlags define those of who is trusted, what they may, and what is noted of it.
func accessFlags(f *pflag.FlagSet, c *node.Config) {
	f.StringVar(&c.ProxyClientCert, "proxy-client-cert-file", c.ProxyClientCert, "the certificate (PEM) that aggregated API servers are shown; default: the node's own; read again when it changes")
	f.StringVar(&c.ProxyClientKey, "proxy-client-key-file", c.ProxyClientKey, "its key (PEM)")
	f.StringVar(&c.RequestHeaderCA, "requestheader-client-ca-file", c.RequestHeaderCA, "certificates of authorities (PEM) that aggregated API servers are told to trust beside the cluster's own: that of --proxy-client-cert-file")
	f.BoolVar(&c.RejectRedirects, "aggregator-reject-forwarding-redirect", c.RejectRedirects, "answer 502 where an aggregated API server redirects, instead of handing that on")
	f.StringVar(&c.ClientCA, "client-ca-file", c.ClientCA, "certificates of authorities (PEM) beside the cluster's own: client certificates that one of them has signed are users, by common name and organizations; read again when it changes")
	f.BoolVar(&c.BootstrapTokenAuth, "enable-bootstrap-token-auth", c.BootstrapTokenAuth, "take the Secrets of type bootstrap.kubernetes.io/token in kube-system for bearer tokens, by which kubelets join")
	f.StringSliceVar(&c.Authorization, "authorization-mode", c.Authorization, "who is asked in turn whether a request is allowed: Node (kubelets may read what their Pods need), RBAC, AlwaysAllow (everybody; no anonymous requests then), AlwaysDeny; members of system:masters are allowed everything in any case; must be the same on every node")
	f.StringVar(&c.ComponentKubeconfigs, "component-kubeconfigs", c.ComponentKubeconfigs, "directory for the credentials of kube-controller-manager and kube-scheduler at this node: NAME/kubeconfig, and certificates that are renewed in place; none by default")
	f.StringSliceVar(&c.KubeletAddressTypes, "kubelet-preferred-address-types", c.KubeletAddressTypes, "types of addresses at which kubelets are reached: the first of which a Node has one")
	f.DurationVar(&c.KubeletTimeout, "kubelet-timeout", c.KubeletTimeout, "how long the making of a connection to a kubelet or a Pod may take, TLS included")
	f.StringVar(&c.KubeletClientCert, "kubelet-client-certificate", c.KubeletClientCert, "certificate (PEM) that kubelets are shown, of a user who may use their API; needs --kubelet-client-key; read again when it changes (default: the node's own, of the user "+pki.KubeletUser+")")
	f.StringVar(&c.KubeletClientKey, "kubelet-client-key", c.KubeletClientKey, "key (PEM) of --kubelet-client-certificate")
	f.StringVar(&c.KubeletCA, "kubelet-certificate-authority", c.KubeletCA, "certificates of authorities (PEM) that have signed those of kubelets; without it, kubelets' certificates are not verified")
	f.BoolVar(&c.AnonymousAuth, "anonymous-auth", c.AnonymousAuth, "serve requests without a credential as the user system:anonymous of the group system:unauthenticated, as far as roles let it; false: 401, health checks included")
	f.StringVar(&c.AuditPolicy, "audit-policy-file", c.AuditPolicy, "audit policy (audit.k8s.io/v1); needs --audit-log-path")
	f.StringVar(&c.AuditPath, "audit-log-path", c.AuditPath, "file that audit events are appended to as lines of JSON, - for standard output; needs --audit-policy-file")
	f.IntVar(&c.AuditMaxSize, "audit-log-maxsize", c.AuditMaxSize, "MiB above which the audit log is set aside for a new one; 0 is never")
	f.IntVar(&c.AuditMaxBackups, "audit-log-maxbackup", c.AuditMaxBackups, "how many audit logs that were set aside are kept; 0 is all")
	f.IntVar(&c.AuditMaxAge, "audit-log-maxage", c.AuditMaxAge, "days for which audit logs that were set aside are kept; 0 is for ever")
}

func controllerNames() string {
	names := make([]string, len(controllers.All))
	for i, n := range controllers.All {
		names[i] = string(n)
	}
	return strings.Join(names, ", ")
}

// complete fills in what follows from other settings and checks all of them.
func (s *settings) complete() error {
	return errors.Join(s.Complete(), s.checkLog())
}

// checkLog checks how is logged.
func (s *settings) checkLog() error {
	var errs []error
	switch s.LogFormat {
	case "auto", "text", "json":
	default:
		errs = append(errs, fmt.Errorf("log-format: %q: must be auto, text or json", s.LogFormat))
	}
	if _, err := logLevel(s.LogLevel); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
