package access

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// as is a client of a node with a token and nothing else.
func as(t testing.TB, n *cluster.Node, token string) kubernetes.Interface {
	t.Helper()
	cfg := rest.AnonymousClientConfig(n.Config())
	cfg.BearerToken, cfg.QPS = token, -1
	client, err := kubernetes.NewForConfig(cfg)
	must.OK(t, err)
	return client
}

// visible makes sure that a node has everything up to now: what its administrator
// reads is linearizable, and comes from the state that decides on others.
func visible(t testing.TB, n *cluster.Node, namespace string) {
	t.Helper()
	if _, err := n.Typed(t).CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestRolesOnEveryNode: what a binding grants, and what its deletion takes away,
// counts on each node as soon as the write is visible there; for lists, watches and
// subresources, for a service account's token and for its end.
func TestRolesOnEveryNode(t *testing.T) {
	c := cluster.Shared(t)
	const namespace = "roles"
	ctx := t.Context()
	admin := c.Nodes()[0].Typed(t)
	if _, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	dropNamespace(t, c, namespace)
	account, err := admin.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	must.OK(t, err)
	issued, err := admin.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must.OK(t, err)
	robots := make([]kubernetes.Interface, len(c.Nodes()))
	for i, n := range c.Nodes() {
		robots[i] = as(t, n, issued.Status.Token)
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"configmaps"}},
		{Verbs: []string{"get"}, APIGroups: []string{"*"}, Resources: []string{"*/status"}},
	}}
	if _, err := admin.RbacV1().Roles(namespace).Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "r"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "robot"}}}

	for range 10 {
		if _, err := admin.RbacV1().RoleBindings(namespace).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for i, n := range c.Nodes() {
			visible(t, n, namespace)
			granted(t, robots[i], n.Name, namespace)
		}
		must.OK(t, admin.RbacV1().RoleBindings(namespace).Delete(ctx, "b", metav1.DeleteOptions{}))
		for i, n := range c.Nodes() {
			visible(t, n, namespace)
			_, err := robots[i].CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
			refused(t, n.Name, err, `configmaps is forbidden: User "system:serviceaccount:roles:robot" cannot list resource "configmaps" in API group "" in the namespace "roles"`)
		}
	}

	// The token ends with the account, and another one of that name has no use for it.
	must.OK(t, admin.CoreV1().ServiceAccounts(namespace).Delete(ctx, "robot", metav1.DeleteOptions{}))
	for range 2 {
		for i, n := range c.Nodes() {
			visible(t, n, namespace)
			if _, err := robots[i].Discovery().ServerVersion(); !apierrors.IsUnauthorized(err) {
				t.Errorf("%s: %v, want 401", n.Name, err)
			}
		}
		account.ResourceVersion, account.UID = "", ""
		if _, err := admin.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

// dropNamespace deletes a namespace at the end of the test.
func dropNamespace(t *testing.T, c *cluster.Cluster, name string) {
	t.Cleanup(func() {
		// The test's own context has ended.
		if err := c.Nodes()[0].Typed(t).CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// granted checks what the role grants, and that nothing else is.
func granted(t *testing.T, robot kubernetes.Interface, node, namespace string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := robot.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("%s: list: %v", node, err)
	}
	w, err := robot.CoreV1().ConfigMaps(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Errorf("%s: watch: %v", node, err)
	} else {
		w.Stop()
	}
	// Allowed, and not there.
	err = robot.AppsV1().RESTClient().Get().Namespace(namespace).Resource("deployments").Name("x").SubResource("status").Do(ctx).Error()
	if !apierrors.IsNotFound(err) {
		t.Errorf("%s: deployments/status: %v, want 404", node, err)
	}
	_, err = robot.CoreV1().ConfigMaps(namespace).Get(ctx, "x", metav1.GetOptions{})
	refused(t, node, err, `configmaps "x" is forbidden: User "system:serviceaccount:roles:robot" cannot get resource "configmaps" in API group "" in the namespace "roles"`)
	_, err = robot.AppsV1().Deployments(namespace).Get(ctx, "x", metav1.GetOptions{})
	refused(t, node, err, `deployments.apps "x" is forbidden: User "system:serviceaccount:roles:robot" cannot get resource "deployments" in API group "apps" in the namespace "roles"`)
	_, err = robot.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
	refused(t, node, err, `configmaps is forbidden: User "system:serviceaccount:roles:robot" cannot list resource "configmaps" in API group "" at the cluster scope`)
}

func refused(t *testing.T, node string, err error, want string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || err.Error() != want {
		t.Errorf("%s: %v\nwant %s", node, err, want)
	}
}

// TestKubectlAuth: what kubectl says about users, tokens and their rights, each step
// at another node.
func TestKubectlAuth(t *testing.T) {
	r := &cluster.Round{Cluster: cluster.Shared(t)}
	expect := func(out cluster.Output, code int, fragments ...string) {
		t.Helper()
		if out.Code != code {
			t.Errorf("exit code %d, want %d: %s%s", out.Code, code, out.Stdout, out.Stderr)
		}
		for _, f := range fragments {
			if !strings.Contains(out.Stdout+out.Stderr, f) {
				t.Errorf("no %q in %s%s", f, out.Stdout, out.Stderr)
			}
		}
	}
	r.Kubectl(t, "create", "namespace", "auth")
	dropNamespace(t, r.Cluster, "auth")
	r.Kubectl(t, "-n", "auth", "create", "serviceaccount", "robot")
	const robot = "system:serviceaccount:auth:robot"

	expect(r.Try(t, nil, "auth", "can-i", "delete", "nodes"), 0, "yes")
	expect(r.Try(t, nil, "-n", "auth", "auth", "can-i", "list", "pods", "--as", robot), 1, "no")
	r.Kubectl(t, "-n", "auth", "create", "rolebinding", "b", "--clusterrole", "view", "--serviceaccount", "auth:robot")
	expect(r.Try(t, nil, "-n", "auth", "auth", "can-i", "list", "pods", "--as", robot), 0, "yes")
	expect(r.Try(t, nil, "-n", "auth", "auth", "can-i", "get", "pods", "--subresource", "log", "--as", robot), 0, "yes")
	expect(r.Try(t, nil, "-n", "auth", "auth", "can-i", "list", "secrets", "--as", robot), 1, "no")
	expect(r.Try(t, nil, "auth", "can-i", "list", "pods", "--as", robot), 1, "no")
	expect(r.Try(t, nil, "-n", "auth", "auth", "can-i", "--list", "--as", robot), 0, "pods/log", "selfsubjectaccessreviews.authorization.k8s.io")
	expect(r.Try(t, nil, "auth", "whoami", "--as", "jane", "--as-group", "devs"), 0, "jane", "[devs system:authenticated]")

	token := strings.TrimSpace(r.Kubectl(t, "-n", "auth", "create", "token", "robot", "--duration", "20m", "--audience", "https://kubernetes.default.svc.cluster.local"))
	expect(r.Try(t, nil, append([]string{"auth", "whoami", "-o", "json"}, withoutCertificate(r, token)...)...), 0, robot, "system:serviceaccounts:auth", "JTI=")
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	must.OK(t, err)
	var claims struct {
		Exp, Iat int64
		Sub      string
	}
	must.OK(t, json.Unmarshal(payload, &claims))
	if claims.Exp-claims.Iat != 20*60 || claims.Sub != robot {
		t.Errorf("%+v", claims)
	}
	expect(r.Try(t, nil, "-n", "auth", "create", "token", "gone"), 1, `serviceaccounts "gone" not found`)
	expect(r.Try(t, nil, "-n", "auth", "create", "token", "robot", "--duration", "5m"), 1, "may not specify a duration less than 10 minutes")
	expect(r.Try(t, nil, "-n", "auth", "create", "role", "strong", "--verb", "get", "--resource", "secrets", "--as", robot), 1, "forbidden")
	// A certificate of another user shows the same texts.
	expect(r.Try(t, nil, "get", "nodes", "--as", "jane"), 1,
		`Error from server (Forbidden): nodes is forbidden: User "jane" cannot list resource "nodes" in API group "" at the cluster scope`)
	expect(r.Try(t, nil, "-n", "auth", "logs", "x"), 1, "not found")
}

// withoutCertificate are the flags of a kubectl that knows nothing but the server
// and a token.
func withoutCertificate(r *cluster.Round, token string) []string {
	return []string{"--kubeconfig=/dev/null", "--context=", "--server=" + r.Node().API, "--certificate-authority=" + r.Cluster.CAFile, "--token=" + token}
}

// TestDrain: kubectl drain waits for a disruption budget, and each eviction takes
// one from it, whichever node it goes through.
func TestDrain(t *testing.T) {
	r := &cluster.Round{Cluster: cluster.Shared(t)}
	r.Kubectl(t, "create", "namespace", "drain")
	dropNamespace(t, r.Cluster, "drain")
	t.Cleanup(func() {
		_ = r.Cluster.Nodes()[0].Typed(t).CoreV1().Nodes().Delete(context.Background(), "worker", metav1.DeleteOptions{})
	})
	apply := func(manifest string) {
		t.Helper()
		if out := r.Node().TryKubectl(t, nil, manifest, "-n", "drain", "apply", "-f", "-"); out.Code != 0 {
			t.Fatal(out.Stderr)
		}
	}
	apply(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"worker"}}`)
	apply(`{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"b"},"spec":{"minAvailable":1,"selector":{"matchLabels":{"app":"x"}}}}`)
	for i := range 2 {
		name := fmt.Sprint("p", i)
		apply(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `","labels":{"app":"x"}},"spec":{"nodeName":"worker","containers":[{"name":"c","image":"i"}]}}`)
		r.Kubectl(t, "-n", "drain", "patch", "pod", name, "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
	}
	allow := func(n int) {
		t.Helper()
		r.Kubectl(t, "-n", "drain", "patch", "pdb", "b", "--subresource=status", "--type=merge", "-p",
			fmt.Sprintf(`{"status":{"observedGeneration":1,"disruptionsAllowed":%d,"currentHealthy":2,"desiredHealthy":1,"expectedPods":2}}`, n))
	}
	pods := func() int {
		return len(strings.Fields(r.Kubectl(t, "-n", "drain", "get", "pods", "-o", "name")))
	}
	drain := func(within string) cluster.Output {
		return r.Try(t, nil, "drain", "worker", "--force", "--grace-period=0", "--timeout="+within)
	}
	allow(1)
	// One may go; the other waits until the time is over.
	if out := drain("3s"); out.Code == 0 || !strings.Contains(out.Stderr, "violate the pod's disruption budget") && !strings.Contains(out.Stderr, "global timeout reached") {
		t.Errorf("%d %s%s", out.Code, out.Stdout, out.Stderr)
	}
	if n := pods(); n != 1 {
		t.Errorf("%d pods are left, want 1", n)
	}
	if got := r.Kubectl(t, "-n", "drain", "get", "pdb", "b", "-o", "jsonpath={.status.disruptionsAllowed}"); got != "0" {
		t.Errorf("%s disruptions are left", got)
	}
	allow(1)
	if out := drain("30s"); out.Code != 0 || !strings.Contains(out.Stdout, "node/worker drained") {
		t.Errorf("%d %s%s", out.Code, out.Stdout, out.Stderr)
	}
	if n := pods(); n != 0 {
		t.Errorf("%d pods are left", n)
	}
}
