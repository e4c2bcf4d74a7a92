package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/access/auth/token"
)

// noKey is a node whose key is not published.
type noKey struct{ noTokens }

func (noKey) Issue(token.Spec) (string, error) {
	return "", fmt.Errorf("sign: %w", token.ErrNoKey)
}

// TestTokenRequestWithoutKey: a node that cannot sign yet says so, and when to come again.
func TestTokenRequestWithoutKey(t *testing.T) {
	e := newEnv(t, func(c *apiserver.Config) { c.Tokens = noKey{} })
	e.do("POST", "/api/v1/namespaces", nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"ns"}}`)
	if resp, body := e.do("POST", "/api/v1/namespaces/ns/serviceaccounts", nil, `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"robot"}}`); resp.StatusCode != http.StatusCreated {
		t.Fatal(body)
	}
	resp, body := e.do("POST", "/api/v1/namespaces/ns/serviceaccounts/robot/token", nil, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`)
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "1" || !strings.Contains(body, "its signing key is not published in the cluster") {
		t.Errorf("%s %v %s", resp.Status, resp.Header, body)
	}
}
