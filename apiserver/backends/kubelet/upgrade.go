package kubelet

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"
)

const (
	// answerWithin is how long the answer to an upgrade may take. A kubelet asks its container runtime
	// first, which may be busy.
	answerWithin = time.Minute
	// maxRefusal bounds an answer that is no upgrade, in bytes. Upstream's library keeps all of it.
	maxRefusal = 1 << 20
)

// upgrading is where a request for an upgrade goes. Upstream's library makes the TLS connection by itself,
// and reads whatever comes back, for as long as it comes. So it is given a transport that hands out
// connections on which TLS is done, and a URL without it: what is read there can be bounded.
func (c *Client) upgrading(l Location) (*url.URL, *http.Transport) {
	to := *l.URL
	dial, over := l.transport().DialContext, l.transport().TLSClientConfig
	if to.Scheme == "https" {
		to.Scheme = "http"
		if to.Port() == "" {
			to.Host = net.JoinHostPort(to.Hostname(), "443")
		}
	} else {
		over = nil
	}
	return &to, &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(l.named(ctx), network, address)
		if err != nil {
			return nil, err
		}
		if over != nil {
			if conn, err = c.handshake(ctx, conn, address, over); err != nil {
				return nil, err
			}
		}
		return newAnswered(ctx, conn), nil
	}}
}

// handshake makes a TLS connection within the timeout.
func (c *Client) handshake(ctx context.Context, conn net.Conn, address string, t *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	t = t.Clone()
	t.ServerName, _, _ = net.SplitHostPort(address)
	over := tls.Client(conn, t)
	if err := over.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // nothing was sent
		return nil, err
	}
	return over, nil
}

// answered is a connection on which an upgrade was asked for. It ends with the request's context. Until the
// answer is an upgrade, what comes is bounded in bytes and in time.
type answered struct {
	net.Conn
	stop func() bool // the end with the context
	// head is the answer so far; nil once it is an upgrade. One goroutine reads.
	head     []byte
	refused  bool // the head is complete, and no upgrade
	upgraded bool
	read     int
}

func newAnswered(ctx context.Context, conn net.Conn) *answered {
	_ = conn.SetReadDeadline(time.Now().Add(answerWithin)) // it is a network connection
	return &answered{Conn: conn, stop: context.AfterFunc(ctx, func() { _ = closeNow(conn) })}
}

// closeNow closes a connection without the goodbye of TLS, which waits for the other side.
func closeNow(conn net.Conn) error {
	if over, ok := conn.(*tls.Conn); ok {
		return over.NetConn().Close()
	}
	return conn.Close()
}

var errRefusalTooLong = errors.New("the answer to the upgrade is too long")

// Read implements net.Conn.
func (a *answered) Read(b []byte) (int, error) {
	if a.upgraded {
		return a.Conn.Read(b)
	}
	if a.read >= maxRefusal || !a.refused && a.read >= maxHeader {
		return 0, errRefusalTooLong
	}
	if len(b) > maxHeader {
		b = b[:maxHeader]
	}
	n, err := a.Conn.Read(b)
	a.read += n
	if !a.refused {
		a.answer(b[:n])
	}
	return n, err
}

// answer looks for the end of the head.
func (a *answered) answer(b []byte) {
	from := max(0, len(a.head)-2) // however small the pieces are, what was looked at is not again
	a.head = append(a.head, b...)
	if end := a.head[from:]; !bytes.Contains(end, []byte("\n\r\n")) && !bytes.Contains(end, []byte("\n\n")) {
		return
	}
	_, rest, _ := bytes.Cut(a.head, []byte(" "))
	if a.head = nil; bytes.HasPrefix(rest, []byte("101")) {
		a.upgraded = true
		_ = a.Conn.SetReadDeadline(time.Time{}) // the streams are the kubelet's to end
		return
	}
	a.refused = true
}

// Close implements net.Conn.
func (a *answered) Close() error {
	a.stop()
	return closeNow(a.Conn)
}
