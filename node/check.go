package node

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth/token"
	"github.com/quorate/quorate/apiserver/admission/plugins"
	"github.com/quorate/quorate/apiserver/backends/egress"
	"github.com/quorate/quorate/apiserver/controllers"
	"github.com/quorate/quorate/apiserver/objects/builtin/service"
	"github.com/quorate/quorate/internal/hostport"
	"github.com/quorate/quorate/membership"
)

// Complete fills in what follows from other settings and checks all of them. The error has a line
// for each that is wrong. Open calls it too.
func (c *Config) Complete() error {
	c.fillIn()
	bad := &mistakes{}
	derived := c.advertise()
	c.checkPlace(bad, derived)
	c.checkServices(bad)
	c.checkFormation(bad)
	c.checkStore(bad)
	c.checkLoad(bad)
	c.checkResources(bad)
	c.checkClientCA(bad)
	c.checkKubelets(bad)
	c.checkServingCert(bad)
	c.checkAggregation(bad)
	c.checkAuthorization(bad)
	c.checkJoining(bad)
	c.checkComponents(bad)
	if _, err := c.fixedTokenKeys(); err != nil {
		bad.errs = append(bad.errs, err)
	}
	if err := plugins.Check(c.AdmissionEnable, c.AdmissionDisable); err != nil {
		bad.add("%w", err)
	}
	if err := plugins.CheckFile(c.AdmissionConfig); err != nil {
		bad.add("admission-control-config-file: %w", err)
	}
	if err := egress.Check(c.EgressSelectorConfig); err != nil {
		bad.add("egress-selector-config-file: %w", err)
	}
	if _, err := controllers.Select(c.Controllers); err != nil {
		bad.add("controllers: %w", err)
	}
	return errors.Join(bad.errs...)
}

// mistakes are what is wrong with settings.
type mistakes struct{ errs []error }

func (m *mistakes) add(format string, args ...any) {
	m.errs = append(m.errs, fmt.Errorf(format, args...))
}

// fillIn sets what the program that embeds a node has left out.
func (c *Config) fillIn() {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.LogBlocked == nil {
		c.LogBlocked = func() time.Duration { return 0 }
	}
	if c.Version == "" {
		c.Version = moduleVersion()
	}
	if c.APIListener != nil {
		c.APIListen = c.APIListener.Addr().String()
	}
	if c.PeerListener != nil {
		c.PeerListen = c.PeerListener.Addr().String()
	}
	if c.LeaseTimeout == 0 {
		c.LeaseTimeout = c.HeartbeatTimeout
	}
}

// advertise fills in the addresses for others, and returns the settings whose mistake is said of what
// they follow from.
func (c *Config) advertise() (derived map[string]bool) {
	derived = map[string]bool{}
	if c.APIAdvertise == "" {
		c.APIAdvertise, derived["api-advertise-address"] = c.APIListen, hostport.Check(c.APIListen, false) != nil
	}
	if c.PeerAdvertise == "" {
		c.PeerAdvertise, derived["peer-advertise-address"] = c.PeerListen, hostport.Check(c.PeerListen, false) != nil
	}
	return derived
}

// checkPlace checks who the node is and where: its name, directory and addresses.
func (c *Config) checkPlace(bad *mistakes, derived map[string]bool) {
	if c.Name == "" {
		bad.add("name: must not be empty")
	}
	if c.DataDir == "" {
		bad.add("data-dir: must not be empty")
	} else if dir, err := filepath.Abs(c.DataDir); err != nil {
		bad.errs = append(bad.errs, err)
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
		if err := hostport.Check(a.addr, a.advertised); err != nil && !derived[a.name] {
			bad.add("%s: %w", a.name, err)
		}
	}
	if c.APIListen == c.PeerListen && !strings.HasSuffix(c.APIListen, ":0") {
		bad.add("api-address and peer-address are both %s: each needs a port of its own", c.APIListen)
	}
	for i, addr := range c.Join {
		if err := hostport.Check(addr, true); err != nil && c.JoinToken == "" {
			bad.add("join: item %d: %w", i+1, err)
		}
	}
}

