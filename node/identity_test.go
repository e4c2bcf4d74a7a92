package node

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// TestServingNames: Pods call the API by the Service kubernetes, at its address or by its names; the
// certificate has them, and follows the flag that the address comes from.
func TestServingNames(t *testing.T) {
	dir := t.TempDir()
	for _, x := range []struct{ blocks, addresses, without string }{
		{"10.96.0.0/16", "10.96.0.1", "10.0.0.1"},
		{"10.96.0.0/16,fd00:96::/108", "10.96.0.1 fd00:96::1", "10.0.0.1"},
		{"fd00:97::/108,10.97.0.0/24", "fd00:97::1 10.97.0.1", "10.96.0.1"},
	} {
		c := alone(t)
		c.DataDir, c.ServiceClusterIPRange = dir, x.blocks
		n := open(t, c)
		cert, err := n.pki.ServingCertificate(nil)
		must.OK(t, err)
		names := "localhost kubernetes kubernetes.default kubernetes.default.svc kubernetes.default.svc.cluster.local 127.0.0.1 " + x.addresses
		for name := range strings.FieldsSeq(names) {
			if _, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: n.pki.APIRoots(), DNSName: name}); err != nil {
				t.Errorf("%s: %v", x.blocks, err)
			}
		}
		if err := cert.Leaf.VerifyHostname(x.without); err == nil {
			t.Errorf("%s: the certificate is for %s", x.blocks, x.without)
		}
		must.OK(t, n.Close())
	}
}

// TestComponentKubeconfigs: where no directory can be made, the setting is refused by its name before anything
// is written.
func TestComponentKubeconfigs(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must.OK(t, os.WriteFile(file, nil, 0o600))
	for at, refused := range map[string]bool{dir: false, filepath.Join(dir, "new", "newer"): false, file: true, filepath.Join(file, "new", "newer"): true} {
		c := defaults()
		c.ComponentKubeconfigs = at
		if err := c.Complete(); (err != nil && strings.Contains(err.Error(), "component-kubeconfigs: "+file+" is not a directory")) != refused || !refused && err != nil {
			t.Errorf("%s: %v", at, err)
		}
	}
}
