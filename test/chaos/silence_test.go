//go:build linux && amd64

package chaos

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/chaos/host"
	"github.com/quorate/quorate/test/judges/wire"
)

// silenceWithin bounds the time without writes and without Most Recent reads on the other nodes.
const silenceWithin = 2 * time.Second

// healedWithin bounds the time after which a node that was cut off serves Most Recent reads again, once its network is
// as before. Kernels before Linux 6.15 have no option for that: what waits behind a cut of 4 s waits for up to as long.
func healedWithin() time.Duration {
	const tcpRTOMax = 44 // TCP_RTO_MAX_MS
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return 3 * time.Second
	}
	defer unix.Close(fd)
	if unix.SetsockoptInt(fd, unix.IPPROTO_TCP, tcpRTOMax, 1000) != nil {
		return 8 * time.Second
	}
	return 3 * time.Second
}

// TestSilence cuts the network of a leader at default settings, in both directions and in each of them, and
// measures for how long the others acknowledge no write and serve no Most Recent read, and when all serve again
// after its end. -rounds says how often.
func TestSilence(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("namespaces and devices need root")
	}
	c, err := NewCluster(workDir(t), newBinaries(t).plain(), Shape{Voters: 3, Network: true})
	must.OK(t, err)
	defer func() { must.Close(t, c) }()
	must.OK(t, c.Start(t.Context()))
	for _, fault := range []struct {
		name    string
		out, in host.Link
	}{
		{"cut off", cutLink, cutLink},
		{"hears nothing", host.Link{}, cutLink},
		{"is not heard", cutLink, host.Link{}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			var writes, reads, healed []time.Duration
			for range max(1, *rounds) {
				w, r, h := silenceOnce(t, c, fault.out, fault.in)
				writes, reads, healed = append(writes, w), append(reads, r), append(healed, h)
			}
			slices.Sort(writes)
			slices.Sort(reads)
			slices.Sort(healed)
			last := len(writes) - 1
			t.Logf("of %d: without writes %v (median), %v (longest); without Most Recent reads %v, %v; until all serve again %v, %v",
				last+1, writes[last/2], writes[last], reads[last/2], reads[last], healed[last/2], healed[last])
			if within := healedWithin(); healed[last] > within {
				t.Errorf("all serve again after %v, allowed are %v", healed[last], within)
			}
			if longest := max(writes[last], reads[last]); longest > silenceWithin {
				t.Errorf("%v without service, allowed are %v", longest, silenceWithin)
			}
		})
	}
}

// silenceOnce cuts the leader off for a while, and returns the longest time without an answer
// on any of the others, and how long it took afterwards until all were ready.
func silenceOnce(t *testing.T, c *Cluster, out, in host.Link) (writes, reads, healed time.Duration) {
	t.Helper()
	var leader *Node
	var others []*Node
	must.OK(t, await(t.Context(), time.Minute, "all are ready, and know the leader", func() error {
		leader, others = nil, nil
		for _, n := range c.Nodes() {
			if err := n.AwaitReady(t.Context(), time.Minute); err != nil {
				return err
			}
		}
		st, err := c.Nodes()[0].Status(t.Context())
		if err != nil {
			return err
		}
		for _, n := range c.Nodes() {
			leads := false
			for _, m := range st.Members {
				leads = leads || m.Name == n.Name && m.Role == "leader"
			}
			if leads {
				leader = n
			} else {
				others = append(others, n)
			}
		}
		if leader == nil {
			return fmt.Errorf("nobody leads: %+v", st.Members)
		}
		return nil
	}))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	var wg sync.WaitGroup
	gaps := map[string]time.Duration{}
	answered := make(chan struct{}, 1024)
	for i, n := range others {
		key := fmt.Sprintf("silence-%d", i)
		const path = "/api/v1/namespaces/default/configmaps"
		put := wire.Request{Method: http.MethodPut, Path: path + "/" + key, Body: encode(key, "v", "", 0)}
		get := wire.Request{Method: http.MethodGet, Path: "/api/v1/namespaces/default"}
		k := newClient(c)
		if _, err := k.call(ctx, n, wire.Request{Method: http.MethodPost, Path: path, Body: encode(key, "v", "", 0)}); err != nil {
			t.Fatal(err)
		}
		k.close()
		for what, q := range map[string]wire.Request{"write": put, "read": get} {
			wg.Go(func() {
				k := newClient(c)
				defer k.close()
				for last := time.Now(); ctx.Err() == nil; {
					a, err := k.call(ctx, n, q)
					if ctx.Err() != nil {
						return
					}
					if err != nil || a.Code != http.StatusOK {
						t.Errorf("a %s on %s failed %v after the last one: %d %.200s %v", what, n.Name, time.Since(last), a.Code, a.Body, err)
					} else {
						now := time.Now()
						mu.Lock()
						gaps[what] = max(gaps[what], now.Sub(last))
						mu.Unlock()
						last = now
						select {
						case answered <- struct{}{}:
						default:
						}
					}
					rest(ctx, 5*time.Millisecond)
				}
			})
		}
	}
	for range 100 { // all is well
		<-answered
	}
	for _, n := range others {
		c.Switch.Set(leader.addr, n.addr, out)
		c.Switch.Set(n.addr, leader.addr, in)
	}
	rest(ctx, 2*silenceWithin)
	stop()
	wg.Wait()
	c.Switch.Heal()
	began := time.Now()
	for _, n := range c.Nodes() {
		must.OK(t, n.AwaitReady(t.Context(), time.Minute))
	}
	return gaps["write"], gaps["read"], time.Since(began)
}
