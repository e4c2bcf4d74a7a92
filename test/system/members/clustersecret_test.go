package members

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestSecretChangedAtRest: with all nodes stopped, another secret takes the place of the
// first. The data stay; what was made from the old one is worth nothing, and a join token
// from before is not exchanged for the new one.
func TestSecretChangedAtRest(t *testing.T) {
	c := cluster.Start(t, 3)
	n1 := c.Nodes()[0]
	n1.Kubectl(t, "create", "configmap", "kept")
	made := strings.TrimSpace(c.Admin(t, "token", "create", "--ttl", "8760h", "--uses", "0"))
	parts := strings.Split(strings.Fields(made)[0], ".")
	if len(parts) != 4 {
		t.Fatalf("token create says %s", made)
	}
	stolen := stolen(t, n1).admin
	join := func(n *cluster.Node) (int, string) {
		t.Helper()
		client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		}}
		body, err := json.Marshal(map[string]string{"tokenID": parts[2], "secret": parts[3], "node": "x"})
		must.OK(t, err)
		resp, err := client.Post(n.API+"/quorate/join", "application/json", bytes.NewReader(body))
		must.OK(t, err)
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		must.OK(t, err)
		return resp.StatusCode, string(answer)
	}
	if code, answer := join(n1); code != http.StatusOK {
		t.Fatalf("the token under its own secret: %d %s", code, answer)
	}
	c.Kill(t, c.Nodes()...)
	secret := strings.Repeat("fedcba9876543210", 4)
	must.OK(t, os.WriteFile(filepath.Join(c.Dir, "token"), []byte(secret+"\n"), 0o600))
	c.RestartAll(t)
	n1 = c.Node(t, "n1")
	for _, n := range c.Nodes() {
		if code, answer := join(n); code == http.StatusOK || strings.Contains(answer, secret) {
			t.Errorf("%s exchanges a token of the old secret for the new one: %d %s", n.Name, code, answer)
		}
		if resp, err := stolen.Get(n.API + "/api/v1/secrets"); err == nil {
			resp.Body.Close()
			t.Errorf("%s takes a certificate of the old secret: %s", n.Name, resp.Status)
		}
	}
	cluster.Await(t, 20*time.Second, "the data are there", func() string {
		out, err := c.TryQuorate(t, "member", "list", "--kubeconfig", filepath.Join(c.Dir, "n1", "admin.kubeconfig"))
		if err != nil || strings.Count(out, "127.0.0.1") < 3 {
			return fmt.Sprintf("%s %v", out, err)
		}
		return ""
	})
	n1.Kubectl(t, "get", "configmap", "kept")
}
