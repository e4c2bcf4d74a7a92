package node

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/membership/pki"
)

// TestKeyPair: a certificate from files follows them. While the two do not fit, or one is missing, the last good pair
// stays, and one line says so.
func TestKeyPair(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	var certs, keys [2][]byte
	for i := range certs {
		n := open(t, alone(t))
		certs[i], keys[i] = n.pki.Admin()
		must.OK(t, n.Close())
	}
	put := func(file string, text []byte) {
		t.Helper()
		must.OK(t, pki.WriteFile(file, text, 0o600))
	}
	put(certFile, certs[0])
	put(keyFile, keys[0])
	var logged bytes.Buffer
	p, err := openKeyPair("x-cert", "x-key", certFile, keyFile, slog.New(slog.NewTextHandler(&logged, nil)))
	must.OK(t, err)
	first := p.get(nil)
	same := func(what string) {
		t.Helper()
		if p.look(); p.get(nil) != first {
			t.Errorf("%s: another certificate is shown", what)
		}
	}
	same("nothing has changed")
	put(certFile, certs[1])
	same("the key is of another certificate")
	same("still")
	if n := strings.Count(logged.String(), "x-cert and x-key cannot be used"); n != 1 {
		t.Errorf("%d lines about a pair that does not fit: %s", n, logged.String())
	}
	must.OK(t, os.Remove(keyFile))
	same("the key is gone")
	put(keyFile, keys[1])
	if p.look(); p.get(nil) == first || bytes.Equal(p.get(nil).Leaf.Raw, first.Leaf.Raw) {
		t.Error("the new pair is not shown")
	}
	if none, err := openKeyPair("x-cert", "x-key", "", "", nil); none != nil || err != nil || none.get(func() *tls.Certificate { return first }) != first {
		t.Errorf("without files: %v, %v", none, err)
	}
}
