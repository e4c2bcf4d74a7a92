package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

func keyPEM(t testing.TB, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must.OK(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// TestTokenKey: each directory has a key of its own, whatever the secret, keeps it, and is not
// opened with one that cannot be used.
func TestTokenKey(t *testing.T) {
	dir := t.TempDir()
	open := func(dir, secret string) (*Node, error) {
		return Open(Options{Dir: dir, Secrets: secrets(t, secret), NodeID: "n"})
	}
	n, err := open(dir, secretA)
	must.OK(t, err)
	key := n.TokenKey()
	if key == nil {
		t.Error("it has no key of its own")
	}
	path := filepath.Join(dir, FileTokenKey)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != ModeSecret {
		t.Errorf("%v %v", info, err)
	}
	if other, err := open(t.TempDir(), secretA); err != nil || other.TokenKey().Equal(key) {
		t.Errorf("another node has the same key (%v)", err)
	}
	must.OK(t, os.Chmod(path, 0o644))
	if n, err = open(dir, secretB); err != nil || !n.TokenKey().Equal(key) {
		t.Errorf("a restart with another secret makes another key (%v)", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != ModeSecret {
		t.Errorf("a copy that everyone can read stays so: %v %v", info, err)
	}

	long, err := rsa.GenerateKey(rand.Reader, 2048)
	must.OK(t, err)
	curve, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	must.OK(t, err)
	for name, text := range map[string][]byte{
		"empty": nil, "text": []byte("key"), "rsa": keyPEM(t, long), "another curve": keyPEM(t, curve), "large": make([]byte, maxKeyFile+1),
		"a public key": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte{1}}),
	} {
		must.OK(t, os.WriteFile(path, text, 0o600))
		if _, err := open(dir, secretA); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "put the file back, or remove it") {
			t.Errorf("%s: %v", name, err)
		}
	}
	must.OK(t, os.Remove(path))
	if n, err = open(dir, secretA); err != nil || n.TokenKey().Equal(key) {
		t.Errorf("without the file: %v", err)
	}
	admin, err := Open(Options{Dir: t.TempDir(), Secrets: secrets(t, secretA), AdminOnly: true})
	if err != nil || admin.TokenKey() != nil {
		t.Errorf("an administrator has a signing key (%v)", err)
	}
}

// TestNoFile: a key or a secret that is no file is refused at once, a pipe too, into which nobody
// writes; and of a large file little is read.
func TestNoFile(t *testing.T) {
	pipe := func(path string) error { return syscall.Mkfifo(path, 0o600) }
	dir := func(path string) error { return os.Mkdir(path, 0o700) }
	large := func(path string) error {
		return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
	}
	open := func(path string) error {
		_, err := loadTokenKey(path)
		return err
	}
	load := func(path string) error {
		_, err := LoadSecrets(path)
		return err
	}
	for _, c := range []struct {
		name string
		make func(path string) error
		read func(path string) error
		want string
	}{
		{"a pipe as key", pipe, open, "is not a file"},
		{"a directory as key", dir, open, "is not a file"},
		{"a large key", large, open, "larger than"},
		{"a pipe as secret", pipe, load, "is not a file"},
		{"a directory as secret", dir, load, "is not a file"},
	} {
		path := filepath.Join(t.TempDir(), "file")
		must.OK(t, c.make(path))
		done := make(chan error, 1)
		go func() { done <- c.read(path) }()
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", c.name, err)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s: it waits", c.name)
		}
	}
}

// FuzzTokenKey: a file is a key of P-256, or an error.
func FuzzTokenKey(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(f, err)
	f.Add(keyPEM(f, key))
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if key, err := parseTokenKey(text); err == nil && key.Curve != elliptic.P256() {
			t.Error(key.Curve)
		}
	})
}
