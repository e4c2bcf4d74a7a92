package node

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// TestProxyCertificate: files that cannot be used leave the certificate as it was, and one line in the log however
// many handshakes look at them.
func TestProxyCertificate(t *testing.T) {
	var log bytes.Buffer
	dir := t.TempDir()
	cfg := &Config{ProxyClientCert: filepath.Join(dir, "crt"), ProxyClientKey: filepath.Join(dir, "key")}
	p := &proxyCertificate{n: &Node{cfg: cfg, log: slog.New(slog.NewTextHandler(&log, nil))}}
	check := func(what string, shown bool, lines int) {
		t.Helper()
		for range 3 {
			if c := p.get(); c == nil || (len(c.Certificate) > 0) != shown {
				t.Fatalf("%s: %v", what, c)
			}
		}
		if got := bytes.Count(log.Bytes(), []byte("\n")); got != lines {
			t.Errorf("%s: %d lines, want %d: %s", what, got, lines, &log)
		}
	}
	check("no files", false, 1)
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	key, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write := func(path, kind string, der []byte) {
		t.Helper()
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(cfg.ProxyClientKey, "PRIVATE KEY", key)
	write(cfg.ProxyClientCert, "CERTIFICATE", s.Certificate().Raw)
	check("files", true, 1)
	write(cfg.ProxyClientKey, "PRIVATE KEY", nil)
	check("files that are broken", true, 2)
}
