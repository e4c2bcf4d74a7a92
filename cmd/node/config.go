package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/auth/token"
	"github.com/quorate/quorate/apiserver/controllers"
	"github.com/quorate/quorate/apiserver/features"
	"github.com/quorate/quorate/apiserver/services"
	"github.com/quorate/quorate/internal/planted"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// Config is what one node is told. Every setting is a flag; the environment
// variable QUORATE_<FLAG> and the key <flag> of the file given by --config mean
// the same. A flag wins over the environment, the environment over the file, the
// file over the default.
type Config struct {
	// set are the flags that these values come from.
	set *pflag.FlagSet

	Name    string
	DataDir string

	APIListen     string
	APIAdvertise  string
	PeerListen    string
	PeerAdvertise string
	TLSNames      []string

	BootstrapExpect int
	Join            []string
	TokenFile       string
	JoinToken       string
	Nonvoter        bool

	ServiceClusterIPRange string
	ServiceNodePortRange  string
	serviceBlocks         []netip.Prefix
	servicePorts          services.PortRange
	TokenIssuer           string
	APIAudiences          []string
	TokenKeysURL          string
	MaxTokenExpiry        time.Duration

	HeartbeatTimeout time.Duration
	ElectionTimeout  time.Duration
	LeaseTimeout     time.Duration
	NoLeaderTimeout  time.Duration
	HungDiskTimeout  time.Duration
	PromoteAfter     time.Duration

	HistoryRetention time.Duration
	HistoryMaxBytes  int64
	SnapshotInterval time.Duration
	SnapshotEntries  uint64
	TrailingLogs     uint64
	SnapshotLogBytes int64

	Fairness       bool
	MaxReads       int
	MaxWrites      int
	MaxConnections int
	MaxStreams     int
	GoawayChance   float64
	RuntimeConfig  []string
	FeatureGates   []string
	ShowHidden     string

	AnonymousAuth bool

	AuditPolicy     string
	AuditPath       string
	AuditMaxSize    int
	AuditMaxBackups int
	AuditMaxAge     int

	LivezGrace         time.Duration
	ShutdownDelay      time.Duration
	ShutdownRetryAfter bool

	Controllers      []string
	GarbageCollector bool
	// EndpointRouting reaches Services at their endpoints instead of their cluster IP.
	EndpointRouting bool
	EventTTL        time.Duration

	ShutdownGrace time.Duration
	LogFormat     string
	LogLevel      string
	Profiling     bool
}

