package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/apiserver/egress"
	"github.com/quorate/quorate/apiserver/kubelet"
	"github.com/quorate/quorate/internal/settingfile"
)

// kubeletAddressTypes are asked for addresses before names, and inner ones before those that the world sees, as
// kubeadm and k3s set it. Upstream's own default asks for the host's name first, which API servers can
// rarely look up.
var kubeletAddressTypes = []string{"InternalIP", "InternalDNS", "ExternalIP", "ExternalDNS", "Hostname"}

// openKubelets makes the way to kubelets. It comes after openEgress.
func (n *Node) openKubelets() error {
	cfg := kubelet.Config{
		Dial: n.clusterDialer(egress.Direct), DialAllowed: n.clusterDialer(kubelet.DialAllowed),
		AddressTypes: n.cfg.KubeletAddressTypes, Timeout: n.cfg.KubeletTimeout,
		Certificate: func() (*tls.Certificate, error) { return n.pki.KubeletCertificate(), nil },
	}
	if n.tunnels != nil && !n.egress.Configured(egress.Cluster) {
		cfg.Tunneled = n.tunnels.Has
	}
	if n.cfg.KubeletClientCert != "" {
		n.kubeletCert = &filePair{cert: n.cfg.KubeletClientCert, key: n.cfg.KubeletClientKey}
		if err := n.kubeletCert.read(); err != nil {
			return fmt.Errorf("kubelet-client-certificate: %w", err)
		}
		cfg.Certificate = func() (*tls.Certificate, error) { return n.kubeletCert.now.Load(), nil }
	}
	if n.cfg.KubeletCA != "" {
		var err error
		if cfg.Authorities, err = readKubeletCA(n.cfg.KubeletCA); err != nil {
			return fmt.Errorf("kubelet-certificate-authority: %w", err)
		}
	}
	n.kubelets = kubelet.New(cfg)
	return nil
}

// filePair is a certificate with its key, in files. Safe for concurrent use.
type filePair struct {
	cert, key string
	now       atomic.Pointer[tls.Certificate]
}

func (p *filePair) read() error {
	c, err := readServingCert(p.cert, p.key)
	if err == nil {
		p.now.Store(c)
	}
	return err
}

// followKubeletCert reads the client certificate for kubelets again when its files change, until ctx ends. A pair
// that cannot be used is looked at again, and until then the old one is shown.
func (n *Node) followKubeletCert(ctx context.Context) {
	t := time.NewTicker(servingCertLook)
	defer t.Stop()
	was := filesAt(n.cfg.KubeletClientCert, n.cfg.KubeletClientKey)
	failed := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		is := filesAt(n.cfg.KubeletClientCert, n.cfg.KubeletClientKey)
		if is == was {
			continue
		}
		if err := n.kubeletCert.read(); err != nil {
			if err.Error() != failed {
				n.log.Error("kubelet-client-certificate and kubelet-client-key cannot be used: the certificate stays as it was", "err", err)
			}
			failed = err.Error()
			continue
		}
		was, failed = is, ""
		n.log.Info("the client certificate for kubelets has changed", "file", n.cfg.KubeletClientCert)
	}
}

func readKubeletCA(file string) (*x509.CertPool, error) {
	text, err := settingfile.Read(file, settingfile.MaxBytes)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: no certificate in PEM", file)
	}
	return pool, nil
}

// checkKubelets checks the way to kubelets.
func (c *Config) checkKubelets(bad *mistakes) {
	switch {
	case (c.KubeletClientCert == "") != (c.KubeletClientKey == ""):
		bad.add("kubelet-client-certificate and kubelet-client-key need each other")
	case c.KubeletClientCert != "":
		if _, err := readServingCert(c.KubeletClientCert, c.KubeletClientKey); err != nil {
			bad.add("kubelet-client-certificate: %w", err)
		}
	}
	if c.KubeletCA != "" {
		if _, err := readKubeletCA(c.KubeletCA); err != nil {
			bad.add("kubelet-certificate-authority: %w", err)
		}
	}
	if c.KubeletTimeout < 0 {
		bad.add("kubelet-timeout: %w", errors.New("must not be negative"))
	}
	if len(c.KubeletAddressTypes) == 0 {
		bad.add("kubelet-preferred-address-types: %w", errors.New("must name a type of addresses, such as InternalIP"))
	}
	for _, t := range c.KubeletAddressTypes {
		// A Node has an address of no other type: no kubelet would be found, and nothing would say why.
		if !slices.Contains(kubelet.DefaultAddressTypes, t) {
			bad.add("kubelet-preferred-address-types: %w", fmt.Errorf("%q: must be one of %s", t, strings.Join(kubelet.DefaultAddressTypes, ", ")))
		}
	}
}
