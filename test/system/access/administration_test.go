package access

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestAdministration: a node without anonymous requests refuses all of them, says in its
// log who has taken the state or the cluster's secret away, and the backup is its owner's alone,
// whatever lay at its place.
func TestAdministration(t *testing.T) {
	c := cluster.Start(t, 1, "anonymous-auth=false")
	n := c.Nodes()[0]
	config, err := n.TLS()
	must.OK(t, err)
	nobody := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: config.RootCAs}, DisableKeepAlives: true}}
	for _, path := range []string{"/livez", "/version", "/api", "/quorate/v1/status", "/metrics"} {
		resp, err := nobody.Get(n.API + path)
		must.OK(t, err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %s, want 401", path, resp.Status)
		}
	}
	file := filepath.Join(t.TempDir(), "backup")
	must.OK(t, os.WriteFile(file, []byte("an older one"), 0o666))
	c.Admin(t, "snapshot", "save", file)
	if info, err := os.Lstat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("the backup: %v (%v), want a file of mode 0600", info.Mode(), err)
	}
	c.Admin(t, "token", "create")
	log, err := os.ReadFile(n.Log)
	must.OK(t, err)
	for _, want := range []string{
		`level=INFO msg="a backup is sent.*" user=\S+ from=127\.0\.0\.1:\d+`,
		`level=INFO msg=administration method=POST path=/quorate/v1/tokens user=\S+ from=127\.0\.0\.1:\d+`,
	} {
		if !regexp.MustCompile(want).Match(log) {
			t.Errorf("no line %s in\n%s", want, log)
		}
	}
}