// flags defines a flag for each setting, with its default.
func (c *Config) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("node", pflag.ContinueOnError)
	c.set = f
	f.SortFlags = false
	host, _ := os.Hostname()
	f.StringVar(&c.Name, "name", host, "name of this node, for people; its id is made once and kept in the data directory")
	defaultIs(f, "name", "the name of the host")
	f.StringVar(&c.DataDir, "data-dir", "/var/lib/quorate", "where this node keeps everything; made with mode 0700")
	f.StringVar(&c.APIListen, "api-address", "127.0.0.1:6443", "host:port of the Kubernetes API (HTTPS)")
	f.StringVar(&c.APIAdvertise, "api-advertise-address", "", "host:port under which clients and other nodes reach the API (default: --api-address)")
	f.StringVar(&c.PeerListen, "peer-address", "127.0.0.1:7443", "host:port for other nodes (mutual TLS)")
	f.StringVar(&c.PeerAdvertise, "peer-advertise-address", "", "host:port under which other nodes reach this one (default: --peer-address)")
	f.StringSliceVar(&c.TLSNames, "tls-san", nil, "further names and addresses for the API's certificate")
	f.IntVar(&c.BootstrapExpect, "bootstrap-expect", 0, "make a new cluster when this many nodes have found each other through --join; 1 makes one at once; ignored once the node has data")
	f.StringSliceVar(&c.Join, "join", nil, "peer addresses of the nodes (its own may be among them), or the API address of one node with --join-token; ignored once the node has data")
	f.StringVar(&c.TokenFile, "token-file", "", "file with the cluster's secret, 64 hex digits, the same on every node (default: DATA-DIR/token)")
	f.StringVar(&c.JoinToken, "join-token", "", "join token from 'quorate token create', instead of the secret; @FILE reads it from a file")
	f.BoolVar(&c.Nonvoter, "nonvoter", false, "stay a non-voter: serve reads and watches, take no part in quorums")
	f.StringVar(&c.ServiceClusterIPRange, "service-cluster-ip-range", "10.0.0.0/24", "CIDR of the addresses of Services, or one of each family, separated by a comma; the same on every node")
	f.StringVar(&c.ServiceNodePortRange, "service-node-port-range", services.DefaultPorts.String(), "ports of Services on nodes, both ends included; the same on every node")
	f.StringVar(&c.TokenIssuer, "service-account-issuer", "https://kubernetes.default.svc.cluster.local", "issuer of service account tokens (iss), an https URL; the same on every node")
	f.StringSliceVar(&c.APIAudiences, "api-audiences", nil, "audiences of tokens for this API (default: the issuer)")
	f.StringVar(&c.TokenKeysURL, "service-account-jwks-uri", "", "where others fetch the keys of service account tokens (default: /openid/v1/jwks at --api-advertise-address)")
	f.DurationVar(&c.MaxTokenExpiry, "service-account-max-token-expiration", 0, "longest validity of a service account token; longer ones are shortened; 0 means no bound, else at least 1h")
	f.DurationVar(&c.HeartbeatTimeout, "heartbeat-timeout", 2*time.Second, "silence of the leader that starts an election")
	f.DurationVar(&c.ElectionTimeout, "election-timeout", 2*time.Second, "how long an election may take")
	f.DurationVar(&c.LeaseTimeout, "leader-lease-timeout", time.Second, "how long a leader goes on without hearing from a majority")
	f.DurationVar(&c.NoLeaderTimeout, "no-leader-timeout", 1500*time.Millisecond, "how long requests wait for a leader, or for one that has fallen silent, before they fail")
	f.DurationVar(&c.HungDiskTimeout, "hung-disk-timeout", 10*time.Second, "a log write that takes longer ends the process")
	f.DurationVar(&c.PromoteAfter, "promote-after", 10*time.Second, "how long a joined node must keep up before it gets a vote")
	f.DurationVar(&c.HistoryRetention, "history-retention", 5*time.Minute, "how far back watches and exact reads reach; must be less than 10m")
	f.Int64Var(&c.HistoryMaxBytes, "history-max-bytes", 1<<30, "give up older history above this many bytes")
	f.DurationVar(&c.SnapshotInterval, "snapshot-interval", 30*time.Second, "how often a snapshot of the log is considered")
	f.Uint64Var(&c.SnapshotEntries, "snapshot-entries", 20_000, "log entries since the last snapshot that make a new one worth it")
	f.Uint64Var(&c.TrailingLogs, "trailing-logs", 50_000, "log entries kept behind a snapshot for followers that lag")
	f.Int64Var(&c.SnapshotLogBytes, "snapshot-log-max-bytes", 1<<30, "what the log may grow by, in bytes, while it is kept for a node that is being sent a snapshot")
	f.BoolVar(&c.Fairness, "enable-priority-and-fairness", true, "queue and refuse requests by FlowSchemas and PriorityLevelConfigurations; without it, by their number alone")
	f.IntVar(&c.MaxReads, "max-requests-inflight", 400, "reads at once (0: no bound); with priority and fairness, the sum of this and the next is what all levels share")
	f.IntVar(&c.MaxWrites, "max-mutating-requests-inflight", 200, "changes at once (0: no bound)")
	f.IntVar(&c.MaxConnections, "max-connections", 10_000, "connections to the API at once, and at most three quarters of the file descriptors; above it those end first on which nobody has authenticated, the oldest first, of the address that has the most")
	f.IntVar(&c.MaxStreams, "http2-max-streams-per-connection", 250, "requests at once on one HTTP/2 connection")
	f.Float64Var(&c.GoawayChance, "goaway-chance", 0, "fraction of HTTP/2 requests, at most 0.02, after which the client is asked to connect anew, so that a load balancer spreads clients again")
	f.StringSliceVar(&c.RuntimeConfig, "runtime-config", nil, "APIs to switch on or off, KEY[=true|false]: api/all, api/ga, api/beta, GROUP/VERSION, GROUP/VERSION/RESOURCE; must be the same on every node")
	f.StringSliceVar(&c.FeatureGates, "feature-gates", nil, "feature gates, NAME=true|false; must be the same on every node ("+strings.Join(features.Names(), ", ")+")")
	f.StringVar(&c.ShowHidden, "show-hidden-metrics-for-version", "", "the previous minor version (such as 1.35), to show metrics that are hidden since")
	f.BoolVar(&c.AnonymousAuth, "anonymous-auth", true, "serve requests without a credential as the user system:anonymous of the group system:unauthenticated, as far as roles let it; false: 401, health checks included")
	f.StringVar(&c.AuditPolicy, "audit-policy-file", "", "audit policy (audit.k8s.io/v1); needs --audit-log-path")
	f.StringVar(&c.AuditPath, "audit-log-path", "", "file that audit events are appended to as lines of JSON, - for standard output; needs --audit-policy-file")
	f.IntVar(&c.AuditMaxSize, "audit-log-maxsize", 100, "MiB above which the audit log is set aside for a new one; 0 is never")
	f.IntVar(&c.AuditMaxBackups, "audit-log-maxbackup", 10, "how many audit logs that were set aside are kept; 0 is all")
	f.IntVar(&c.AuditMaxAge, "audit-log-maxage", 0, "days for which audit logs that were set aside are kept; 0 is for ever")
	f.DurationVar(&c.LivezGrace, "livez-grace-period", 0, "how long after the start /livez does not fail (default: --hung-disk-timeout)")
	f.DurationVar(&c.ShutdownDelay, "shutdown-delay-duration", 0, "how long everything is still served at shutdown, while /readyz fails already and load balancers turn away")
	f.BoolVar(&c.ShutdownRetryAfter, "shutdown-send-retry-after", false, "after that, and until all requests are finished, take connections and answer new requests with 429 and Retry-After")
	f.StringSliceVar(&c.Controllers, "controllers", []string{"*"}, "controllers that the leader runs: * is all, foo enables foo, -foo disables it; there are "+controllerNames())
	f.BoolVar(&c.EndpointRouting, "enable-aggregator-routing", false, "reach Services, such as those of conversion webhooks, at their endpoints instead of their cluster IPs, for hosts without a kube-proxy")
	f.BoolVar(&c.GarbageCollector, "enable-garbage-collector", true, "honour propagation policies with finalizers for a garbage collector, this one or kube-controller-manager's; the same on all nodes")
	f.DurationVar(&c.EventTTL, "event-ttl", time.Hour, "how long events are kept after their last write")
	f.DurationVar(&c.ShutdownGrace, "shutdown-grace", 10*time.Second, "how long requests may take to finish at shutdown")
	f.StringVar(&c.LogFormat, "log-format", "auto", "text, json, or auto (text on a terminal)")
	f.StringVar(&c.LogLevel, "log-level", "info", "debug, info, warn or error")
	f.BoolVar(&c.Profiling, "profiling", true, "serve /debug/pprof to those whose roles let them")
	return f
}

