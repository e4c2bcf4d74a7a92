package kubeapiserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/cert"
)

// Files of a certificate in --cert-dir.
const (
	certFile = "apiserver.crt"
	keyFile  = "apiserver.key"
)

// serving finds the API's certificate: that of the flags, or the one in --cert-dir, which is made if it
// is not there, by an authority of its own. Without either the nodes make theirs.
func (o *Options) serving() error {
	c := &o.config
	if o.certDir == "" || c.ServingCert != "" {
		return nil
	}
	certPath, keyPath := filepath.Join(o.certDir, certFile), filepath.Join(o.certDir, keyFile)
	_, err1 := os.Stat(certPath)
	_, err2 := os.Stat(keyPath)
	if err1 != nil || err2 != nil {
		if err := errors.Join(os.MkdirAll(o.certDir, 0o755), o.makeCertificate(certPath, keyPath)); err != nil {
			return fmt.Errorf("--cert-dir: %w", err)
		}
	}
	c.ServingCert, c.ServingKey = certPath, keyPath
	return nil
}

func (o *Options) makeCertificate(certPath, keyPath string) error {
	host, _, err := net.SplitHostPort(o.config.APIAdvertise)
	if err != nil {
		return err
	}
	ips := []net.IP{net.IPv4(127, 0, 0, 1)}
	if !o.bind.IsUnspecified() {
		ips = append(ips, o.bind)
	}
	names := append([]string{"kubernetes.default.svc", "kubernetes.default", "kubernetes", "localhost"}, o.config.TLSNames...)
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(host, ips, names)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(certPath, certPEM, 0o644), os.WriteFile(keyPath, keyPEM, 0o600))
}
