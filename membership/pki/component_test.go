package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// TestComponents: each program gets a certificate of its own, in files that are renewed in time and
// otherwise left alone.
func TestComponents(t *testing.T) {
	now := time.Now()
	opt := Options{Dir: filepath.Join(t.TempDir(), "pki"), Secrets: secrets(t, secretA), Name: "n1", Now: func() time.Time { return now }}
	opt.Components = ComponentOptions{Dir: filepath.Join(t.TempDir(), "components"), Server: "https://10.0.0.1:6443", ServerName: "own"}
	n := open(t, opt)
	read := func(component, file string) []byte {
		t.Helper()
		path := filepath.Join(opt.Components.Dir, component, file)
		info, err := os.Stat(path)
		must.OK(t, err)
		if info.Mode().Perm() != 0o640 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		b, err := os.ReadFile(path)
		must.OK(t, err)
		return b
	}
	before := map[string][]byte{}
	for _, c := range Components {
		pair := read(c, FileComponentCredentials)
		before[c] = pair
		cert, err := tls.X509KeyPair(pair, pair)
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		if s := cert.Leaf.Subject; s.CommonName != "system:"+c || len(s.Organization) > 0 {
			t.Errorf("%s is %s", c, s)
		}
		if err := n.signing.api.verify(cert.Leaf, x509.ExtKeyUsageClientAuth, now); err != nil {
			t.Errorf("%s: %v", c, err)
		}
		if ids := NodesOf(cert.Leaf); len(ids) != 1 || ids[0] != nodeID {
			t.Errorf("the certificate of %s is that of nodes %q", c, ids)
		}
		if !bytes.Equal(read(c, FileComponentCA), n.APICAs()) {
			t.Errorf("%s trusts others", c)
		}
		config := string(read(c, FileComponentKubeconfig))
		for _, want := range []string{`server: "https://10.0.0.1:6443"`, `tls-server-name: "own"`, "client-certificate: client.pem", "client-key: client.pem", "certificate-authority: ca.crt", `name: "system:` + c + `"`} {
			if !strings.Contains(config, want) {
				t.Errorf("%s: no %q in\n%s", c, want, config)
			}
		}
		if info, err := os.Stat(filepath.Join(opt.Components.Dir, c)); err != nil || info.Mode().Perm() != ModeDir {
			t.Errorf("the directory of %s: %v, %v", c, info, err)
		}
	}
	if bytes.Equal(before[Components[0]], before[Components[1]]) {
		t.Error("both have the same certificate")
	}

	// A directory that is there keeps its mode: an operator lets a group in.
	group := filepath.Join(opt.Components.Dir, Components[0])
	must.OK(t, os.Chmod(group, 0o750))
	open(t, opt)
	if info, err := os.Stat(group); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("its mode was changed: %v, %v", info, err)
	}
	for _, c := range Components {
		if !bytes.Equal(read(c, FileComponentCredentials), before[c]) {
			t.Errorf("the certificate of %s was made again", c)
		}
	}
	// As Run does it.
	now = now.Add(250 * 24 * time.Hour)
	if renewed, err := n.refresh(); err != nil || !renewed {
		t.Fatalf("renewed: %v, %v", renewed, err)
	}
	for _, c := range Components {
		pair := read(c, FileComponentCredentials)
		if cert, err := tls.X509KeyPair(pair, pair); err != nil || bytes.Equal(pair, before[c]) || cert.Leaf.NotAfter.Before(now.Add(300*24*time.Hour)) {
			t.Errorf("the certificate of %s was not renewed (%v)", c, err)
		}
	}
}
