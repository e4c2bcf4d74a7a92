package access

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestOwnPathsByCurrentRights: a node that lags, and one that is cut off, hand the cluster's secrets out by no right that
// was taken away: neither backups nor join tokens.
func TestOwnPathsByCurrentRights(t *testing.T) {
	c := cluster.Start(t, 3)
	late, link := c.JoinNonvoter(t, "n4")
	ctx := t.Context()
	admin := c.Leader(t).Typed(t)
	const namespace = "default"
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "operator"}}
	if _, err := admin.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	issued, err := admin.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must.OK(t, err)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "operator"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get", "post"}, NonResourceURLs: []string{"/quorate/v1/snapshot", "/quorate/v1/tokens"}},
	}}
	if _, err := admin.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bind := func() {
		t.Helper()
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "operator"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "operator"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account.Name}}}
		if _, err := admin.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		visible(t, late, namespace)
	}
	cfg := rest.AnonymousClientConfig(late.Config())
	cfg.BearerToken = issued.Status.Token
	operator, err := rest.HTTPClientFor(cfg)
	must.OK(t, err)
	defer operator.CloseIdleConnections()
	ask := func(client *http.Client, method, path string) (code int, answer string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, method, late.API+path, strings.NewReader(map[string]string{"POST": "{}"}[method]))
		must.OK(t, err)
		w, err := client.Do(r)
		must.OK(t, err)
		defer w.Body.Close()
		start, err := io.ReadAll(io.LimitReader(w.Body, 1000))
		must.OK(t, err)
		return w.StatusCode, string(start)
	}
	paths := map[string]string{"POST": "/quorate/v1/tokens", "GET": "/quorate/v1/snapshot"}
	for method, path := range paths {
		bind()
		if code, answer := ask(operator, method, path); code != http.StatusOK {
			t.Fatalf("%s %s: %d %.200q", method, path, code, answer)
		}
		link.Delay(300 * time.Millisecond) // the node has not heard of the deletion, and hears the leader often enough to ask it
		must.OK(t, admin.RbacV1().ClusterRoleBindings().Delete(ctx, "operator", metav1.DeleteOptions{}))
		if code, answer := ask(operator, method, path); code != http.StatusForbidden || !strings.Contains(answer, "cannot "+strings.ToLower(method)) {
			t.Errorf("a node that lags: %s %s: %d %.200q", method, path, code, answer)
		}
		link.Delay(0)
	}
	bind()
	link.Silence()
	created, err := admin.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "behind"}}, metav1.CreateOptions{})
	must.OK(t, err)
	if code, answer := ask(late.HTTP(t), "GET", fmt.Sprintf("/api/v1/namespaces/%s/configmaps/%s?resourceVersion=0", namespace, created.Name)); code != http.StatusNotFound {
		t.Fatalf("the node is not behind: %d %.200q", code, answer)
	}
	for method, path := range paths {
		if code, answer := ask(operator, method, path); code < 500 {
			t.Errorf("a node that is cut off: %s %s: %d %.200q", method, path, code, answer)
		}
	}
	if code, answer := ask(late.HTTP(t), "GET", paths["GET"]); code != http.StatusOK {
		t.Errorf("an administrator at a node that is cut off: %d %.200q", code, answer)
	}
}
