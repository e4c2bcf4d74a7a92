package kubelet

import (
	"fmt"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	translator "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// Streams are those of a command in a container.
type Streams = translator.Options

// Refuse answers a request with an error, before anything else was answered.
type Refuse = proxy.ErrorResponder

// Exec carries the streams of a command, or those that attach has of one. WebSockets of the fifth version
// become SPDY here, unless the kubelet takes them itself; all else goes on as it came.
func (c *Client) Exec(l Location, s Streams, refuse Refuse) http.Handler {
	to, transport := c.upgrading(l)
	pass := upgrade(to, transport, refuse)
	if l.webSockets {
		return pass
	}
	translated := translating(transport, func(by http.RoundTripper) http.Handler { return translator.NewStreamTranslatorHandler(to, by, 0, s) })
	return translator.NewTranslatingHandler(pass, translated, wsstream.IsWebSocketRequestWithStreamCloseProtocol)
}

// PortForward carries the connections to a Pod's ports. SPDY in a WebSocket is taken out of it here,
// unless the kubelet does it itself.
func (c *Client) PortForward(l Location, refuse Refuse) http.Handler {
	pass := upgrade(c.to(l, refuse))
	if l.webSockets {
		return pass
	}
	return translator.NewTranslatingHandler(pass, translator.NewTunnelingHandler(pass), wsstream.IsWebSocketRequestWithTunnelingProtocol)
}

func (c *Client) to(l Location, refuse Refuse) (*url.URL, *http.Transport, Refuse) {
	to, transport := c.upgrading(l)
	return to, transport, refuse
}

// upgrade passes on what asks for an upgrade, and refuses what does not.
func upgrade(to *url.URL, transport *http.Transport, refuse Refuse) http.Handler {
	return passing(to, transport, false, true, refuse)
}

// passing is upstream's handler, which panics by a URL that cannot be read.
func passing(to *url.URL, transport http.RoundTripper, wrap, upgrades bool, refuse Refuse) http.Handler {
	if _, err := url.Parse(to.String()); err != nil {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			refuse.Error(w, r, apierrors.NewBadRequest(fmt.Sprintf("there is nothing at %.200q: %v", to.Host, err)))
		})
	}
	return proxy.NewUpgradeAwareHandler(to, transport, wrap, upgrades, refuse)
}

// Proxy passes requests on to a path: with their query, and an upgrade if they ask for one.
func (c *Client) Proxy(l Location, path string, r *http.Request, refuse Refuse) http.Handler {
	to := *l.URL
	to.Path = utilnet.JoinPreservingTrailingSlash(to.Path, path)
	transport := rewriting(l, r.URL.Path, to.Path)
	if httpstream.IsUpgradeRequest(r) {
		at, by := c.upgrading(l)
		to.Scheme, to.Host, to.RawQuery, transport = at.Scheme, at.Host, r.URL.RawQuery, by
	}
	return passing(&to, transport, true, false, refuse)
}
