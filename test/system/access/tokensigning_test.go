package access

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// issue has a node issue a token of the service account default/robot.
func issue(t *testing.T, n *cluster.Node) string {
	t.Helper()
	r, err := n.Typed(t).CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("%s: %v", n.Name, err)
	}
	return r.Status.Token
}

// keyIDOf is which key a token names.
func keyIDOf(t *testing.T, token string) string {
	t.Helper()
	head, _, _ := strings.Cut(token, ".")
	raw, err := base64.RawURLEncoding.DecodeString(head)
	must.OK(t, err)
	var h struct{ Kid string }
	must.OK(t, json.Unmarshal(raw, &h))
	return h.Kid
}

// forge signs what a token says with a key that lies in a node's directory, under the name of
// a key.
func forge(t *testing.T, token, id, dir, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "pki", file))
	must.OK(t, err)
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	must.OK(t, err)
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	must.OK(t, err)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	must.OK(t, err)
	signed, err := signer.Sign(claims)
	must.OK(t, err)
	out, err := signed.CompactSerialize()
	must.OK(t, err)
	return out
}

// holds says whether a node accepts a token.
func holds(t *testing.T, n *cluster.Node, token string) bool {
	t.Helper()
	_, err := as(t, n, token).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsUnauthorized(err) {
		t.Errorf("%s: %v", n.Name, err)
	}
	return err == nil
}

// keyIDs are the keys that a node shows to those who verify tokens.
func keyIDs(t *testing.T, n *cluster.Node) (ids []string) {
	t.Helper()
	var set jose.JSONWebKeySet
	must.OK(t, json.Unmarshal(n.MustGet(t, "/openid/v1/jwks"), &set))
	for _, k := range set.Keys {
		ids = append(ids, k.KeyID)
	}
	return ids
}

// grantView lets the service account default/robot read. Each node decides by its own state,
// so it returns when those at have the binding.
func grantView(t *testing.T, n *cluster.Node, at ...*cluster.Node) {
	t.Helper()
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "robot"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "robot"}}}
	if _, err := n.Typed(t).RbacV1().RoleBindings("default").Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, n := range at {
		visible(t, n, "default")
	}
}

// watchWith watches ConfigMaps from now on, for a long time and on a connection of its own.
func watchWith(t *testing.T, n *cluster.Node, token string) watch.Interface {
	t.Helper()
	cfg := rest.AnonymousClientConfig(n.Config())
	cfg.BearerToken, cfg.Dial = token, new(net.Dialer).DialContext
	client, err := kubernetes.NewForConfig(cfg)
	must.OK(t, err)
	list, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	must.OK(t, err)
	seconds := int64(600)
	w, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, TimeoutSeconds: &seconds})
	must.OK(t, err)
	t.Cleanup(w.Stop)
	return w
}

// ends waits until a watch is over.
func ends(t *testing.T, who string, w watch.Interface) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case e, open := <-w.ResultChan():
			if !open {
				return
			}
			t.Logf("the watch %s: %v", who, e.Type)
		case <-late:
			t.Errorf("the watch %s goes on", who)
			return
		}
	}
}

