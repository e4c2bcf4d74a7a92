package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"

	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"github.com/quorate/quorate/membership/pki"
)

// newAggregator returns what knows of other servers' APIs.
func (n *Node) newAggregator(resolve func(ctx context.Context, namespace, name string, port int32) (string, error)) (a *aggregator.Aggregator, err error) {
	n.proxyPair, err = openKeyPair("proxy-client-cert-file", "proxy-client-key-file", n.cfg.ProxyClientCert, n.cfg.ProxyClientKey, n.log)
	if err != nil {
		return nil, err
	}
	a = aggregator.New(aggregator.Config{
		Store: n.store, Builtin: n.kinds, Resolve: resolve, Certificate: n.proxyCertificate,
		Dial: n.dialers.toCluster(aggregator.Dial), ForwardRedirects: !n.cfg.RejectRedirects, Log: n.log,
	})
	return a, n.metrics.Registry().Register(a)
}

// proxyCertificate is what this node shows to aggregated API servers.
func (n *Node) proxyCertificate() *tls.Certificate { return n.proxyPair.get(n.pki.ProxyCertificate) }

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
	if c := n.proxyCertificate(); c.Leaf.Subject.CommonName != pki.ProxyName {
		names = append(names, c.Leaf.Subject.CommonName)
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
	checkKeyPair(bad, "proxy-client-cert-file", "proxy-client-key-file", c.ProxyClientCert, c.ProxyClientKey)
	if c.RequestHeaderCA != "" {
		if _, _, err := readClientCAs(c.RequestHeaderCA); err != nil {
			bad.add("requestheader-client-ca-file: %w", err)
		}
	}
}