// checkHosts refuses hosts within the addresses of Services, and warns of them where the node has data already. kube-proxy of each worker answers for all of these, so that
// the workers could not reach the API, and the Service kubernetes could get the address of a host.
func (c *Config) checkHosts(bad *mistakes, services []netip.Prefix) {
	hosts := []struct{ name, addr string }{{"api-advertise-address", c.APIAdvertise}, {"peer-advertise-address", c.PeerAdvertise}}
	for i, addr := range c.Join {
		hosts = append(hosts, struct{ name, addr string }{fmt.Sprintf("join: item %d", i+1), addr})
	}
	for _, h := range hosts {
		host, _, err := net.SplitHostPort(h.addr)
		if err != nil {
			continue // it is said elsewhere what is wrong with it
		}
		ip, err := netip.ParseAddr(host)
		if err != nil {
			continue // a name
		}
		for _, block := range services {
			if !block.Contains(ip.Unmap().WithZone("")) {
				continue
			}
			err := fmt.Errorf("%s: %s is within service-cluster-ip-range %s: kube-proxy would keep workers from it. Take a range that has no host and no Pod, on all nodes", h.name, host, block)
			if cluster, _ := membership.ReadCluster(c.DataDir); cluster != "" {
				// The cluster has lived with it, and another range is a matter of all nodes.
				c.Log.Warn("a host is among the addresses of Services", "err", err)
			} else {
				bad.add("%w", err)
			}
		}
	}
}

// checkServices checks the addresses of Services and the tokens of service accounts.
func (c *Config) checkServices(bad *mistakes) {
	blocks, err := service.ParseBlocks(c.ServiceClusterIPRange)
	if err != nil {
		bad.add("service-cluster-ip-range: %w", err)
	}
	c.checkHosts(bad, blocks)
	if _, err := service.ParsePortRange(c.ServiceNodePortRange); err != nil {
		bad.add("service-node-port-range: %w", err)
	}
	if err := checkHTTPS(c.TokenIssuer); err != nil {
		bad.add("service-account-issuer: %w", err)
	}
	if c.TokenKeysURL == "" {
		c.TokenKeysURL = "https://" + c.APIAdvertise + token.KeysPath
	}
	if err := checkHTTPS(c.TokenKeysURL); err != nil {
		bad.add("service-account-jwks-uri: %w", err)
	}
	if c.MaxTokenExpiry != 0 && c.MaxTokenExpiry < time.Hour || c.MaxTokenExpiry > 1<<32*time.Second {
		bad.add("service-account-max-token-expiration: %s: must be 0, or from 1h to 2^32 seconds", c.MaxTokenExpiry)
	}
}

// checkJoining checks what machines are told that join as nodes, and the certificates that they get.
func (c *Config) checkJoining(bad *mistakes) {
	if c.ControlPlaneEndpoint != "" {
		if err := hostport.Check(c.ControlPlaneEndpoint, true); err != nil {
			bad.add("control-plane-endpoint: %w", err)
		}
	}
	if c.ClusterSigningDuration < time.Hour {
		bad.add("cluster-signing-duration: %s: must be at least 1h", c.ClusterSigningDuration)
	}
}

// checkFormation checks how the node comes to a cluster.
func (c *Config) checkFormation(bad *mistakes) {
	if c.BootstrapExpect < 0 || c.BootstrapExpect > 9 {
		bad.add("bootstrap-expect: %d: must be 0 to 9", c.BootstrapExpect)
	}
	if c.BootstrapExpect > 1 && len(c.Join) == 0 {
		bad.add("bootstrap-expect: %d nodes need --join with each other's peer addresses", c.BootstrapExpect)
	}
	if c.JoinToken != "" && c.BootstrapExpect > 0 {
		bad.add("join-token and bootstrap-expect exclude each other: a token joins a cluster that exists")
	}
	if c.JoinToken != "" && len(c.Join) == 0 {
		bad.add("join-token: needs --join with the API address of a node of the cluster")
	}
}

