package pki

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/proto"
)

// Names of the files in a pki directory.
const (
	FileAPICA       = "api-ca.crt"
	FilePeerCA      = "peer-ca.crt"
	FileServingCert = "apiserver.crt"
	FileServingKey  = "apiserver.key"
	FilePeerCert    = "peer.crt"
	FilePeerKey     = "peer.key"
	FileAdminCert   = "admin.crt"
	FileAdminKey    = "admin.key"
	FileKubeletCert = "kubelet-client.crt"
	FileKubeletKey  = "kubelet-client.key"
	FileProxyCA     = "front-proxy-ca.crt"
	FileProxyCert   = "front-proxy.crt"
	FileProxyKey    = "front-proxy.key"
)

// Options describe the certificates of one node. Dir, Secrets and, but for
// AdminOnly, NodeID are required.
type Options struct {
	Dir     string // made with mode 0700
	Secrets []Secret
	NodeID  proto.NodeID
	Name    string   // of the node; becomes a name of the serving certificate
	Hosts   []string // more names and addresses of the serving certificate
	// AdminOnly is for a directory that no node serves from: it gets the
	// administrator's certificate and what follows from the secrets, but no other
	// certificate. Certificate, ServingCertificate and KubeletCertificate are
	// not to be called then.
	AdminOnly bool
	// Components asks for the credentials of a control plane's programs. Default: none.
	Components ComponentOptions

	// Lifetime of a leaf. Default 365 days.
	Lifetime time.Duration
	// RenewAt is the part of the lifetime after which a leaf is renewed. Default
	// 2/3, so that a node that is switched off for months comes back with time left.
	RenewAt float64
	// CheckEvery is how often Run looks. Default 1 h, but never longer than a
	// 20th of Lifetime.
	CheckEvery time.Duration
	// OnRenew is called from Run after leaves were renewed, for instance to write
	// the kubeconfig again. Default: nothing.
	OnRenew func()
	Logger  *slog.Logger     // default slog.Default()
	Now     func() time.Time // default time.Now
}

// Node is the pki directory of one node. It satisfies raftstore/peer.Credentials.
// All methods may be called concurrently.
type Node struct {
	opt     Options
	signing authorities
	all     []authorities // signing first
	peers   *x509.CertPool
	api     *x509.CertPool
	token   *ecdsa.PrivateKey // of this node alone; nil with AdminOnly
	current atomic.Pointer[leaves]
}

// leaves are replaced as a whole.
type leaves struct{ serving, peer, admin, proxy, kubelet *leaf }

// Open reads a pki directory and makes what is missing, does not match the
// options, or is due for renewal.
func Open(opt Options) (*Node, error) {
	if len(opt.Secrets) == 0 {
		return nil, errNoSecret
	}
	if opt.Dir == "" {
		return nil, errors.New("pki: a directory is required")
	}
	if opt.NodeID == "" && !opt.AdminOnly {
		return nil, errors.New("pki: a node id is required")
	}
	if opt.Lifetime <= 0 {
		opt.Lifetime = 365 * 24 * time.Hour
	}
	if opt.RenewAt <= 0 || opt.RenewAt >= 1 {
		opt.RenewAt = 2.0 / 3
	}
	if opt.CheckEvery <= 0 {
		opt.CheckEvery = time.Hour
	}
	opt.CheckEvery = min(opt.CheckEvery, opt.Lifetime/20)
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	n := &Node{opt: opt, peers: x509.NewCertPool(), api: x509.NewCertPool()}
	for _, s := range opt.Secrets {
		a, err := derive(s)
		if err != nil {
			return nil, fmt.Errorf("pki: %w", err)
		}
		n.all = append(n.all, a)
		n.peers.AddCert(a.peer.cert)
		n.api.AddCert(a.api.cert)
	}
	n.signing = n.all[0]
	if err := makeDir(opt.Dir); err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	if err := n.writeFixed(); err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	if !opt.AdminOnly {
		var err error
		if n.token, err = loadTokenKey(n.path(FileTokenKey)); err != nil {
			return nil, fmt.Errorf("pki: %w", err)
		}
	}
	if _, err := n.refresh(); err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	return n, nil
}

func (n *Node) path(file string) string { return filepath.Join(n.opt.Dir, file) }

// writeFixed writes what follows from the secrets alone.
func (n *Node) writeFixed() error {
	return errors.Join(
		WriteFile(n.path(FileAPICA), n.APICAs(), ModePublic),
		WriteFile(n.path(FilePeerCA), n.peerCAs(), ModePublic),
		WriteFile(n.path(FileProxyCA), n.ProxyCAs(), ModePublic),
	)
}

// refresh loads or renews the leaves and publishes them. Only Open and Run call
// it, one after the other.
func (n *Node) refresh() (renewed bool, err error) {
	var l leaves
	type want struct {
		to        **leaf
		ca        *Authority
		req       request
		cert, key string
	}
	wanted := []want{{&l.admin, n.signing.api, adminRequest(n.opt.NodeID), FileAdminCert, FileAdminKey}}
	if !n.opt.AdminOnly {
		wanted = append(wanted,
			want{&l.serving, n.signing.api, servingRequest(n.opt.Name, n.opt.Hosts), FileServingCert, FileServingKey},
			want{&l.kubelet, n.signing.api, kubeletRequest(n.opt.NodeID), FileKubeletCert, FileKubeletKey},
			want{&l.peer, n.signing.peer, peerRequest(n.opt.NodeID), FilePeerCert, FilePeerKey},
			want{&l.proxy, n.signing.proxy, proxyRequest(n.opt.NodeID), FileProxyCert, FileProxyKey})
	}
	for _, w := range wanted {
		var fresh bool
		if *w.to, fresh, err = n.loadOrIssue(w.ca, w.req, n.path(w.cert), n.path(w.key)); err != nil {
			return renewed, fmt.Errorf("%s: %w", w.cert, err)
		}
		renewed = renewed || fresh
	}
	n.current.Store(&l)
	fresh, err := n.writeComponents()
	return renewed || fresh, err
}