const envPrefix = "QUORATE_"

// origin says where a setting came from.
type origin string

const (
	fromDefault origin = "default"
	fromFile    origin = "file"
	fromEnv     origin = "environment"
	fromFlag    origin = "flag"
)

// resolve fills in, for each flag that was not given, what the environment or
// the file says, and returns the origin of every setting. Unknown keys in the
// file and unknown variables with our prefix are errors: a misspelt setting must
// not pass for a default.
func resolve(f *pflag.FlagSet, file string, stdin io.Reader, env []string) (map[string]origin, error) {
	origins := map[string]origin{}
	f.VisitAll(func(flag *pflag.Flag) {
		origins[flag.Name] = fromDefault
		if flag.Changed {
			origins[flag.Name] = fromFlag
		}
	})
	set := func(name, value string, from origin, where string) error {
		if origins[name] == fromFlag || origins[name] == fromEnv {
			return nil
		}
		if err := f.Set(name, value); err != nil {
			return fmt.Errorf("%s: %s: %s: %s", where, name, value, invalidValue(f.Lookup(name), err))
		}
		origins[name] = from
		return nil
	}
	var errs []error
	for _, e := range env {
		key, value, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(key, envPrefix) {
			continue
		}
		name := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(key, envPrefix)), "_", "-")
		if name == "config" || planted.Built && name == "planted" {
			continue
		}
		if f.Lookup(name) == nil {
			errs = append(errs, fmt.Errorf("environment: %s: there is no setting %q%s", key, name, nearSetting(f, name, environmentName)))
			continue
		}
		if value != "" {
			errs = append(errs, set(name, value, fromEnv, "environment"))
		}
	}
	values, err := readConfigFile(file, stdin)
	if err != nil {
		return nil, err
	}
	for _, name := range sortedKeys(values) {
		if f.Lookup(name) == nil {
			errs = append(errs, fmt.Errorf("%s: there is no setting %q%s", file, name, nearSetting(f, name, func(s string) string { return s })))
			continue
		}
		errs = append(errs, set(name, values[name], fromFile, file))
	}
	return origins, errors.Join(errs...)
}