// TestTokensOfRemovedNode: each node signs tokens with a key of its own, which it has after a
// restart too. When it is removed, all that it has signed, and all that somebody signs who has its
// disk, is refused by all nodes at once; what the others have signed goes on. With --keep-tokens
// it holds.
func TestTokensOfRemovedNode(t *testing.T) {
	c := cluster.Start(t, 4)
	nodes := c.Nodes()
	n1, n2, n3 := nodes[0], nodes[1], nodes[2]
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}
	if _, err := n1.Typed(t).CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	tokens := map[*cluster.Node]string{}
	ids := map[string]bool{}
	for _, n := range nodes {
		tokens[n] = issue(t, n)
		ids[keyIDOf(t, tokens[n])] = true
	}
	if len(ids) != len(nodes) {
		t.Fatalf("%d nodes sign with %d keys", len(nodes), len(ids))
	}
	cluster.Await(t, 20*time.Second, "all keys are shown", func() string {
		if keys := keyIDs(t, n1); len(keys) != len(nodes) {
			return fmt.Sprint(keys)
		}
		return ""
	})
	dir := func(n *cluster.Node) string { return filepath.Join(c.Dir, n.Name) }
	forged := map[string]string{
		"of n3's own key":   forge(t, tokens[n1], keyIDOf(t, tokens[n3]), dir(n3), "token.key"),
		"in the name of n1": forge(t, tokens[n1], keyIDOf(t, tokens[n1]), dir(n3), "token.key"),
		"in no known name":  forge(t, tokens[n1], strings.Repeat("A", 43), dir(n3), "token.key"),
		"in no name at all": forge(t, tokens[n1], "", dir(n3), "peer.key"),
		"of the peer's key": forge(t, tokens[n1], keyIDOf(t, tokens[n3]), dir(n3), "peer.key"),
	}
	check := func(when string, at []*cluster.Node, gone []*cluster.Node, fine ...string) {
		t.Helper()
		for _, n := range at {
			visible(t, n, "default")
			for of, token := range tokens {
				if holds := holds(t, n, token); holds == slices.Contains(gone, of) {
					t.Errorf("%s: %s accepts a token of %s: %v", when, n.Name, of.Name, holds)
				}
			}
			for what, token := range forged {
				if holds := holds(t, n, token); holds != slices.Contains(fine, what) {
					t.Errorf("%s: %s accepts one %s: %v", when, n.Name, what, holds)
				}
			}
			if a, b := keyIDs(t, n), keyIDs(t, at[0]); !slices.Equal(a, b) {
				t.Errorf("%s: %s shows the keys %v, %s %v", when, n.Name, a, at[0].Name, b)
			}
		}
	}
	check("all are members", nodes, nil, "of n3's own key")

	for _, n := range nodes {
		c.Stop(t, n)
		c.Restart(t, n)
		if before, now := keyIDOf(t, tokens[n]), keyIDOf(t, issue(t, n)); before != now {
			t.Errorf("after a restart %s signs with another key", n.Name)
		}
	}
	check("after a rolling restart", nodes, nil, "of n3's own key")

	c.Admin(t, "member", "remove", "n4", "--keep-tokens=1h")
	check("n4's are kept", []*cluster.Node{n1, n2, n3}, nil, "of n3's own key")

	grantView(t, n1, n1, n2)
	const strange = "of n3's own key"
	watches := map[string]watch.Interface{
		"n1's": watchWith(t, n1, tokens[n1]), "forged": watchWith(t, n1, forged[strange]), "forged, on n2": watchWith(t, n2, forged[strange]),
	}
	c.Admin(t, "member", "remove", "n3")
	for who, w := range watches {
		if strings.HasPrefix(who, "forged") {
			ends(t, who, w)
		}
	}
	if _, err := n1.Typed(t).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "after"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case e, open := <-watches["n1's"].ResultChan():
		if !open || e.Type != watch.Added {
			t.Errorf("a watch with a token of n1 goes on with %v", e)
		}
	case <-time.After(20 * time.Second):
		t.Error("a watch with a token of n1 hears nothing")
	}
	left := []*cluster.Node{n1, n2}
	check("n3's are not", left, []*cluster.Node{n3})
	if ids := keyIDs(t, n1); len(ids) != 3 {
		t.Errorf("the keys %v are shown", ids)
	}
	// Who needs a token gets another one.
	for _, n := range left {
		token := issue(t, n)
		for _, at := range left {
			if !holds(t, at, token) {
				t.Errorf("%s refuses a new token of %s", at.Name, n.Name)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	review, err := n2.Typed(t).AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: tokens[n3]}}, metav1.CreateOptions{})
	if err != nil || review.Status.Authenticated || !strings.Contains(review.Status.Error, "no member of the cluster signs with the key") {
		t.Errorf("a review of a token of n3: %+v %v", review.Status, err)
	}
}

// TestTokensOfRestoredCluster: the keys of the members that a backup brings along are not
// trusted in the new cluster, but for one that a node has with it.
func TestTokensOfRestoredCluster(t *testing.T) {
	c := cluster.Start(t, 1)
	n1 := c.Nodes()[0]
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}
	if _, err := n1.Typed(t).CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token := issue(t, n1)
	file := filepath.Join(c.Dir, "backup")
	c.Admin(t, "snapshot", "save", file)
	ports, err := cluster.FreePorts(2)
	must.OK(t, err)
	for i, x := range []struct {
		name string
		key  bool // comes along
	}{{"r1", false}, {"r2", true}} {
		port := ports + i
		dir := filepath.Join(c.Dir, x.name)
		c.Quorate(t, "snapshot", "restore", file, "--data-dir", dir, "--name", x.name, "--peer-advertise-address", fmt.Sprintf("127.0.0.1:%d", port+1000))
		if x.key {
			text, err := os.ReadFile(filepath.Join(c.Dir, "n1", "pki", "token.key"))
			if err == nil {
				err = os.Mkdir(filepath.Join(dir, "pki"), 0o700)
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "pki", "token.key"), text, 0o600)
			}
			must.OK(t, err)
		}
		n := c.Launch(t, x.name, port, "--token-file", filepath.Join(c.Dir, "token"))
		n.AwaitReady(t)
		cluster.Await(t, 20*time.Second, x.name+" has published its key", func() string {
			if ids := keyIDs(t, n); len(ids) == 0 || x.key != slices.Contains(ids, keyIDOf(t, token)) {
				return fmt.Sprint(ids)
			}
			return ""
		})
		if holds := holds(t, n, token); holds != x.key {
			t.Errorf("%s accepts a token of before the restore: %v", x.name, holds)
		}
		if !holds(t, n, issue(t, n)) {
			t.Errorf("%s refuses its own token", x.name)
		}
	}
}
