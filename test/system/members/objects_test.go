package members

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

var membersGVR = schema.GroupVersionResource{Group: "quorate.io", Version: "v1", Resource: "members"}

// memberRows are the members as kubectl shows them, by name: role and whether they are ready.
func memberRows(t *testing.T, n *cluster.Node) map[string]string {
	t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(n.Kubectl(t, "get", "members", "--no-headers")) {
		if f := strings.Fields(line); len(f) >= 3 {
			out[f[0]] = f[1] + " " + f[2]
		}
	}
	return out
}

// awaitMember waits until a member is shown so; "" is not at all.
func awaitMember(t *testing.T, n *cluster.Node, name, want string) {
	t.Helper()
	cluster.Await(t, time.Minute, fmt.Sprintf("member %s: %q", name, want), func() string {
		if got := memberRows(t, n)[name]; got != want {
			return fmt.Sprintf("%q", got)
		}
		return ""
	})
}

// awaitEvent waits until an event tells of a member.
func awaitEvent(t *testing.T, n *cluster.Node, name, reason string) {
	t.Helper()
	cluster.Await(t, time.Minute, fmt.Sprintf("an event %s of %s", reason, name), func() string {
		out := n.Kubectl(t, "get", "events", "-n", "default", "--no-headers")
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) > 3 && f[2] == reason && f[3] == "member/"+name {
				return ""
			}
		}
		return out
	})
}

// awaitBlocked waits until the object of a member says why it is not removed.
func awaitBlocked(t *testing.T, n *cluster.Node, name, reason, message string) {
	t.Helper()
	cluster.Await(t, time.Minute, fmt.Sprintf("the removal of %s is blocked: %s", name, reason), func() string {
		out := n.Kubectl(t, "get", "member", name, "-o", `jsonpath={.status.conditions[?(@.type=="RemovalBlocked")]}`)
		var c metav1.Condition
		if json.Unmarshal([]byte(out), &c) != nil || c.Reason != reason || !strings.Contains(c.Message, message) {
			return out
		}
		return ""
	})
}

// takeBack takes the deletion of an object back.
func takeBack(t *testing.T, n *cluster.Node, names ...string) {
	t.Helper()
	for _, name := range names {
		n.Kubectl(t, "patch", "member", name, "--type=json", "-p", `[{"op":"remove","path":"/metadata/finalizers"}]`)
	}
	for _, name := range names {
		cluster.Await(t, 20*time.Second, name+" has an object that is not deleted", func() string {
			out := n.TryKubectl(t, nil, "", "get", "member", name, "-o", "jsonpath={.metadata.finalizers}{.metadata.deletionTimestamp}")
			if out.Stdout != `["quorate.io/member"]` {
				return out.Stdout + out.Stderr
			}
			return ""
		})
	}
}

// TestMemberObjects: kubectl shows the members, and removes those that somebody declares gone, as far as the cluster can spare
// them. A non-voter that is gone is removed without that, a voter is not.
func TestMemberObjects(t *testing.T) {
	const silence = 5 * time.Second
	c := cluster.Start(t, 3, "remove-nonvoter-after="+silence.String())
	leader := c.Leader(t)
	others := c.Others(leader)
	stays, dies := others[0], others[1]
	for _, n := range c.Nodes() {
		stays.Kubectl(t, "wait", "--for=condition=Ready", "--for=jsonpath={.status.name}="+n.Name, "--timeout=30s", "member/"+n.Name)
	}
	if got := memberRows(t, stays); len(got) != 3 || got[leader.Name] != "leader True" || got[dies.Name] != "voter True" {
		t.Errorf("members: %v", got)
	}
	t.Run("rights", func(t *testing.T) { memberRights(t, stays, dies.Name) })

	n4, _ := c.JoinNonvoter(t, "n4")
	awaitMember(t, stays, "n4", "nonvoter True")
	awaitEvent(t, stays, "n4", "Joined")
	c.Kill(t, n4)
	awaitMember(t, stays, "n4", "")
	awaitEvent(t, stays, "n4", "Removed")
	if list := cluster.Members(t, c, "list"); len(list) != 3 {
		t.Errorf("members: %+v", list)
	}
	c.Forget(n4)

	// One command that deletes all is a mistake.
	stays.Kubectl(t, "delete", "members", "--all", "--wait=false")
	all := []string{"n1", "n2", "n3"}
	for _, name := range all {
		awaitBlocked(t, stays, name, "AllVoters", "one must stay")
	}
	takeBack(t, stays, all...)

	c.Kill(t, dies)
	awaitMember(t, stays, dies.Name, "voter False")
	awaitEvent(t, stays, dies.Name, "NotReady")
	// While one of three is down, no other can be spared.
	stays.Kubectl(t, "delete", "member", leader.Name, "--wait=false")
	awaitBlocked(t, stays, leader.Name, "Refused", "it would leave 2 voters of which 1 answer")
	awaitEvent(t, stays, leader.Name, "RemovalBlocked")
	time.Sleep(2 * silence) //sleep: by now a non-voter would be removed
	if list := cluster.Members(t, c, "list"); len(list) != 3 {
		t.Errorf("members: %+v", list)
	}
	// As soon as the one that was down is declared gone, too, there is nobody else who must answer: first it goes, then the leader,
	// which hands over.
	stays.Kubectl(t, "delete", "member", dies.Name)
	awaitEvent(t, stays, dies.Name, "Removed")
	awaitMember(t, stays, leader.Name, "")
	awaitMember(t, stays, stays.Name, "leader True")
	awaitEvent(t, stays, stays.Name, "LeadershipMoved")
	cluster.Await(t, 20*time.Second, "the removed node ends", func() string {
		if leader.Running() {
			return "it runs"
		}
		return ""
	})
	// The last one stays.
	stays.Kubectl(t, "delete", "member", stays.Name, "--wait=false")
	awaitBlocked(t, stays, stays.Name, "AllVoters", "one must stay")
	takeBack(t, stays, stays.Name)
	stays.Kubectl(t, "create", "configmap", "still-there")
}

