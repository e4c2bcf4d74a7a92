package node

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/backends/egress"
	"github.com/quorate/quorate/apiserver/backends/kubelet"
	"github.com/quorate/quorate/internal/settingfile"
)

// kubeletAddressTypes are asked for addresses before names, and inner ones before those that the world sees, as
// kubeadm and k3s set it. Upstream's own default asks for the host's name first, which API servers can
// rarely look up.
var kubeletAddressTypes = []string{"InternalIP", "InternalDNS", "ExternalIP", "ExternalDNS", "Hostname"}

// openKubelets makes the way to kubelets. It comes after openEgress.
func (n *Node) openKubelets() (err error) {
	n.kubeletPair, err = openKeyPair("kubelet-client-certificate", "kubelet-client-key", n.cfg.KubeletClientCert, n.cfg.KubeletClientKey, n.log)
	if err != nil {
		return err
	}
	cfg := kubelet.Config{
		Dial: n.dialers.toCluster(egress.Direct), DialAllowed: n.dialers.toCluster(kubelet.DialAllowed),
		AddressTypes: n.cfg.KubeletAddressTypes, Timeout: n.cfg.KubeletTimeout,
		Certificate: func() (*tls.Certificate, error) { return n.kubeletPair.get(n.pki.KubeletCertificate), nil },
	}
	if n.dialers.tunnels != nil && !n.dialers.egress.Configured(egress.Cluster) {
		cfg.Tunneled = n.dialers.tunnels.Has
	}
	if n.cfg.KubeletCA != "" {
		if cfg.Authorities, err = readKubeletCA(n.cfg.KubeletCA); err != nil {
			return fmt.Errorf("kubelet-certificate-authority: %w", err)
		}
	}
	n.kubelets = kubelet.New(cfg)
	return nil
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
	checkKeyPair(bad, "kubelet-client-certificate", "kubelet-client-key", c.KubeletClientCert, c.KubeletClientKey)
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
