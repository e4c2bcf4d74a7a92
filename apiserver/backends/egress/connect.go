package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/server/egressselector/metrics"
)

// maxAnswer bounds the head of a proxy's answer. There is nothing to say in it.
const maxAnswer = 64 << 10

// connect is a proxy that takes HTTP CONNECT.
type connect struct {
	network, address string
	tls              *tls.Config // nil: none
}

// dial asks the proxy for a connection.
func (p *connect) dial(ctx context.Context, _, address string) (net.Conn, error) {
	if err := checkTarget(address); err != nil {
		return nil, err
	}
	transport := metrics.TransportTCP
	if p.network == "unix" {
		transport = metrics.TransportUDS
	}
	return observed(ctx, metrics.ProtocolHTTPConnect, transport, p.open, func(ctx context.Context, conn net.Conn) (net.Conn, error) {
		return p.ask(ctx, conn, address)
	})
}

// open connects to the proxy itself.
func (p *connect) open(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, p.network, p.address)
	if err != nil {
		return nil, fmt.Errorf("egress proxy: %w", err)
	}
	if p.tls == nil {
		return conn, nil
	}
	secured := tls.Client(conn, p.tls)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // nothing was said on it
		return nil, fmt.Errorf("egress proxy %s: %w", p.address, err)
	}
	return secured, nil
}

// ask has the proxy connect to an address. It closes the connection if that fails.
func (p *connect) ask(ctx context.Context, conn net.Conn, address string) (_ net.Conn, err error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // a network connection takes it
	defer func() {
		if !stop() && err == nil { // its deadline is over, or will be
			err = context.Cause(ctx)
		}
		if err != nil {
			_ = conn.Close() // it is of no use to anybody
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			err = fmt.Errorf("egress proxy %s: connect to %s: %w", p.address, address, err)
		}
	}()
	if _, err := io.WriteString(conn, "CONNECT "+address+" HTTP/1.1\r\nHost: "+address+"\r\n\r\n"); err != nil {
		return nil, err
	}
	in := bufio.NewReader(io.LimitReader(conn, maxAnswer))
	answer, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, err
	}
	switch {
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the proxy answered %.100q", answer.Status)
	case in.Buffered() > 0:
		// All that is spoken through it lets the client begin.
		return nil, fmt.Errorf("%d bytes came behind the proxy's answer", in.Buffered())
	}
	return conn, nil
}

// observed makes a connection through a proxy in its two steps, bounds them and counts them as upstream does.
func observed[P any](ctx context.Context, protocol, transport string, open func(context.Context) (P, error), ask func(context.Context, P) (net.Conn, error)) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	began := time.Now()
	metrics.Metrics.ObserveDialStart(protocol, transport)
	proxy, err := open(ctx)
	if err != nil {
		metrics.Metrics.ObserveDialFailure(protocol, transport, metrics.StageConnect)
		return nil, err
	}
	conn, err := ask(ctx, proxy)
	if err != nil {
		metrics.Metrics.ObserveDialFailure(protocol, transport, metrics.StageProxy)
		return nil, err
	}
	metrics.Metrics.ObserveDialLatency(time.Since(began), protocol, transport)
	return conn, nil
}