func (n *Node) loadOrIssue(ca *Authority, req request, certFile, keyFile string) (*leaf, bool, error) {
	// A crash between the two leaves a pair that does not match, which loadLeaf
	// refuses, so the next start makes both again.
	return n.keepOrIssue(ca, req, certFile, keyFile, func(l *leaf) error {
		return errors.Join(WriteFile(keyFile, l.keyPEM, ModeSecret), WriteFile(certFile, l.certPEM, ModePublic))
	})
}

// keepOrIssue returns the leaf in files if it is as requested and not due, or saves a new one.
func (n *Node) keepOrIssue(ca *Authority, req request, certFile, keyFile string, save func(*leaf) error) (*leaf, bool, error) {
	now := n.opt.Now()
	l, err := loadLeaf(certFile, keyFile, ca)
	if err == nil {
		err = req.check(l, ca, now)
	}
	if err == nil && now.Before(n.due(l)) {
		return l, false, nil
	}
	if l, err = ca.issue(req.template(now, n.opt.Lifetime)); err != nil {
		return nil, false, err
	}
	if err := save(l); err != nil {
		return nil, false, err
	}
	return l, true, nil
}

// due is when a leaf is to be renewed.
func (n *Node) due(l *leaf) time.Time {
	return l.notBefore.Add(time.Duration(float64(l.until.Sub(l.notBefore)) * n.opt.RenewAt))
}

// Run renews leaves before they expire, until ctx ends. Connections that exist
// go on; new handshakes see the new leaf.
func (n *Node) Run(ctx context.Context) {
	t := time.NewTicker(n.opt.CheckEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		renewed, err := n.refresh()
		if err != nil {
			n.opt.Logger.Error("certificates were not renewed", "dir", n.opt.Dir, "err", err)
			continue
		}
		if renewed {
			n.opt.Logger.Info("certificates renewed", "dir", n.opt.Dir, "until", n.current.Load().admin.until)
			if n.opt.OnRenew != nil {
				n.opt.OnRenew()
			}
		}
	}
}

// Certificate returns the peer certificate, with its CA in the chain.
func (n *Node) Certificate() *tls.Certificate { return n.current.Load().peer.tls }

// Roots returns the peer CAs.
func (n *Node) Roots() *x509.CertPool { return n.peers }

// ServingCertificate is a tls.Config.GetCertificate for the API port.
func (n *Node) ServingCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return n.current.Load().serving.tls, nil
}

// KubeletCertificate is the client certificate of the user KubeletUser, which kubelets are shown.
func (n *Node) KubeletCertificate() *tls.Certificate { return n.current.Load().kubelet.tls }

// AdminCertificate is a client certificate of CN quorate-admin in the group
// system:masters. It names the node, so that it can be refused when the node is removed.
func (n *Node) AdminCertificate() *tls.Certificate { return n.current.Load().admin.tls }

// Admin returns certificate and key of the administrator, in PEM.
func (n *Node) Admin() (certPEM, keyPEM []byte) {
	l := n.current.Load().admin
	return l.certPEM, l.keyPEM
}

// APIRoots returns the CAs of clients and of serving certificates.
func (n *Node) APIRoots() *x509.CertPool { return n.api }

// APIAuthority returns the CA that signs certificates of clients and of servers, and what signs
// with its key: only what is decided about each certificate bounds what it may say.
func (n *Node) APIAuthority() (*x509.Certificate, crypto.Signer) {
	return n.signing.api.cert, signer{n.signing.api.key}
}

// APICAs returns the certificates in APIRoots in PEM, the signing one first.
func (n *Node) APICAs() []byte {
	var b []byte
	for _, a := range n.all {
		b = append(b, a.api.PEM()...)
	}
	return b
}

func (n *Node) peerCAs() []byte {
	var b []byte
	for _, a := range n.all {
		b = append(b, a.peer.PEM()...)
	}
	return b
}

// ProxyCertificate is what the API shows to aggregated servers. It is not to be called with AdminOnly.
func (n *Node) ProxyCertificate() *tls.Certificate { return n.current.Load().proxy.tls }

// ProxyCAs returns the CAs of ProxyCertificate in PEM, the signing one first.
func (n *Node) ProxyCAs() []byte {
	var b []byte
	for _, a := range n.all {
		b = append(b, a.proxy.PEM()...)
	}
	return b
}

// Pin returns the pin of the API CA that signs.
func (n *Node) Pin() string { return n.signing.api.Pin() }

// Pins returns the pins of the API CAs of all secrets, the one that signs first.
func (n *Node) Pins() []string {
	pins := make([]string, len(n.all))
	for i, a := range n.all {
		pins[i] = a.api.Pin()
	}
	return pins
}

// Secrets returns what the node was opened with.
func (n *Node) Secrets() []Secret { return n.opt.Secrets }
