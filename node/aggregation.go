package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"sync"

	"github.com/quorate/quorate/apiserver/aggregator"
	"github.com/quorate/quorate/membership/pki"
)

// proxyCertificate is what this node shows to aggregated API servers: from files, or its own. A file that cannot
// be used any more is as it was. Safe for concurrent use.
type proxyCertificate struct {
	n *Node

	mu  sync.Mutex
	now *tls.Certificate // guarded by mu
	at  string           // what the files were then; guarded by mu
	// failed is the error that the log has: each handshake looks again. Guarded by mu.
	failed string
}

// get is aggregator.Config.Certificate: it is asked at each handshake.
func (p *proxyCertificate) get() *tls.Certificate {
	certFile, keyFile := p.n.cfg.ProxyClientCert, p.n.cfg.ProxyClientKey
	if certFile == "" {
		return p.n.pki.ProxyCertificate()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	is := filesAt(certFile, keyFile)
	if p.now != nil && is == p.at {
		return p.now
	}
	c, err := readServingCert(certFile, keyFile)
	if err != nil {
		if err.Error() != p.failed {
			p.failed = err.Error()
			p.n.log.Error("proxy-client-cert-file and proxy-client-key-file cannot be used: the certificate stays as it was", "err", err)
		}
		if p.now == nil {
			return &tls.Certificate{}
		}
		return p.now
	}
	p.now, p.at, p.failed = c, is, ""
	return c
}

// newAggregator returns what knows of other servers' APIs.
func (n *Node) newAggregator(resolve func(ctx context.Context, namespace, name string, port int32) (string, error)) (*aggregator.Aggregator, error) {
	n.proxy = &proxyCertificate{n: n}
	a := aggregator.New(aggregator.Config{
		Store: n.store, Builtin: n.kinds, Resolve: resolve, Certificate: n.proxy.get,
		Dial: n.clusterDialer(aggregator.Dial), ForwardRedirects: !n.cfg.RejectRedirects, Log: n.log,
	})
	return a, n.metrics.Registry().Register(a)
}

// authenticationInfo is what aggregated API servers are told: whose client certificates are users, and whose
// word about users counts.
func (n *Node) authenticationInfo() map[string]string {
	proxies, names := n.pki.ProxyCAs(), []string{pki.ProxyName}
	if file := n.cfg.RequestHeaderCA; file != "" {
		if text, _, err := readClientCAs(file); err == nil {
			proxies = append(proxies, text...)
		} else {
			n.log.Error("requestheader-client-ca-file cannot be used: it is not published", "err", err)
		}
	}
	if n.cfg.ProxyClientCert != "" {
		if c := n.proxy.get(); c.Leaf != nil && c.Leaf.Subject.CommonName != pki.ProxyName {
			names = append(names, c.Leaf.Subject.CommonName)
		}
	}
	return map[string]string{
		"client-ca-file":                     string(n.clientAuthorities()),
		"requestheader-client-ca-file":       string(proxies),
		"requestheader-allowed-names":        jsonList(names...),
		"requestheader-username-headers":     jsonList("X-Remote-User"),
		"requestheader-uid-headers":          jsonList("X-Remote-Uid"),
		"requestheader-group-headers":        jsonList("X-Remote-Group"),
		"requestheader-extra-headers-prefix": jsonList("X-Remote-Extra-"),
	}
}

// clientAuthorities are those of client certificates, in PEM.
func (n *Node) clientAuthorities() []byte {
	n.clientCAs.mu.Lock()
	defer n.clientCAs.mu.Unlock()
	return append(bytes.Clone(n.pki.APICAs()), n.clientCAs.text...)
}

func jsonList(list ...string) string {
	text, err := json.Marshal(list)
	if err != nil {
		panic(err) // strings can be encoded
	}
	return string(text)
}

// checkAggregation checks what aggregated API servers know this one by.
func (c *Config) checkAggregation(bad *mistakes) {
	switch {
	case (c.ProxyClientCert == "") != (c.ProxyClientKey == ""):
		bad.add("proxy-client-cert-file and proxy-client-key-file need each other")
	case c.ProxyClientCert != "":
		if _, err := readServingCert(c.ProxyClientCert, c.ProxyClientKey); err != nil {
			bad.add("proxy-client-cert-file: %w", err)
		}
	}
	if c.RequestHeaderCA != "" {
		if _, _, err := readClientCAs(c.RequestHeaderCA); err != nil {
			bad.add("requestheader-client-ca-file: %w", err)
		}
	}
}