// leastSilence is shorter than any restart that is worth waiting for.
const leastSilence = 5 * time.Second

// checkStore checks the times, the log and the history.
func (c *Config) checkStore(bad *mistakes) {
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
			bad.add("%s: %s: must be at least %s", d.name, d.value, d.least)
		}
	}
	if d := c.RemoveNonvoterAfter; d < 0 || d > 0 && d < leastSilence {
		bad.add("remove-nonvoter-after: %s: must be 0 or at least %s", d, leastSilence)
	}
	if c.HistoryMaxBytes < 0 {
		bad.add("history-max-bytes: %d: must not be negative", c.HistoryMaxBytes)
	}
	if c.StorageBytes != 0 && (c.StorageBytes < leastStorage || c.StorageBytes > mostStorage) {
		bad.add("storage-bytes: %d: must be 0, or between %d and %d", c.StorageBytes, leastStorage, mostStorage)
	}
	if c.DiskReserveBytes != 0 && (c.DiskReserveBytes < leastReserve || c.DiskReserveBytes > mostReserve) {
		bad.add("disk-reserve-bytes: %d: must be 0, or from %d to %d", c.DiskReserveBytes, leastReserve, mostReserve)
	}
	if c.SnapshotEntries < 1 || c.TrailingLogs < 1 {
		bad.add("snapshot-entries: %d, trailing-logs: %d: must be positive", c.SnapshotEntries, c.TrailingLogs)
	}
	if c.SnapshotLogBytes < 1 {
		bad.add("snapshot-log-max-bytes: %d: must be positive", c.SnapshotLogBytes)
	}
	if c.LeaseTimeout > c.HeartbeatTimeout {
		bad.add("leader-lease-timeout: %s: must not exceed heartbeat-timeout (%s)", c.LeaseTimeout, c.HeartbeatTimeout)
	}
	if c.ElectionTimeout < c.HeartbeatTimeout {
		bad.add("election-timeout: %s: must not be below heartbeat-timeout (%s)", c.ElectionTimeout, c.HeartbeatTimeout)
	}
	if c.HistoryRetention < 2*time.Second || c.HistoryRetention >= 10*time.Minute {
		bad.add("history-retention: %s: must be at least 2s and less than 10m", c.HistoryRetention)
	}
}

// checkLoad checks what bounds requests.
func (c *Config) checkLoad(bad *mistakes) {
	if c.MaxReads < 0 || c.MaxWrites < 0 {
		bad.add("max-requests-inflight: %d, max-mutating-requests-inflight: %d: must not be negative", c.MaxReads, c.MaxWrites)
	} else if c.Fairness && c.MaxReads+c.MaxWrites == 0 {
		bad.add("max-requests-inflight and max-mutating-requests-inflight: their sum must be positive with enable-priority-and-fairness")
	}
	if c.MaxConnections < 1 {
		bad.add("max-connections: %d: must be positive", c.MaxConnections)
	}
	if c.MaxStreams < 1 || c.MaxStreams > math.MaxInt32 {
		bad.add("http2-max-streams-per-connection: %d: must be positive", c.MaxStreams)
	}
	if c.HTTP2Server != HTTP2Own && c.HTTP2Server != HTTP2Standard {
		bad.add("http2-server: %q: must be %s or %s", c.HTTP2Server, HTTP2Own, HTTP2Standard)
	}
	if !(c.GoawayChance >= 0 && c.GoawayChance <= 0.02) {
		bad.add("goaway-chance: %v: can not be less than 0 or greater than 0.02", c.GoawayChance)
	}
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