// nearSetting is the end of an error about an unknown setting: the nearest one, if one is
// near, as it is written there.
func nearSetting(f *pflag.FlagSet, name string, written func(string) string) string {
	var names []string
	f.VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
	if name = nearest(name, names); name == "" {
		return ""
	}
	return "; did you mean " + written(name) + "?"
}

func environmentName(setting string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(setting, "-", "_"))
}

// maxConfigBytes bounds the configuration file.
const maxConfigBytes = 1 << 20

// readConfigFile returns the file's settings as flags would be given; "-" reads
// standard input, "" is no file.
func readConfigFile(file string, stdin io.Reader) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxConfigBytes+1))
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", file, err)
	}
	if len(b) > maxConfigBytes {
		return nil, fmt.Errorf("configuration %s: larger than %d bytes", file, maxConfigBytes)
	}
	return parseConfig(b, file)
}

// parseConfig reads a configuration file's content; file is its name in errors.
func parseConfig(b []byte, file string) (map[string]string, error) {
	var raw map[string]any
	if err := yaml.UnmarshalStrict(b, &raw); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", file, err)
	}
	out := map[string]string{}
	for _, name := range sortedKeys(raw) {
		var ok bool
		switch v := raw[name].(type) {
		case []any:
			parts := make([]string, len(v))
			for i, p := range v {
				if parts[i], ok = scalar(p); !ok {
					return nil, fmt.Errorf("configuration %s: %s: item %d: a value is needed", file, name, i+1)
				}
			}
			out[name] = strings.Join(parts, ",")
		default:
			if out[name], ok = scalar(v); !ok {
				return nil, fmt.Errorf("configuration %s: %s: a value or a list is needed", file, name)
			}
		}
	}
	return out, nil
}

// scalar is a value as it would be given to a flag. YAML's numbers arrive as
// float64.
func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	}
	return "", false
}

