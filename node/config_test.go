package node

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// defaults is a configuration with nothing but defaults, a name and a directory.
func defaults() *Config {
	c := Defaults()
	c.Name, c.DataDir = "n1", "/var/lib/quorate"
	return &c
}

// TestComplete: what is wrong is refused by the name of its flag.
func TestComplete(t *testing.T) {
	for _, x := range []struct {
		name   string
		change func(*Config)
		want   string // in the error; "" for valid
	}{
		{"defaults", func(*Config) {}, ""},
		{"all interfaces", func(c *Config) { c.APIListen, c.APIAdvertise = ":6443", "a:6443" }, ""},
		{"three nodes", func(c *Config) { c.BootstrapExpect, c.Join = 3, []string{"a:1", "b:1", "[::1]:1"} }, ""},
		{"a join token", func(c *Config) { c.JoinToken, c.Join = "t", []string{"https://a:6443"} }, ""},
		{"no name", func(c *Config) { c.Name = "" }, "name: must not be empty"},
		{"no directory", func(c *Config) { c.DataDir = "" }, "data-dir: must not be empty"},
		{"no port", func(c *Config) { c.APIListen = "a" }, `api-address: "a": must be host:port`},
		{"a word for a port", func(c *Config) { c.PeerListen = "a:http" }, "peer-address: a:http: the port"},
		{"a large port", func(c *Config) { c.PeerListen = "a:65536" }, "peer-address: a:65536: the port"},
		{"no address for others", func(c *Config) { c.APIListen = "0.0.0.0:6443" }, "api-advertise-address: 0.0.0.0:6443 cannot be reached"},
		{"no host for others", func(c *Config) { c.PeerListen = ":7443" }, "peer-advertise-address: :7443 cannot be reached"},
		{"any port for others", func(c *Config) { c.PeerAdvertise = "a:0" }, "peer-advertise-address: a:0 cannot be reached"},
		{"join without port", func(c *Config) { c.Join = []string{"a:1", "b"} }, "join: item 2"},
		{"an API among Services", func(c *Config) { c.APIAdvertise = "10.0.0.4:6443" }, "api-advertise-address: 10.0.0.4 is within service-cluster-ip-range 10.0.0.0/24"},
		{"a peer among Services", func(c *Config) { c.PeerListen, c.PeerAdvertise = "0.0.0.0:7443", "[::ffff:10.0.0.4]:7443" }, "peer-advertise-address: ::ffff:10.0.0.4 is within"},
		{"others among Services", func(c *Config) {
			c.BootstrapExpect, c.Join = 3, []string{"a:1", "[fd00::1]:1"}
			c.ServiceClusterIPRange = "10.1.0.0/16,fd00::/112"
		}, "join: item 2: fd00::1 is within"},
		{"beside Services", func(c *Config) { c.APIAdvertise = "10.0.1.4:6443" }, ""},
		{"too many", func(c *Config) { c.BootstrapExpect = 10 }, "bootstrap-expect: 10"},
		{"below none", func(c *Config) { c.BootstrapExpect = -1 }, "bootstrap-expect: -1"},
		{"expect without join", func(c *Config) { c.BootstrapExpect = 3 }, "3 nodes need --join"},
		{"token and expect", func(c *Config) { c.JoinToken, c.Join, c.BootstrapExpect = "t", []string{"a:1"}, 1 }, "exclude each other"},
		{"token without join", func(c *Config) { c.JoinToken = "t" }, "join-token: needs --join"},
		{"lease beyond heartbeat", func(c *Config) { c.LeaseTimeout = c.HeartbeatTimeout + 1 }, "leader-lease-timeout"},
		{"election below heartbeat", func(c *Config) { c.ElectionTimeout = c.HeartbeatTimeout - 1 }, "election-timeout"},
		{"no heartbeat", func(c *Config) { c.HeartbeatTimeout, c.LeaseTimeout = 0, 0 }, "heartbeat-timeout: 0s: must be at least"},
		{"no patience with the disk", func(c *Config) { c.HungDiskTimeout = 0 }, "hung-disk-timeout: 0s"},
		{"negative grace", func(c *Config) { c.ShutdownGrace = -1 }, "shutdown-grace: -1ns"},
		{"no history", func(c *Config) { c.HistoryRetention = time.Second }, "history-retention: 1s"},
		{"long history", func(c *Config) { c.HistoryRetention = 10 * time.Minute }, "history-retention: 10m0s"},
		{"an unknown HTTP/2 server", func(c *Config) { c.HTTP2Server = "x" }, `http2-server: "x": must be own or net/http`},
		{"no bytes of the log for a snapshot", func(c *Config) { c.SnapshotLogBytes = 0 }, "snapshot-log-max-bytes: 0"},
		{"a negative history", func(c *Config) { c.HistoryMaxBytes = -1 }, "history-max-bytes: -1"},
		{"a controller that there is not", func(c *Config) { c.Controllers = []string{"*", "podgc"} }, `controllers: "podgc" is not in the list of known controllers`},
		{"without a controller", func(c *Config) { c.Controllers = []string{"-clusterrole-aggregation"} }, ""},
		{"without a controller that is needed", func(c *Config) { c.Controllers = []string{"*", "-system-namespaces"} },
			"controllers: system-namespaces-controller cannot be disabled: no node is ready without"},
		{"no trailing logs", func(c *Config) { c.TrailingLogs = 0 }, "trailing-logs: 0"},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := defaults()
			x.change(c)
			err := c.Complete()
			switch {
			case x.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)):
				t.Errorf("got %v, want %q in it", err, x.want)
			}
		})
	}
}

// TestHostsAmongServices: a node that has a cluster starts where a new one would not.
func TestHostsAmongServices(t *testing.T) {
	c := defaults()
	c.DataDir, c.APIAdvertise = t.TempDir(), "10.0.0.4:6443"
	var said strings.Builder
	c.Log = slog.New(slog.NewTextHandler(&said, nil))
	if err := c.Complete(); err == nil {
		t.Error("a new node is not refused")
	}
	must.OK(t, os.WriteFile(filepath.Join(c.DataDir, "node.json"), []byte(`{"version":1,"nodeID":"0123456789abcdef0123456789abcdef","clusterID":"0123456789abcdef0123456789abcdef"}`), 0o600))
	if err := c.Complete(); err != nil || !strings.Contains(said.String(), "10.0.0.4 is within service-cluster-ip-range") {
		t.Errorf("%v, log %q", err, said.String())
	}
}

// TestCompleteFillsIn: what is left out follows from the rest.
func TestCompleteFillsIn(t *testing.T) {
	c := defaults()
	c.DataDir = "here"
	must.OK(t, c.Complete())
	if c.APIAdvertise != c.APIListen || c.PeerAdvertise != c.PeerListen || !filepath.IsAbs(c.DataDir) {
		t.Errorf("advertise %s and %s, directory %s", c.APIAdvertise, c.PeerAdvertise, c.DataDir)
	}
}

// TestListenersAreAddresses: who gives a listener need not know its port.
func TestListenersAreAddresses(t *testing.T) {
	c := defaults()
	for _, l := range []*net.Listener{&c.APIListener, &c.PeerListener} {
		var err error
		if *l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		defer (*l).Close()
	}
	must.OK(t, c.Complete())
	if c.APIAdvertise != c.APIListener.Addr().String() || c.PeerAdvertise != c.PeerListener.Addr().String() {
		t.Errorf("advertise %s and %s, listen at %s and %s", c.APIAdvertise, c.PeerAdvertise, c.APIListener.Addr(), c.PeerListener.Addr())
	}
}
