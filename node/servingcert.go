package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/settingfile"
)

// ownServerName is who asks for it is shown the node's own certificate, where all others are shown one from
// files: the administrator's kubeconfig holds only as long as the cluster's authority is trusted.
const ownServerName = "node.quorate.internal"

// serverName is the server name in the administrator's kubeconfig, "" for that of the URL.
func (n *Node) serverName() string {
	if n.cfg.ServingCert == "" {
		return ""
	}
	return ownServerName
}

// publishedRoots are the authorities that Pods are told to trust. Of a certificate from files the authority is not
// known: the one who made it publishes that, as kube-controller-manager does of its --root-ca-file.
func (n *Node) publishedRoots() []byte {
	if n.cfg.ServingCert != "" {
		return nil
	}
	return n.pki.APICAs()
}

// servingCertificate is the certificate that the API shows, from files, and the node's own for who asks
// for that. Safe for concurrent use.
type servingCertificate struct {
	n   *Node
	now atomic.Pointer[tls.Certificate]
}

// newServingCertificate reads the files, if there are any.
func (n *Node) newServingCertificate() (*servingCertificate, error) {
	s := &servingCertificate{n: n}
	if n.cfg.ServingCert == "" {
		return s, nil
	}
	return s, s.read()
}

func (s *servingCertificate) read() error {
	c, err := readServingCert(s.n.cfg.ServingCert, s.n.cfg.ServingKey)
	if err == nil {
		s.now.Store(c)
	}
	return err
}

// get is a tls.Config.GetCertificate.
func (s *servingCertificate) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := s.now.Load(); c != nil && hello.ServerName != ownServerName {
		return c, nil
	}
	return s.n.pki.ServingCertificate(hello)
}

// servingCertLook is how often the files are looked at.
const servingCertLook = 5 * time.Second

// follow reads the files again when they change, until ctx ends. One is written after the other: a pair that does
// not fit is looked at again, and until then the old one is shown.
func (s *servingCertificate) follow(ctx context.Context) {
	t := time.NewTicker(servingCertLook)
	defer t.Stop()
	was := filesAt(s.n.cfg.ServingCert, s.n.cfg.ServingKey)
	failed := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		is := filesAt(s.n.cfg.ServingCert, s.n.cfg.ServingKey)
		if is == was {
			continue
		}
		if err := s.read(); err != nil {
			if err.Error() != failed {
				s.n.log.Error("tls-cert-file and tls-private-key-file cannot be used: the certificate stays as it was", "err", err)
			}
			failed = err.Error()
			continue
		}
		was, failed = is, ""
		s.n.log.Info("the API's certificate has changed", "file", s.n.cfg.ServingCert)
	}
}

// filesAt changes when one of the files does.
func filesAt(paths ...string) (out string) {
	for _, path := range paths {
		if st, err := os.Stat(path); err == nil {
			out += fmt.Sprint(st.ModTime().UnixNano(), " ", st.Size(), "\n")
		}
	}
	return out
}

func readServingCert(certFile, keyFile string) (*tls.Certificate, error) {
	cert, err := settingfile.Read(certFile, settingfile.MaxBytes)
	if err != nil {
		return nil, err
	}
	key, err := settingfile.Read(keyFile, settingfile.MaxBytes)
	if err != nil {
		return nil, err
	}
	c, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", certFile, keyFile, err)
	}
	return &c, nil
}

// checkServingCert checks the API's certificate.
func (c *Config) checkServingCert(bad *mistakes) {
	switch {
	case (c.ServingCert == "") != (c.ServingKey == ""):
		bad.add("tls-cert-file and tls-private-key-file need each other")
	case c.ServingCert != "":
		if _, err := readServingCert(c.ServingCert, c.ServingKey); err != nil {
			bad.add("tls-cert-file: %w", err)
		}
	}
}
