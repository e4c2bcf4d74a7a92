package pki

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/proto"
)

// clockSkew is how far another machine's clock may be behind.
const clockSkew = 10 * time.Minute

// leaf is an end entity's certificate with its key. It is immutable.
type leaf struct {
	cert             *x509.Certificate
	certPEM, keyPEM  []byte
	tls              *tls.Certificate // with the CA in the chain
	notBefore, until time.Time
}

func newLeaf(der []byte, key *ecdsa.PrivateKey, ca *Authority) (*leaf, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &leaf{
		cert:    cert,
		certPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		keyPEM:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		// TLS lets a server leave out the root. We send it: a client that holds a join
		// token knows the CA by its hash only.
		tls:       &tls.Certificate{Certificate: [][]byte{der, ca.cert.Raw}, PrivateKey: key, Leaf: cert},
		notBefore: cert.NotBefore,
		until:     cert.NotAfter,
	}, nil
}

// loadLeaf reads a leaf that an earlier run has written.
func loadLeaf(certFile, keyFile string, ca *Authority) (*leaf, error) {
	certPEM, err := os.ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	keyPEM, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM) // checks that they belong together
	if err != nil {
		return nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("not an ECDSA key")
	}
	return newLeaf(pair.Certificate[0], key, ca)
}

// request says what a leaf must be. Two requests that differ need two leaves.
type request struct {
	subject pkix.Name
	names   []string
	ips     []net.IP
	uris    []*url.URL
	usages  []x509.ExtKeyUsage
}

func (r request) template(now time.Time, lifetime time.Duration) *x509.Certificate {
	return &x509.Certificate{
		Subject:     r.subject,
		DNSNames:    r.names,
		IPAddresses: r.ips,
		URIs:        r.uris,
		ExtKeyUsage: r.usages,
		NotBefore:   now.Add(-clockSkew),
		NotAfter:    now.Add(lifetime),
	}
}

// check says whether an existing leaf is what the request asks for, and its CA
// the current one.
func (r request) check(l *leaf, ca *Authority, now time.Time) error {
	for _, u := range r.usages {
		if err := ca.verify(l.cert, u, now); err != nil {
			return err
		}
	}
	if l.cert.Subject.String() != r.subject.String() {
		return fmt.Errorf("made for %s", l.cert.Subject)
	}
	if !slices.Equal(l.cert.DNSNames, r.names) ||
		!slices.EqualFunc(l.cert.IPAddresses, r.ips, net.IP.Equal) ||
		!slices.EqualFunc(l.cert.URIs, r.uris, func(a, b *url.URL) bool { return *a == *b }) {
		return errors.New("made for other names")
	}
	return nil
}

func peerRequest(id proto.NodeID) request {
	return request{
		subject: pkix.Name{Organization: []string{"quorate:peer"}, CommonName: string(id)},
		uris:    []*url.URL{{Scheme: "quorate", Host: "peer", Path: "/" + string(id)}},
		usages:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// ProxyName is the common name of the certificate for aggregated servers.
const ProxyName = "front-proxy-client"

// KubeletUser is as whom nodes ask kubelets: the name that kubeadm gives kube-apiserver for it.
const KubeletUser = "kube-apiserver-kubelet-client"

func adminRequest(id proto.NodeID) request {
	return clientRequest(id, pkix.Name{Organization: []string{"system:masters"}, CommonName: "quorate-admin"})
}

func proxyRequest(id proto.NodeID) request {
	return clientRequest(id, pkix.Name{CommonName: ProxyName})
}

func kubeletRequest(id proto.NodeID) request {
	return clientRequest(id, pkix.Name{CommonName: KubeletUser})
}

// clientRequest names the node in whose directory the certificate lies, if it is one's, so that it can be
// refused when the node is removed.
func clientRequest(id proto.NodeID, subject pkix.Name) request {
	r := request{subject: subject, usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if id != "" {
		r.uris = []*url.URL{{Scheme: uriScheme, Host: uriNode, Path: "/" + string(id)}}
	}
	return r
}

const (
	uriScheme = "quorate"
	uriNode   = "node"
)

// NodesOf returns the nodes whose certificate this is: their disks hold its key. They
// are in its URI names quorate://node/<node-id>. Certificates of users have none. It
// reads the certificate only; whether to trust it is for the caller to check.
func NodesOf(cert *x509.Certificate) []proto.NodeID {
	var out []proto.NodeID
	for _, u := range cert.URIs {
		if id, ok := strings.CutPrefix(u.Path, "/"); ok && u.Scheme == uriScheme && u.Host == uriNode {
			out = append(out, proto.NodeID(id))
		}
	}
	return out
}

// servingRequest covers what clients inside and outside of a cluster call an
// API server, plus the names and addresses given.
func servingRequest(nodeName string, hosts []string) request {
	names := []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local",
	}
	ips := []net.IP{net.IPv4(127, 0, 0, 1).To4(), net.IPv6loopback}
	for _, h := range append([]string{nodeName}, hosts...) {
		if ip := net.ParseIP(h); ip != nil {
			if v4 := ip.To4(); v4 != nil {
				ip = v4
			}
			if !ip.IsUnspecified() {
				ips = append(ips, ip)
			}
		} else if validHost(h) {
			names = append(names, h)
		}
	}
	slices.Sort(names)
	slices.SortFunc(ips, func(a, b net.IP) int { return slices.Compare(a.To16(), b.To16()) })
	return request{
		subject: pkix.Name{Organization: []string{"quorate:server"}, CommonName: "kube-apiserver"},
		names:   slices.Compact(names),
		ips:     slices.CompactFunc(ips, net.IP.Equal),
		usages:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
}

// validHost leaves out what x509 would refuse, so that an odd host name of a
// machine does not keep a node from starting.
func validHost(h string) bool {
	if h == "" || len(h) > 253 {
		return false
	}
	for i, c := range []byte(h) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_':
		case (c == '-' || c == '.') && i > 0:
		default:
			return false
		}
	}
	return h[len(h)-1] != '-'
}
