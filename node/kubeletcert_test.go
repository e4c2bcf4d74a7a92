package node

import (
	"crypto/tls"
	"io"
	"net/http"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// TestKubeletCertificateIsRefused: what a node shows to kubelets is nobody's in the API. A kubelet that says
// that it has the address of a node would otherwise have its users speak in that name.
func TestKubeletCertificateIsRefused(t *testing.T) {
	t.Parallel()
	n := open(t, alone(t))
	ran := make(chan error, 1)
	go func() { ran <- n.Run(t.Context()) }() // ends with Close
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ran; err != nil {
			t.Error(err)
		}
	}()
	must.OK(t, n.Ready(t.Context()))
	for name, x := range map[string]struct {
		cert *tls.Certificate
		code int
	}{"kubelets": {n.pki.KubeletCertificate(), http.StatusUnauthorized}, "administrator": {n.pki.AdminCertificate(), http.StatusOK}} {
		by := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: n.pki.APIRoots(), Certificates: []tls.Certificate{*x.cert}}}
		res, err := (&http.Client{Transport: by}).Get(n.URL() + "/api/v1/nodes")
		must.OK(t, err)
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != x.code {
			t.Errorf("%s: %d %s %v, want %d", name, res.StatusCode, text, err, x.code)
		}
		_ = res.Body.Close()
		by.CloseIdleConnections()
	}
}