// memberRights: who may not delete members does not, clients make none, and what is refused or dry changes nothing.
func memberRights(t *testing.T, n *cluster.Node, name string) {
	before := n.Kubectl(t, "get", "members", "-o", "jsonpath={.items[*].metadata.uid}{.items[*].metadata.deletionTimestamp}")
	n.Kubectl(t, "create", "clusterrole", "everything-goes", "--verb=delete,get,list,patch", "--resource=*.*")
	n.Kubectl(t, "create", "clusterrolebinding", "everything-goes", "--clusterrole=everything-goes", "--user=cleaner")
	n.Kubectl(t, "create", "clusterrole", "members-operator", "--verb=delete,get", "--resource=members.quorate.io")
	n.Kubectl(t, "create", "clusterrolebinding", "members-operator", "--clusterrole=members-operator", "--user=operator")
	cluster.Await(t, 20*time.Second, "the roles count", func() string {
		out := n.TryKubectl(t, nil, "", "delete", "configmap", "nothing", "--as=cleaner", "--ignore-not-found").Stderr
		return out + n.TryKubectl(t, nil, "", "get", "member", name, "--as=operator").Stderr
	})
	for _, x := range []struct {
		args []string
		want string // in what is said; empty: it is done
	}{
		{[]string{"delete", "member", name, "--as=alice"}, "Forbidden"},
		{[]string{"delete", "member", name, "--as=cleaner"}, "Forbidden"},
		{[]string{"delete", "member", name, "--as=system:serviceaccount:kube-system:namespace-controller"}, "Forbidden"},
		{[]string{"delete", "member", name, "--as=operator", "--dry-run=server"}, ""},
		{[]string{"get", "members", "--as=alice"}, "Forbidden"},
		{[]string{"get", "members", "--as=cleaner"}, ""},
		{[]string{"label", "member", name, "rack=7"}, ""},
		{[]string{"label", "member", name, "rack-"}, ""},
		{[]string{"patch", "member", name, "--subresource=status", "--type=merge", "-p", `{"status":{"id":"x"}}`}, "MethodNotAllowed"},
		{[]string{"patch", "member", name, "--type=merge", "-p", `{"status":{"id":"x"}}`}, ""}, // and changes nothing
		{[]string{"explain", "member.status.role"}, ""},
		{[]string{"describe", "member", name}, ""},
	} {
		out := n.TryKubectl(t, nil, "", x.args...)
		if ok := out.Code == 0; ok != (x.want == "") || !strings.Contains(out.Stderr, x.want) {
			t.Errorf("kubectl %s: %+v, want %s", strings.Join(x.args, " "), out, x.want)
		}
	}
	manifest := "apiVersion: quorate.io/v1\nkind: Member\nmetadata: {name: n9}\n"
	for _, args := range [][]string{{"create", "-f", "-"}, {"apply", "--server-side", "-f", "-"}} {
		if out := n.TryKubectl(t, nil, manifest, args...); out.Code == 0 {
			t.Errorf("kubectl %s: %+v", args, out)
		}
	}
	members := n.Dynamic(t).Resource(membersGVR)
	if err := members.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("a collection is deleted: %v", err)
	}
	uid := types.UID("another")
	if err := members.Delete(t.Context(), name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); !apierrors.IsConflict(err) {
		t.Errorf("another one is deleted: %v", err)
	}
	after := n.Kubectl(t, "get", "members", "-o", "jsonpath={.items[*].metadata.uid}{.items[*].metadata.deletionTimestamp}")
	if m, err := members.Get(t.Context(), name, metav1.GetOptions{}); err != nil || after != before || m.Object["status"].(map[string]any)["id"] == "x" {
		t.Errorf("before %s\nafter %s\n%v %v", before, after, m, err)
	}
	// All APIs of controllers are asked for metadata alone, in protobuf.
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.API+"/apis/quorate.io/v1/members", nil)
	must.OK(t, err)
	r.Header.Set("Accept", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	answer, err := n.HTTP(t).Do(r)
	must.OK(t, err)
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK || !strings.Contains(answer.Header.Get("Content-Type"), "protobuf") {
		t.Errorf("metadata in protobuf: %d %s", answer.StatusCode, answer.Header.Get("Content-Type"))
	}
}
