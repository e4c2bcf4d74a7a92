package test

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// issue has a node issue a token of the service account default/robot.
func (n *Node) issue(t *testing.T) string {
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
	if err != nil {
		t.Fatal(err)
	}
	var h struct{ Kid string }
	if err := json.Unmarshal(raw, &h); err != nil {
		t.Fatal(err)
	}
	return h.Kid
}

// forge signs what a token says with a key that lies in a node's directory, under the name of
// a key.
func forge(t *testing.T, token, id, dir, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "pki", file))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(claims)
	if err != nil {
		t.Fatal(err)
	}
	out, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// holds says whether a node accepts a token.
func (n *Node) holds(t *testing.T, token string) bool {
	t.Helper()
	_, err := n.as(t, token).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsUnauthorized(err) {
		t.Errorf("%s: %v", n.Name, err)
	}
	return err == nil
}

// keyIDs are the keys that a node shows to those who verify tokens.
func (n *Node) keyIDs(t *testing.T) (ids []string) {
	t.Helper()
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(n.MustGet(t, "/openid/v1/jwks"), &set); err != nil {
		t.Fatal(err)
	}
	for _, k := range set.Keys {
		ids = append(ids, k.KeyID)
	}
	return ids
}

// TestTokensOfRemovedNode: each node signs tokens with a key of its own, which it has after a
// restart too. When it is removed, all that it has signed, all that somebody signs who has its
// disk, and all that was signed with the key that follows from the cluster's secret, is refused
// by all nodes at once; what the others have signed goes on. With --keep-tokens it holds.
func TestTokensOfRemovedNode(t *testing.T) {
	c := Start(t, 4)
	nodes := c.Nodes()
	n1, n2, n3 := nodes[0], nodes[1], nodes[2]
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}
	if _, err := n1.Typed(t).CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The first tokens of a cluster may be of the shared key: its nodes have not told each
	// other yet what they support.
	tokens := map[*Node]string{}
	Await(t, 20*time.Second, "each node signs with a key of its own", func() string {
		ids := map[string]bool{}
		for _, n := range nodes {
			tokens[n] = n.issue(t)
			ids[keyIDOf(t, tokens[n])] = true
		}
		if len(ids) != len(nodes) || len(n1.keyIDs(t)) != len(nodes)+1 {
			return fmt.Sprintf("%d keys sign", len(ids))
		}
		return ""
	})
	dir := func(n *Node) string { return filepath.Join(c.dir, n.Name) }
	shared := n1.keyIDs(t)[0]
	forged := map[string]string{
		"of n3's own key":    forge(t, tokens[n1], keyIDOf(t, tokens[n3]), dir(n3), "token.key"),
		"of the secret's":    forge(t, tokens[n1], shared, dir(n3), "sa.key"),
		"in the name of n1":  forge(t, tokens[n1], keyIDOf(t, tokens[n1]), dir(n3), "token.key"),
		"in the secret's":    forge(t, tokens[n1], shared, dir(n3), "token.key"),
		"in no known name":   forge(t, tokens[n1], strings.Repeat("A", 43), dir(n3), "token.key"),
		"in no name at all":  forge(t, tokens[n1], "", dir(n3), "sa.key"),
		"of the peer's key":  forge(t, tokens[n1], keyIDOf(t, tokens[n3]), dir(n3), "peer.key"),
		"of n3, sa's as own": forge(t, tokens[n1], keyIDOf(t, tokens[n3]), dir(n3), "sa.key"),
	}
	check := func(when string, at []*Node, gone []*Node, fine ...string) {
		t.Helper()
		for _, n := range at {
			n.visible(t, "default")
			for of, token := range tokens {
				if holds := n.holds(t, token); holds == slices.Contains(gone, of) {
					t.Errorf("%s: %s accepts a token of %s: %v", when, n.Name, of.Name, holds)
				}
			}
			for what, token := range forged {
				if holds := n.holds(t, token); holds != slices.Contains(fine, what) {
					t.Errorf("%s: %s accepts one %s: %v", when, n.Name, what, holds)
				}
			}
			if a, b := n.keyIDs(t), at[0].keyIDs(t); !slices.Equal(a, b) {
				t.Errorf("%s: %s shows the keys %v, %s %v", when, n.Name, a, at[0].Name, b)
			}
		}
	}
	check("all are members", nodes, nil, "of n3's own key", "of the secret's")

	for _, n := range nodes {
		c.Stop(t, n)
		c.Restart(t, n)
		if before, now := keyIDOf(t, tokens[n]), keyIDOf(t, n.issue(t)); before != now {
			t.Errorf("after a restart %s signs with another key", n.Name)
		}
	}
	check("after a rolling restart", nodes, nil, "of n3's own key", "of the secret's")

	c.Admin(t, "member", "remove", "n4", "--keep-tokens=1h")
	check("n4's are kept", []*Node{n1, n2, n3}, nil, "of n3's own key", "of the secret's")

	c.Admin(t, "member", "remove", "n3")
	left := []*Node{n1, n2}
	check("n3's are not", left, []*Node{n3})
	if ids := n1.keyIDs(t); len(ids) != 3 || slices.Contains(ids, shared) {
		t.Errorf("the keys %v are shown", ids)
	}
	// Who needs a token gets another one.
	for _, n := range left {
		token := n.issue(t)
		for _, at := range left {
			if !at.holds(t, token) {
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
