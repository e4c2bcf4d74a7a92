package apiserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/http"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/access/auth/token"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// TestIdentityChange: who is not any more what a token says that he is writes and reads nothing,
// if that is so before the write is in the log, or the read's state is there. What else becomes of
// the token's objects, which change all the time, costs nothing.
func TestIdentityChange(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(t, err)
	keys, err := token.NewKeys(key, token.Key{Public: &key.PublicKey})
	must.OK(t, err)
	const keyTable = "test/keys"
	var (
		accounts *token.Accounts
		node     hearing
		c        = &ruleChange{}
	)
	e := newEnv(t, func(cfg *apiserver.Config) {
		accounts, err = token.New(token.Config{
			Issuer: "https://issuer", Audiences: []string{"api"}, Keys: func() *token.Keys { return keys }, KeyTables: []string{keyTable}, Store: cfg.Store,
		})
		must.OK(t, err)
		node.Reads = cfg.Reads
		cfg.Reads, cfg.Authorizer = &node, c
		cfg.Authenticator = &auth.Authentication{Tokens: []auth.TokenAuthenticator{accounts}}
		cfg.Admission = admission.NewChain([]admission.Named{{Name: "Changing", Plugin: c}}, nil)
	})
	put := func(table, key, uid string, flags uint32) {
		t.Helper()
		head := `{"metadata":{"resourceVersion":"`
		value := head + `"}}`
		if flags != 0 {
			value = head + `","deletionTimestamp":"` + time.Now().Format(time.RFC3339) + `"}}`
		}
		w := &proto.Write{Table: table, Key: key, Op: proto.Op_OP_PUT, Uid: uid, Flags: flags, Value: []byte(value), RevisionOffset: uint32(len(head))}
		if _, err := e.mem.Propose(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(table, key string) {
		t.Helper()
		if _, err := e.mem.Propose(t.Context(), &proto.Write{Table: table, Key: key, Op: proto.Op_OP_DELETE}); err != nil {
			t.Fatal(err)
		}
	}
	restore := func() {
		for key, uid := range map[string]string{"default/robot": "u1", "default/robot-2": "u5"} {
			put("serviceaccounts", key, uid, 0)
		}
		put("pods", "default/p", "u2", 0)
		put("secrets", "default/s", "u3", 0)
		put("nodes", "n", "u4", 0)
	}
	pod, secret, onNode := token.Claims{Pod: &token.Ref{Name: "p", UID: "u2"}}, token.Claims{Secret: &token.Ref{Name: "s", UID: "u3"}}, token.Claims{Node: &token.Ref{Name: "n", UID: "u4"}}
	for _, x := range []struct {
		name    string
		claims  token.Claims
		change  func()
		decided int
		holds   bool
	}{
		{"nothing", pod, func() {}, 1, true},
		{"the account is deleted", token.Claims{}, func() { remove("serviceaccounts", "default/robot") }, 1, false},
		{"the account of a Pod is deleted", pod, func() { remove("serviceaccounts", "default/robot") }, 1, false},
		{"the account is another one", token.Claims{}, func() { put("serviceaccounts", "default/robot", "other", 0) }, 1, false},
		{"the account changes", token.Claims{}, func() { put("serviceaccounts", "default/robot", "u1", 0) }, 1, true},
		{"another account goes", token.Claims{}, func() { remove("serviceaccounts", "default/robot-2") }, 1, true},
		{"the Pod is deleted", pod, func() { remove("pods", "default/p") }, 1, false},
		{"the Pod is another one", pod, func() { put("pods", "default/p", "other", 0) }, 1, false},
		{"the Pod's status changes", pod, func() { put("pods", "default/p", "u2", 0) }, 1, true},
		{"the Pod shuts down", pod, func() { put("pods", "default/p", "u2", proto.FlagTerminating) }, 2, true},
		{"the Secret is deleted", secret, func() { remove("secrets", "default/s") }, 1, false},
		{"a heartbeat of the Node", onNode, func() { put("nodes", "n", "u4", 0) }, 1, true},
		{"the Node is deleted", onNode, func() { remove("nodes", "n") }, 1, false},
		{"another Pod of a token without one", token.Claims{}, func() { remove("pods", "default/p") }, 1, true},
		{"a key of tokens comes or goes", pod, func() { put(keyTable, "k", "", 0) }, 2, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			restore()
			claims := x.claims
			claims.Namespace, claims.Account = "default", token.Ref{Name: "robot", UID: "u1"}
			signed, err := accounts.Issue(token.Spec{Claims: claims, Audiences: []string{"api"}, Now: time.Now(), ValidFor: time.Hour})
			must.OK(t, err)
			header := func() http.Header { return http.Header{"Authorization": {"Bearer " + signed}} }
			code := map[bool]int{true: http.StatusCreated, false: http.StatusUnauthorized}[x.holds]
			*c = ruleChange{changes: 1, change: x.change}
			if w, answer := e.do("POST", maps, header(), `{"metadata":{"generateName":"g-"}}`); w.StatusCode != code || c.decided != x.decided {
				t.Errorf("a write: %d %s, decided %d times; want %d and %d", w.StatusCode, clip(answer), c.decided, code, x.decided)
			}
			restore()
			node.news.Store(&x.change)
			code = map[bool]int{true: http.StatusOK, false: http.StatusUnauthorized}[x.holds]
			for _, when := range []string{"a read that waits", "a read afterwards"} {
				if w, answer := e.do("GET", maps, header(), ""); w.StatusCode != code {
					t.Errorf("%s: %d %s, want %d", when, w.StatusCode, clip(answer), code)
				}
			}
		})
	}
}
