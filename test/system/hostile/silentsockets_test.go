package hostile

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

var (
	silentHold    = flag.Duration("hold", 5*time.Second, "TestSilentSockets: how long the sockets are held")
	silentSockets = flag.Int("sockets", 2400, "TestSilentSockets: how many there are")
	silentRate    = flag.Int("rate", 200, "TestSilentSockets: how many are opened in a second, at most")
	silentBound   = flag.Int("max-connections", 0, "TestSilentSockets: the node's bound; 0: half of the sockets")
	// On a machine that others use, how long requests take says little of the server.
	silentP99 = flag.Duration("p99", 2*time.Second, "TestSilentSockets: how long gets on an open connection may take")
)

// TestSilentSockets: hostile clients without credentials, from one address and then
// from several, hold far more connections than a node may have and say nothing on them. A user on
// an open connection does not notice; who connects again, from another address or from the same one,
// is served; so is a health check, which has no credentials either. What the machine is busy with besides
// is seen at another node, which nobody attacks.
//
// By hand, for long: go test ./test/system/hostile -run TestSilentSockets -hold 1h -sockets 20000 -max-connections 10000 -rate 300 -p99 250ms -timeout 3h -v
func TestSilentSockets(t *testing.T) {
	bound := *silentBound
	if bound == 0 {
		bound = *silentSockets / 2
	}
	for _, x := range []struct {
		name string
		from []string
	}{
		{"one address", []string{"127.0.0.2"}},
		{"many addresses", []string{"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6", "127.0.0.7", "127.0.0.8", "127.0.0.9"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			n, calm := cluster.Start(t, 1, fmt.Sprintf("max-connections=%d", bound)).Nodes()[0], cluster.Start(t, 1).Nodes()[0]
			guests := []*visitor{
				{name: "a user of another node", node: calm, from: "127.0.0.1", path: "/api/v1/namespaces/default", user: true, keep: true},
				{name: "a user on an open connection", node: n, from: "127.0.0.1", path: "/api/v1/namespaces/default", user: true, keep: true},
				{name: "a user who connects each time", node: n, from: "127.0.0.1", path: "/api/v1/namespaces/default", user: true},
				{name: "a user at the attackers' address", node: n, from: "127.0.0.2", path: "/api/v1/namespaces/default", user: true},
				{name: "a health check that connects", node: n, from: "127.0.0.1", path: "/livez"},
			}
			attackers := crowd(t, silence{Address: strings.TrimPrefix(n.API, "https://"), From: x.from, Sockets: *silentSockets, PerSecond: *silentRate})
			cluster.Await(t, time.Minute+time.Duration(3*bound / *silentRate)*time.Second, "the node is full", func() string {
				now := attackers.now()
				if now.Opened < int64(2*bound) {
					return fmt.Sprintf("%+v", now)
				}
				return ""
			})
			for left := *silentHold; left > 0; left -= time.Minute {
				visit(t, guests, min(left, time.Minute))
				now := attackers.now()
				t.Logf("%d sockets open, %d opened so far, %d refused; the node has %d descriptors and %d MiB", now.Open, now.Opened, now.Refused, n.Descriptors(t), n.Resident(t)>>20)
				var p99 []time.Duration
				for _, g := range guests {
					p99 = append(p99, g.report(t))
				}
				if limit := max(*silentP99, 4*p99[0]); p99[1] > limit {
					t.Errorf("%s waits: p99 %s, want at most %s", guests[1].name, p99[1], limit)
				}
			}
			if now := attackers.now(); now.Open == 0 {
				t.Errorf("the attack did nothing: %+v", now)
			}
		})
	}
}

// visitor is a client that wants to be served, on one connection or on a new one each time.
type visitor struct {
	name, from, path string
	node             *cluster.Node
	user, keep       bool

	client *http.Client
	took   []time.Duration
	failed int
	err    error
}

// visit lets all of them ask for that long, ten times a second each.
func visit(t *testing.T, all []*visitor, lasts time.Duration) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	var wg sync.WaitGroup
	for _, v := range all {
		if v.client == nil {
			v.connect(t)
		}
		wg.Go(func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				v.ask()
				select {
				case <-ctx.Done():
				case <-tick.C:
				}
			}
		})
	}
	wg.Wait()
}

func (v *visitor) connect(t *testing.T) {
	t.Helper()
	config, err := v.node.TLS()
	must.OK(t, err)
	if !v.user {
		config = &tls.Config{RootCAs: config.RootCAs}
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(v.from)}}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableKeepAlives: !v.keep, DialContext: dialer.DialContext}
	v.client = &http.Client{Transport: transport, Timeout: 20 * time.Second}
	t.Cleanup(transport.CloseIdleConnections)
}

func (v *visitor) ask() {
	began := time.Now()
	resp, err := v.client.Get(v.node.API + v.path)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s", resp.Status)
		}
	}
	v.took = append(v.took, time.Since(began))
	if err != nil {
		v.failed++
		v.err = err
	}
}

// report says how it went since the last report. All must have been served.
func (v *visitor) report(t *testing.T) (p99 time.Duration) {
	t.Helper()
	slices.Sort(v.took)
	p50, p99 := v.took[len(v.took)/2], v.took[len(v.took)*99/100]
	t.Logf("%-34s %d requests, p50 %s, p99 %s, most %s, %d failed", v.name, len(v.took), p50.Round(time.Microsecond), p99.Round(time.Microsecond), v.took[len(v.took)-1].Round(time.Microsecond), v.failed)
	if v.failed > 0 {
		t.Errorf("%s: %d of %d were not served, the last: %v", v.name, v.failed, len(v.took), v.err)
	}
	v.took, v.failed, v.err = nil, 0, nil
	return p99
}
