package tunnel

import (
	"context"
	cryptorand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Agent opens tunnels to every node from a worker.
type Agent struct {
	// Node is the worker's Node: its kubelet is offered. Empty: it is not.
	Node string
	// KubeletPort is the kubelet's.
	KubeletPort uint16
	// Networks are offered, too.
	Networks []netip.Prefix
	// Name tells agents apart that offer networks.
	Name string
	// Kubeconfig has the credential. It is read at each try.
	Kubeconfig string
	// Servers are the nodes' addresses at the time.
	Servers func() []string
	Log     *slog.Logger

	id string // of this process, so that a node does not take it for another
}

const (
	// look is how often the list of the nodes is looked at.
	look = time.Second
	// again is how long a tunnel waits at first before it is opened again, and at most.
	again, againMax = 500 * time.Millisecond, 30 * time.Second
	// againTaken is how long it waits at first when another agent has taken it: sooner would only take it
	// from that one.
	againTaken = 10 * time.Second
	// openTime bounds the opening of one.
	openTime = 10 * time.Second
	// maxAnswer bounds what is read of an answer that is no tunnel.
	maxAnswer = 16 << 10
)

// Run keeps the tunnels until ctx ends.
func (a *Agent) Run(ctx context.Context) {
	a.id = cryptorand.Text()
	var wg sync.WaitGroup
	defer wg.Wait()
	running := map[string]context.CancelFunc{}
	for ctx.Err() == nil {
		now := map[string]bool{}
		for _, server := range a.Servers() {
			now[server] = true
			if running[server] != nil {
				continue
			}
			one, cancel := context.WithCancel(ctx)
			running[server] = cancel
			for _, path := range a.paths() {
				wg.Go(func() { a.keep(one, server, path) })
			}
		}
		for server, cancel := range running {
			if !now[server] {
				cancel()
				delete(running, server)
			}
		}
		sleep(ctx, look)
	}
}

// paths are those of this agent's tunnels.
func (a *Agent) paths() (out []string) {
	if a.Node != "" {
		out = append(out, nodesPath+url.PathEscape(a.Node))
	}
	if len(a.Networks) > 0 {
		q := url.Values{"agent": {a.Name}}
		for _, n := range a.Networks {
			q.Add("network", n.String())
		}
		out = append(out, networksPath+"?"+q.Encode())
	}
	return out
}

// keep opens one tunnel again and again.
func (a *Agent) keep(ctx context.Context, server, path string) {
	wait, last := time.Duration(0), ""
	for ctx.Err() == nil {
		began := time.Now()
		err := a.serve(ctx, server, path)
		if ctx.Err() != nil {
			return
		}
		wait = pause(wait, time.Since(began), err)
		if _, taken := err.(*replaced); taken || wait == again {
			last = "" // it was open
		}
		if text := fmt.Sprint(err); text != last { // said once, not at every try
			a.Log.Warn("a tunnel is not open, trying again", "node", server, "path", path, "err", err)
			last = text
		}
		sleep(ctx, wait/2+rand.N(wait/2))
	}
}

// pause is how long a tunnel waits at most that has ended with err, before being the pause before it.
func pause(before, lived time.Duration, err error) time.Duration {
	next := min(max(2*before, again), againMax)
	if _, taken := err.(*replaced); taken { // however long it has lived: the other agent has waited as long
		return max(next, againTaken)
	}
	if lived > againMax {
		return again
	}
	return next
}

// replaced is why a tunnel has ended that another agent has opened.
type replaced struct{ text string }

func (r *replaced) Error() string { return fmt.Sprintf("the node: %.300s", r.text) }

// serve opens a tunnel and dials what it is asked for, until it ends.
func (a *Agent) serve(ctx context.Context, server, path string) error {
	conn, err := a.open(ctx, server, path)
	if err != nil {
		return err
	}
	session, err := yamux.Server(&guarded{ReadWriteCloser: conn}, config())
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	defer session.Close()
	defer context.AfterFunc(ctx, func() { _ = session.Close() })() // Accept tells
	a.Log.Info("a tunnel is open", "node", server, "path", path)
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, maxStreams)
	var why atomic.Pointer[replaced]
	for {
		stream, err := session.AcceptStream()
		if err != nil {
			_ = session.Close() // before its streams are waited for
			if r := why.Load(); r != nil {
				return r
			}
			return err
		}
		select {
		case slots <- struct{}{}:
		default: // more than a node opens
			_ = stream.Close()
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			a.connect(ctx, stream, &why)
		})
	}
}

