package membership

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/membership/pki"
)

// TestImpersonation: whom a kubeconfig's user acts as is whom the commands act as, as kubectl does.
func TestImpersonation(t *testing.T) {
	var got http.Header
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		fmt.Fprint(w, "{}")
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must.OK(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must.OK(t, err)
	b64 := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	for _, row := range []struct {
		name, as string
		want     map[string]string // by header, joined
		err      string
	}{
		{"nobody", "", nil, ""},
		{"a user", "    as: bob\n", map[string]string{"Impersonate-User": "bob"}, ""},
		{"a user with groups", "    as: bob\n    as-groups: [devs, ops]\n", map[string]string{"Impersonate-User": "bob", "Impersonate-Group": "devs,ops"}, ""},
		{"all of it", "    as: bob\n    as-uid: u1\n    as-groups: [devs]\n    as-user-extra:\n      example.com/a b: [x, y]\n", map[string]string{
			"Impersonate-User": "bob", "Impersonate-Uid": "u1", "Impersonate-Group": "devs", "Impersonate-Extra-Example.com%2fa%20b": "x,y"}, ""},
		{"groups alone", "    as-groups: [devs]\n", nil, "without as"},
	} {
		t.Run(row.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kubeconfig")
			text := "current-context: c\ncontexts:\n- name: c\n  context: {cluster: c, user: u}\nclusters:\n- name: c\n  cluster:\n    server: " + s.URL +
				"\n    certificate-authority-data: " + b64("CERTIFICATE", s.Certificate().Raw) + "\nusers:\n- name: u\n  user:\n    client-certificate-data: " +
				b64("CERTIFICATE", cert) + "\n    client-key-data: " + b64("PRIVATE KEY", private) + "\n" + row.as
			must.OK(t, os.WriteFile(path, []byte(text), 0o600))
			k, err := pki.ReadKubeconfig(path, "")
			must.OK(t, err)
			c, err := NewAdminClient(k)
			if row.err != "" {
				if err == nil || !strings.Contains(err.Error(), row.err) {
					t.Errorf("%v, want %q", err, row.err)
				}
				return
			}
			must.OK(t, err)
			defer c.Close()
			ask := map[string]func() error{
				"a question": func() error { _, err := c.Members(t.Context()); return err },
				"a stream": func() error {
					r, err := c.Open(t.Context(), "/x")
					if err == nil {
						r.Close()
					}
					return err
				},
			}
			for name, f := range ask {
				must.OK(t, f())
				sent := map[string]string{}
				for header, values := range got {
					if strings.HasPrefix(header, "Impersonate-") {
						sent[header] = strings.Join(values, ",")
					}
				}
				if !maps.Equal(sent, row.want) {
					t.Errorf("%s: %v, want %v", name, sent, row.want)
				}
			}
		})
	}
}
