package members

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestMembership lets a fourth node join with a token, become a voter, lead,
// lose its vote and go.
func TestMembership(t *testing.T) {
	c := cluster.Start(t, 3, "promote-after=1s")
	first := c.Nodes()[0]
	first.Kubectl(t, "create", "configmap", "old", "--from-literal=a=b")

	token := filepath.Join(c.Dir, "join-token")
	var made struct {
		Token string
		Info  struct{ ID string }
	}
	must.OK(t, json.Unmarshal([]byte(c.Admin(t, "token", "create", "--note", "for n4", "-o", "json")), &made))
	must.OK(t, os.WriteFile(token, []byte(made.Token+"\n"), 0o600))
	api := strings.TrimPrefix(c.Nodes()[1].API, "https://")
	n4 := c.Launch(t, "n4", c.FreePort, "--join", api, "--join-token", "@"+token)
	n4.AwaitReady(t)
	cluster.Await(t, 20*time.Second, "n4 has a vote", func() string {
		if m, ok := cluster.Members(t, c, "list")["n4"]; !ok || !m.Voter {
			return fmt.Sprintf("n4 is a member: %v, has a vote: %v", ok, m.Voter)
		}
		return ""
	})
	if out := c.Admin(t, "token", "list"); !strings.Contains(out, "used-up") || strings.Contains(out, made.Token) {
		t.Errorf("token list says:\n%s", out)
	}
	if got, err := n4.Typed(t).CoreV1().ConfigMaps("default").Get(t.Context(), "old", metav1.GetOptions{}); err != nil || got.Data["a"] != "b" {
		t.Errorf("n4 says of what was there before it: %+v (%v)", got, err)
	}
	cluster.SameStates(t, c)
	cluster.AwaitEndpoints(t, c, n4)

	cluster.Members(t, c, "transfer-leader", "n4")
	if leader := c.Leader(t); leader != n4 {
		t.Errorf("after transfer-leader n4, %s leads", leader.Name)
	}
	if _, err := n4.Typed(t).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("a read on the new leader: %v", err)
	}
	cluster.Members(t, c, "transfer-leader", "n1")
	if after := cluster.Members(t, c, "demote", "n4"); after["n4"].Voter {
		t.Errorf("after demote: %+v", after)
	}
	if after := cluster.Members(t, c, "promote", "n4"); !after["n4"].Voter {
		t.Errorf("after promote: %+v", after)
	}
	after := cluster.Members(t, c, "remove", "n4")
	if _, there := after["n4"]; there || len(after) != 3 {
		t.Errorf("after remove: %+v", after)
	}
	first.Kubectl(t, "create", "configmap", "new")
	cluster.Await(t, 20*time.Second, "the removed node ends", func() string {
		if n4.Running() {
			return "it runs"
		}
		return ""
	})
	c.Forget(n4)
	cluster.AwaitEndpoints(t, c, first)

	// The token has let one node in and is worth nothing now.
	n5 := c.Launch(t, "n5", c.FreePort, "--join", api, "--join-token", "@"+token)
	cluster.Await(t, 40*time.Second, "a used-up token lets nobody in", func() string {
		if n5.Running() {
			return "n5 runs"
		}
		return ""
	})
}

