package kubelet

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Dial opens a connection, as net.Dialer.DialContext does.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// Config of a Client. Its zero value reaches kubelets without a certificate.
type Config struct {
	// AddressTypes say which of a Node's addresses is its kubelet's: the first type of which the Node
	// has an address. Default: DefaultAddressTypes.
	AddressTypes []string
	// Certificate is the client certificate that kubelets are shown. It is asked for at each
	// connection, so a renewed one counts from there on. Nil: none.
	Certificate func() (*tls.Certificate, error)
	// Authorities have signed the serving certificates of kubelets. Nil: those are not verified, as
	// upstream without --kubelet-certificate-authority.
	Authorities *x509.CertPool
	// Timeout bounds the making of a connection, its TLS handshake included. Default 5 s.
	Timeout time.Duration
	// Dial reaches kubelets. Default: a net.Dialer.
	Dial Dial
	// DialAllowed reaches what users choose: Pods, and ports of Nodes. Default: DialAllowed.
	DialAllowed Dial
	// Tunneled reports whether a Node has opened a tunnel. Dial and DialAllowed are then told by
	// egress.WithNode which Node they dial. Nil: none has.
	Tunneled func(node string) bool
}

// DefaultAddressTypes is upstream's order.
var DefaultAddressTypes = []string{
	string(corev1.NodeHostName),
	string(corev1.NodeInternalDNS), string(corev1.NodeInternalIP),
	string(corev1.NodeExternalDNS), string(corev1.NodeExternalIP),
}

const (
	// DefaultPort is a kubelet's, if its Node does not say.
	DefaultPort = 10250
	// DefaultTimeout is upstream's --kubelet-timeout.
	DefaultTimeout = 5 * time.Second

	// Bounds of connections that are kept for the next request, and of the headers that come back.
	keptConnections        = 256
	keptConnectionsPerHost = 4
	keptFor                = 30 * time.Second
	maxHeader              = 64 << 10
	bufferBytes            = 4 << 10 // of each direction of a connection
)

// Client reaches kubelets and Pods. Safe for concurrent use.
type Client struct {
	types    []string
	timeout  time.Duration
	tunneled func(node string) bool
	// kubelets is for what this server asks of them, unverified for logs whose client asks for that,
	// nodes for what users ask of a kubelet themselves (nodes/proxy), pods for Pods and other ports.
	kubelets, unverified, nodes, pods way
}

// way is how connections of one sort are made. Those that need no upgrade are kept for the next request,
// but for those through tunnels: net/http keeps them by address, and a Node can say that it has the address of
// another, whose users would then talk to it.
type way struct{ kept, once *http.Transport }

// New returns a Client. Its Close must be called.
func New(cfg Config) *Client {
	c := &Client{types: cfg.AddressTypes, timeout: cmp.Or(cfg.Timeout, DefaultTimeout), tunneled: cfg.Tunneled}
	if len(c.types) == 0 {
		c.types = DefaultAddressTypes
	}
	if c.tunneled == nil {
		c.tunneled = func(string) bool { return false }
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{}).DialContext
	}
	if cfg.DialAllowed == nil {
		cfg.DialAllowed = DialAllowed
	}
	verified := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: cfg.Authorities, InsecureSkipVerify: cfg.Authorities == nil}
	if cfg.Certificate != nil {
		verified.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cfg.Certificate() }
	}
	insecure := verified.Clone()
	insecure.RootCAs, insecure.InsecureSkipVerify = nil, true
	c.kubelets = c.way(verified, cfg.Dial)
	c.unverified = c.way(insecure, cfg.Dial)
	// Names were looked up before, and may be another address when they are dialled.
	c.nodes = c.way(verified, cfg.DialAllowed)
	// Pods are reached by their addresses: no certificate could name those. They are not shown ours.
	c.pods = c.way(&tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}, cfg.DialAllowed)
	return c
}

func (c *Client) way(t *tls.Config, dial Dial) way {
	dial = tracking(c.within(dial))
	w := way{kept: c.transport(t, dial), once: c.transport(t, dial)}
	w.once.DisableKeepAlives = true
	return w
}

// transport has HTTP/1.1 only: a connection of its own for each stream. On HTTP/2 a client that does not
// read would have megabytes of its answer kept here, and a window that others need, too.
func (c *Client) transport(t *tls.Config, dial Dial) *http.Transport {
	t = t.Clone()
	t.NextProtos = []string{"http/1.1"}
	return &http.Transport{
		DialContext: dial, TLSClientConfig: t, TLSHandshakeTimeout: c.timeout,
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
		MaxIdleConns: keptConnections, MaxIdleConnsPerHost: keptConnectionsPerHost, IdleConnTimeout: keptFor,
		MaxResponseHeaderBytes: maxHeader, ReadBufferSize: bufferBytes, WriteBufferSize: bufferBytes,
		// What comes back goes on as it is.
		DisableCompression: true,
	}
}

// Close ends the connections that are kept. Those in use end with their requests.
func (c *Client) Close() {
	for _, w := range []way{c.kubelets, c.unverified, c.nodes, c.pods} {
		w.kept.CloseIdleConnections()
	}
}

// within dials within the timeout.
func (c *Client) within(dial Dial) Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, c.timeout)
		defer cancel()
		return dial(ctx, network, address)
	}
}

// DialAllowed dials in the network of this host, and refuses addresses that are not proxied to.
func DialAllowed(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Control: onlyAllowed}
	return d.DialContext(ctx, network, address)
}

// errNotAllowed is upstream's for addresses that are not proxied to.
var errNotAllowed = errors.New("address not allowed")

// onlyAllowed is a net.Dialer's Control.
func onlyAllowed(_, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err == nil && !allowed(host) {
		err = errNotAllowed
	}
	return err
}
