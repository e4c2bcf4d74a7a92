package apiserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/access/auth/token"
	"github.com/quorate/quorate/proto"
)

// BenchmarkToken is a create by a service account whose token is bound to a Pod.
func BenchmarkToken(b *testing.B) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	keys, err := token.NewKeys(key, token.Key{Public: &key.PublicKey})
	if err != nil {
		b.Fatal(err)
	}
	var accounts *token.Accounts
	e := newEnv(b, func(cfg *apiserver.Config) {
		accounts, err = token.New(token.Config{Issuer: "https://issuer", Audiences: []string{"api"}, Keys: func() *token.Keys { return keys }, Store: cfg.Store})
		cfg.Authorizer = &ruleChange{}
		cfg.Authenticator = &auth.Authentication{Tokens: []auth.TokenAuthenticator{accounts}}
	})
	for _, x := range []string{"serviceaccounts", "pods"} {
		w := &proto.Write{Table: x, Key: "default/a", Uid: "4a1bd1bb-1a3b-4d7c-8a2e-4b1f6f0d3a11", Op: proto.Op_OP_PUT, Value: []byte("{}")}
		if _, err := e.mem.Propose(b.Context(), w); err != nil {
			b.Fatal(err)
		}
	}
	ref := token.Ref{Name: "a", UID: "4a1bd1bb-1a3b-4d7c-8a2e-4b1f6f0d3a11"}
	signed, err := accounts.Issue(token.Spec{Claims: token.Claims{Namespace: "default", Account: ref, Pod: &ref}, Audiences: []string{"api"}, Now: time.Now(), ValidFor: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := httptest.NewRequest(http.MethodPost, maps, strings.NewReader(fmt.Sprintf(`{"metadata":{"name":"n%d"}}`, i)))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+signed)
		w := httptest.NewRecorder()
		e.api.ServeHTTP(w, r)
		if w.Code != http.StatusCreated {
			b.Fatal(w.Body)
		}
	}
}
