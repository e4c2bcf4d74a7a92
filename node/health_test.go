package node

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/observe/health"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/membership"
	rbacv1 "k8s.io/api/rbac/v1"
)

// TestBlockedLog: a node that cannot log is not alive, and says so without logging.
func TestBlockedLog(t *testing.T) {
	var blocked time.Duration
	var lines bytes.Buffer
	n := &checks{cfg: &Config{LogBlocked: func() time.Duration { return blocked }}, log: slog.New(slog.NewTextHandler(&lines, nil))}
	h := health.New(health.Config{Livez: []health.Check{n.logCheck()}, Log: n.logUnlessBlocked()})
	livez := func() (int, string) {
		a := httptest.NewRecorder()
		h.ServeHTTP(a, httptest.NewRequest("GET", "/livez?verbose", nil))
		return a.Code, a.Body.String()
	}
	if code, body := livez(); code != 200 || !strings.Contains(body, "[+]log ok\n") {
		t.Fatalf("nothing was logged: %d %s", code, body)
	}
	blocked = 3 * time.Minute
	if code, body := livez(); code != 500 || !strings.Contains(body, "[-]log failed: reason withheld\n") || lines.Len() > 0 {
		t.Fatalf("blocked for long: %d %s, and it logged %q", code, body, &lines)
	}
	blocked = 0
	if code, body := livez(); code != 200 {
		t.Fatalf("read again: %d %s", code, body)
	}
}

// TestRolesAtTheStart: a default binding that was deleted is there again when the node is ready.
func TestRolesAtTheStart(t *testing.T) {
	c := alone(t)
	ready := func() (*Node, objects.Client) {
		n := open(t, c)
		go func() {
			if err := n.Run(context.Background()); err != nil { // Close ends it
				t.Errorf("Run: %v", err)
			}
		}()
		must.OK(t, n.Ready(t.Context()))
		return n, objects.NewClient(n.api.Objects())
	}
	bindings := rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")
	const name = "system:public-info-viewer"
	for round := range 3 {
		n, client := ready()
		var b rbacv1.ClusterRoleBinding
		if err := client.Get(t.Context(), bindings, "", name, &b); err != nil || len(b.Subjects) == 0 {
			t.Errorf("round %d: %v %v", round, b.Subjects, err)
		} else if err := client.Delete(t.Context(), bindings, "", name, b.UID); err != nil {
			t.Fatal(err)
		}
		must.OK(t, n.Close())
		c.APIListener, c.PeerListener = nil, nil
		c.APIListen, c.PeerListen = strings.TrimPrefix(n.URL(), "https://"), n.cfg.PeerListen
	}
}

// TestReadyNodeHasAName: what is ready can be named by an administrator. A node announces itself again
// when its record is missing, a second later; the rounds are for a test that stands still so long.
func TestReadyNodeHasAName(t *testing.T) {
	n := open(t, alone(t))
	go func() {
		if err := n.Run(context.Background()); err != nil { // Close ends it
			t.Errorf("Run: %v", err)
		}
	}()
	must.OK(t, n.Ready(t.Context()))
	kv, id := membershipKV{n.store}, string(n.identity.ID())
	for range 20 {
		if _, known := kv.Get(membership.TableMembers, id); !known {
			t.Fatal("the node is ready without a record")
		}
		must.OK(t, kv.Delete(t.Context(), membership.TableMembers, id))
		err := n.checks.isMember(t.Context())
		must.OK(t, n.Ready(t.Context()))
		if err != nil && strings.Contains(err.Error(), "does not know this node's name yet") {
			return
		}
	}
	t.Error("a node without a record is a member")
}