// TestRestore makes a new cluster out of a backup: everything is there, no
// revision goes back, and neither old clients nor old members mix the two up.
func TestRestore(t *testing.T) {
	c := cluster.Start(t, 3)
	first := c.Nodes()[0]
	first.Kubectl(t, "create", "configmap", "kept", "--from-literal=a=b")
	kept, err := first.Typed(t).CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
	must.OK(t, err)
	file := filepath.Join(c.Dir, "backup")
	c.Admin(t, "snapshot", "save", file, "--context", "quorate-n2")
	if out := c.Quorate(t, "snapshot", "verify", file); !strings.Contains(out, "is whole") {
		t.Errorf("snapshot verify says %s", out)
	}
	damaged := file + ".damaged"
	b, err := os.ReadFile(file)
	must.OK(t, err)
	b[len(b)/2] ^= 1
	must.OK(t, os.WriteFile(damaged, b, 0o600))
	for _, command := range [][]string{{"verify", damaged}, {"restore", damaged, "--data-dir", filepath.Join(c.Dir, "damaged"), "--name", "r1", "--peer-advertise-address", "127.0.0.1:7443"}} {
		if out, err := c.TryQuorate(t, append([]string{"snapshot"}, command...)...); err == nil || !strings.Contains(out, "damaged data") {
			t.Errorf("snapshot %s of a damaged backup: %s", command[0], out)
		}
	}
	first.Kubectl(t, "create", "configmap", "too-late")

	peer := fmt.Sprintf("127.0.0.1:%d", c.FreePort+1000)
	c.Quorate(t, "snapshot", "restore", file, "--data-dir", filepath.Join(c.Dir, "r1"), "--name", "r1", "--peer-advertise-address", peer)
	r1 := c.Launch(t, "r1", c.FreePort, "--token-file", filepath.Join(c.Dir, "token"))
	r1.AwaitReady(t)
	client := r1.Typed(t).CoreV1().ConfigMaps("default")
	list, err := client.List(t.Context(), metav1.ListOptions{})
	must.OK(t, err)
	// The roots of the cluster are there too, if the leader had written them by then.
	list.Items = slices.DeleteFunc(list.Items, func(m corev1.ConfigMap) bool { return m.Name == "kube-root-ca.crt" })
	if len(list.Items) != 1 || list.Items[0].Name != "kept" || list.Items[0].Data["a"] != "b" || list.Items[0].UID != kept.UID {
		t.Errorf("restored: %+v", list.Items)
	}
	// What was written keeps its resourceVersion; the clock and all new writes are
	// beyond anything that the old cluster can have given out.
	if rv := list.Items[0].ResourceVersion; rv != kept.ResourceVersion {
		t.Errorf("the restored object has resourceVersion %s, it had %s", rv, kept.ResourceVersion)
	}
	list.Items[0].Labels = map[string]string{"new": "cluster"}
	written, err := client.Update(t.Context(), &list.Items[0], metav1.UpdateOptions{})
	must.OK(t, err)
	for _, rv := range []string{list.ResourceVersion, written.ResourceVersion} {
		if cluster.Revision(t, rv) < cluster.Revision(t, kept.ResourceVersion)+1_000_000_000 {
			t.Errorf("after the restore there is resourceVersion %s, before it was %s", rv, kept.ResourceVersion)
		}
	}
	if _, err := client.List(t.Context(), metav1.ListOptions{ResourceVersion: kept.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a list at a resourceVersion of the old cluster: %v, want 410 Expired", err)
	}
	watch, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: kept.ResourceVersion})
	must.OK(t, err)
	defer watch.Stop()
	select {
	case e := <-watch.ResultChan():
		if _, err := cluster.ToEvent(e); !apierrors.IsResourceExpired(err) {
			t.Errorf("a watch from a resourceVersion of the old cluster: %+v %v, want 410 Expired", e, err)
		}
	case <-time.After(10 * time.Second):
		t.Error("a watch from a resourceVersion of the old cluster says nothing")
	}
	body, resp, err := r1.Get(t, "/quorate/v1/members")
	if err != nil || resp.StatusCode != http.StatusOK || strings.Contains(string(body), first.Peer) {
		t.Errorf("the members of the new cluster: %v %s", err, body)
	}
	// An old member is not let in, although it has the same secret.
	out, err := c.TryQuorate(t, "member", "add", first.Peer, "--kubeconfig", filepath.Join(c.Dir, "r1", "admin.kubeconfig"))
	if err == nil || !strings.Contains(out, "another cluster") {
		t.Errorf("an old member was added to the new cluster: %s (%v)", out, err)
	}
	if _, err := client.Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("the new cluster after that: %v", err)
	}
	first.Kubectl(t, "get", "configmap", "too-late")
}