func controllerNames() string {
	names := make([]string, len(controllers.All))
	for i, n := range controllers.All {
		names[i] = string(n)
	}
	return strings.Join(names, ", ")
}

// complete fills in what follows from other settings and checks all of them.
func (c *Config) complete() error {
	derived := map[string]bool{} // what is wrong with these is said of what they follow from
	if c.APIAdvertise == "" {
		c.APIAdvertise, derived["api-advertise-address"] = c.APIListen, checkAddress(c.APIListen, false) != nil
	}
	if c.PeerAdvertise == "" {
		c.PeerAdvertise, derived["peer-advertise-address"] = c.PeerListen, checkAddress(c.PeerListen, false) != nil
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Name == "" {
		bad("name: must not be empty")
	}
	if c.DataDir == "" {
		bad("data-dir: must not be empty")
	} else if dir, err := filepath.Abs(c.DataDir); err != nil {
		errs = append(errs, err)
	} else {
		c.DataDir = dir
	}
	for _, a := range []struct {
		name, addr string
		advertised bool
	}{
		{"api-address", c.APIListen, false}, {"api-advertise-address", c.APIAdvertise, true},
		{"peer-address", c.PeerListen, false}, {"peer-advertise-address", c.PeerAdvertise, true},
	} {
		if err := checkAddress(a.addr, a.advertised); err != nil && !derived[a.name] {
			bad("%s: %w", a.name, err)
		}
	}
	if c.APIListen == c.PeerListen && !strings.HasSuffix(c.APIListen, ":0") {
		bad("api-address and peer-address are both %s: each needs a port of its own", c.APIListen)
	}
	for i, addr := range c.Join {
		if err := checkAddress(addr, true); err != nil && c.JoinToken == "" {
			bad("join: item %d: %w", i+1, err)
		}
	}
	var err error
	if c.serviceBlocks, err = services.ParseBlocks(c.ServiceClusterIPRange); err != nil {
		bad("service-cluster-ip-range: %w", err)
	}
	if c.servicePorts, err = services.ParsePortRange(c.ServiceNodePortRange); err != nil {
		bad("service-node-port-range: %w", err)
	}
	if err := checkHTTPS(c.TokenIssuer); err != nil {
		bad("service-account-issuer: %w", err)
	}
	if c.TokenKeysURL == "" {
		c.TokenKeysURL = "https://" + c.APIAdvertise + token.KeysPath
	}
	if err := checkHTTPS(c.TokenKeysURL); err != nil {
		bad("service-account-jwks-uri: %w", err)
	}
	if c.MaxTokenExpiry != 0 && c.MaxTokenExpiry < time.Hour || c.MaxTokenExpiry > 1<<32*time.Second {
		bad("service-account-max-token-expiration: %s: must be 0, or from 1h to 2^32 seconds", c.MaxTokenExpiry)
	}
	if c.BootstrapExpect < 0 || c.BootstrapExpect > 9 {
		bad("bootstrap-expect: %d: must be 0 to 9", c.BootstrapExpect)
	}
	if c.BootstrapExpect > 1 && len(c.Join) == 0 {
		bad("bootstrap-expect: %d nodes need --join with each other's peer addresses", c.BootstrapExpect)
	}
	if c.JoinToken != "" && c.BootstrapExpect > 0 {
		bad("join-token and bootstrap-expect exclude each other: a token joins a cluster that exists")
	}
	if c.JoinToken != "" && len(c.Join) == 0 {
		bad("join-token: needs --join with the API address of a node of the cluster")
	}
	for _, d := range []struct {
		name  string
		value time.Duration
		least time.Duration
	}{
		{"heartbeat-timeout", c.HeartbeatTimeout, 5 * time.Millisecond},
		{"election-timeout", c.ElectionTimeout, 5 * time.Millisecond},
		{"leader-lease-timeout", c.LeaseTimeout, 5 * time.Millisecond},
		{"no-leader-timeout", c.NoLeaderTimeout, time.Millisecond},
		{"hung-disk-timeout", c.HungDiskTimeout, 100 * time.Millisecond},
		{"promote-after", c.PromoteAfter, 0},
		{"snapshot-interval", c.SnapshotInterval, time.Millisecond},
		{"shutdown-grace", c.ShutdownGrace, 0},
		{"shutdown-delay-duration", c.ShutdownDelay, 0},
		{"livez-grace-period", c.LivezGrace, 0},
		{"event-ttl", c.EventTTL, time.Second},
	} {
		if d.value < d.least {
			bad("%s: %s: must be at least %s", d.name, d.value, d.least)
		}
	}
	if c.HistoryMaxBytes < 1 {
		bad("history-max-bytes: %d: must be positive", c.HistoryMaxBytes)
	}
	if c.SnapshotEntries < 1 || c.TrailingLogs < 1 {
		bad("snapshot-entries: %d, trailing-logs: %d: must be positive", c.SnapshotEntries, c.TrailingLogs)
	}
	if c.SnapshotLogBytes < 1 {
		bad("snapshot-log-max-bytes: %d: must be positive", c.SnapshotLogBytes)
	}
	if c.LeaseTimeout > c.HeartbeatTimeout {
		bad("leader-lease-timeout: %s: must not exceed heartbeat-timeout (%s)", c.LeaseTimeout, c.HeartbeatTimeout)
	}
	if c.ElectionTimeout < c.HeartbeatTimeout {
		bad("election-timeout: %s: must not be below heartbeat-timeout (%s)", c.ElectionTimeout, c.HeartbeatTimeout)
	}
	if c.HistoryRetention < 2*time.Second || c.HistoryRetention >= 10*time.Minute {
		bad("history-retention: %s: must be at least 2s and less than 10m", c.HistoryRetention)
	}
	errs = append(errs, c.checkLoad()...)
	errs = append(errs, c.checkSurface()...)
	if _, err := controllers.Select(c.Controllers); err != nil {
		bad("controllers: %w", err)
	}
	switch c.LogFormat {
	case "auto", "text", "json":
	default:
		bad("log-format: %q: must be auto, text or json", c.LogFormat)
	}
	if _, err := logLevel(c.LogLevel); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// checkLoad checks what bounds requests.
func (c *Config) checkLoad() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.MaxReads < 0 || c.MaxWrites < 0 {
		bad("max-requests-inflight: %d, max-mutating-requests-inflight: %d: must not be negative", c.MaxReads, c.MaxWrites)
	} else if c.Fairness && c.MaxReads+c.MaxWrites == 0 {
		bad("max-requests-inflight and max-mutating-requests-inflight: their sum must be positive with enable-priority-and-fairness")
	}
	if c.MaxConnections < 1 {
		bad("max-connections: %d: must be positive", c.MaxConnections)
	}
	if c.MaxStreams < 1 || c.MaxStreams > math.MaxInt32 {
		bad("http2-max-streams-per-connection: %d: must be positive", c.MaxStreams)
	}
	if !(c.GoawayChance >= 0 && c.GoawayChance <= 0.02) {
		bad("goaway-chance: %v: can not be less than 0 or greater than 0.02", c.GoawayChance)
	}
	return errs
}

// checkHTTPS checks a URL that others go by.
func checkHTTPS(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return err
	case u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("%s: must be an https URL", s)
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%s: must have neither a query nor a fragment", s)
	}
	return nil
}

// checkAddress checks host:port; others must be able to dial an advertised one.
func checkAddress(addr string, advertised bool) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q: must be host:port", addr)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("%s: the port must be a number from 0 to 65535", addr)
	}
	ip := net.ParseIP(host)
	if advertised && (host == "" || n == 0 || ip != nil && ip.IsUnspecified()) {
		return fmt.Errorf("%s cannot be reached by others: a host and a port are needed", addr)
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