// open asks a node for a tunnel.
func (a *Agent) open(ctx context.Context, server, path string) (io.ReadWriteCloser, error) {
	config, err := clientcmd.BuildConfigFromFlags("", a.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "quorate-proxy"
	config.NextProtos = []string{"http/1.1"}
	secured, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	// Not rest.TransportFor, which keeps every transport that has a dialer. Whatever the kubeconfig's
	// server is, this node is meant; the name in TLS stays.
	transport, err := rest.HTTPWrappersForConfig(config, &http.Transport{
		TLSClientConfig: secured, DisableKeepAlives: true, TLSHandshakeTimeout: openTime, MaxResponseHeaderBytes: 64 << 10,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", server)
		},
	})
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	opening, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	r, err := http.NewRequestWithContext(opening, http.MethodGet, base.Scheme+"://"+base.Host+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", protocol)
	r.Header.Set(agentHeader, a.id)
	w, err := transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	conn, ok := w.Body.(io.ReadWriteCloser)
	if w.StatusCode != http.StatusSwitchingProtocols || w.Header.Get("Upgrade") != protocol || !ok {
		text, _ := io.ReadAll(io.LimitReader(w.Body, maxAnswer)) // as much of a reason as there is
		_ = w.Body.Close()
		return nil, fmt.Errorf("the node answered %.100s: %.300s", w.Status, reason(text))
	}
	return conn, nil
}

// reason is what an answer says: the message of a Status, or a text.
func reason(answer []byte) string {
	var status struct{ Kind, Message string }
	if err := json.Unmarshal(answer, &status); err == nil && status.Kind == "Status" && status.Message != "" {
		return status.Message
	}
	return strings.TrimSpace(string(answer))
}

// connect dials for one stream and passes its bytes, or notes why the node ends the tunnel.
func (a *Agent) connect(ctx context.Context, stream *yamux.Stream, why *atomic.Pointer[replaced]) {
	defer stream.Close()
	_ = stream.SetDeadline(time.Now().Add(dialTime)) // it takes every time
	address, err := readText(stream)
	if err != nil {
		return // the node has given up, or does not speak the protocol
	}
	if text, ok := strings.CutPrefix(address, replacedPrefix); ok {
		why.Store(&replaced{text})
		_, _ = stream.Write([]byte{0}) // the node does not wait for long
		return
	}
	c, err := a.dial(ctx, address)
	_ = stream.SetDeadline(time.Time{}) // as above
	if err != nil {
		_ = writeText(stream, []byte{1}, err.Error()) // if it fails, the stream has ended
		return
	}
	defer c.Close()
	if _, err := stream.Write([]byte{0}); err != nil {
		return
	}
	// The end of the tunnel ends the stream, and that both directions.
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := io.Copy(c, stream); err != nil || c.CloseWrite() != nil {
			_ = c.Close()
		}
	}()
	_, err = io.Copy(stream, c)
	_ = stream.Close() // its other direction goes on
	if err != nil {
		_ = c.Close()
	}
	<-done
}

// dial connects to an address if it is one that this agent offers.
func (a *Agent) dial(ctx context.Context, address string) (*net.TCPConn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, errors.New("only addresses are dialled, no names")
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	own, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	if !a.offers(to, own) {
		return nil, fmt.Errorf("%s is not offered", to)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// offers reports whether an address is the kubelet's, or in a network that is offered. own are the
// addresses of this host.
func (a *Agent) offers(to netip.AddrPort, own []net.Addr) bool {
	ip := to.Addr()
	if a.Node != "" && to.Port() == a.KubeletPort {
		for _, o := range own {
			if p, err := netip.ParsePrefix(o.String()); err == nil && p.Addr().Unmap() == ip && !ip.IsLinkLocalUnicast() {
				return true
			}
		}
	}
	if !ip.IsGlobalUnicast() { // neither loopback nor link-local, which is where clouds hand out credentials
		return false
	}
	for _, n := range a.Networks {
		if n.Contains(ip) {
			return true
		}
	}
	return false
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
