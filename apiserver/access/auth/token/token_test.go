package token

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
)

type world struct {
	t    testing.TB
	mem  *memstore.Store
	a    *Accounts
	now  time.Time
	keys *Keys
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(t, err)
	return key
}

func newWorld(t testing.TB, key *ecdsa.PrivateKey, older ...*ecdsa.PublicKey) *world {
	w := &world{t: t, mem: memstore.New(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	t.Cleanup(func() { _ = w.mem.Close() })
	verify := []Key{{Public: &key.PublicKey}}
	for _, k := range older {
		verify = append(verify, Key{Public: k})
	}
	w.inForce(key, verify...)
	var err error
	w.a, err = New(Config{
		Issuer: "https://issuer", Audiences: []string{"api", "api2"}, Keys: func() *Keys { return w.keys },
		Store: w.mem, Now: func() time.Time { return w.now },
	})
	must.OK(t, err)
	return w
}

// inForce says which keys count from now on.
func (w *world) inForce(sign crypto.Signer, verify ...Key) {
	w.t.Helper()
	keys, err := NewKeys(sign, verify...)
	must.OK(w.t, err)
	w.keys = keys
}

func (w *world) put(table, key, uid string, deleting time.Time) {
	w.t.Helper()
	head := `{"metadata":{"resourceVersion":"`
	value, flags := head+`"}}`, uint32(0)
	if !deleting.IsZero() {
		value, flags = head+`","deletionTimestamp":"`+deleting.Format(time.RFC3339)+`"}}`, proto.FlagTerminating
	}
	_, err := w.mem.Propose(context.Background(), &proto.Write{Table: table, Key: key, Op: proto.Op_OP_PUT, Uid: uid, Value: []byte(value), RevisionOffset: uint32(len(head)), Flags: flags})
	must.OK(w.t, err)
}

func (w *world) remove(table, key string) {
	w.t.Helper()
	if _, err := w.mem.Propose(context.Background(), &proto.Write{Table: table, Key: key, Op: proto.Op_OP_DELETE}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) issue(c Claims, audiences ...string) string {
	w.t.Helper()
	c.Namespace, c.Account = "ns", Ref{"robot", "u1"}
	s, err := w.a.Issue(Spec{Claims: c, Audiences: audiences, Now: w.now, ValidFor: time.Hour})
	must.OK(w.t, err)
	return s
}

// refused is why a token does not hold, "" if it does.
func (w *world) refused(token string) string {
	u, ok, err := w.a.AuthenticateToken(context.Background(), token)
	switch {
	case err != nil:
		return err.Error()
	case !ok:
		return "not ours"
	case u.Name != "system:serviceaccount:ns:robot" || u.UID != "u1" || !u.InGroup("system:serviceaccounts:ns"):
		return fmt.Sprint(u)
	}
	return ""
}

func (w *world) expect(token, want string) {
	w.t.Helper()
	if got := w.refused(token); got != want {
		w.t.Errorf("refused for %q, want %q", got, want)
	}
}

// TestAudiences: they are a list, also if there is one.
func TestAudiences(t *testing.T) {
	w := newWorld(t, newKey(t))
	for want, audiences := range map[string][]string{`["api"]`: {"api"}, `["api","b"]`: {"api", "b"}} {
		payload, err := base64.RawURLEncoding.DecodeString(strings.Split(w.issue(Claims{}, audiences...), ".")[1])
		must.OK(t, err)
		var claims map[string]json.RawMessage
		must.OK(t, json.Unmarshal(payload, &claims))
		if got := string(claims["aud"]); got != want {
			t.Errorf("aud is %s, want %s", got, want)
		}
	}
}

// TestTokens: a token holds as long as everything that it is bound to.
func TestTokens(t *testing.T) {
	w := newWorld(t, newKey(t))
	plain := w.issue(Claims{}, "api")
	w.expect(plain, `serviceaccounts "robot" not found`)
	w.put("serviceaccounts", "ns/robot", "u1", time.Time{})
	w.expect(plain, "")
	w.expect(w.issue(Claims{}, "else"), `token audiences ["else"] is invalid for the target audiences ["api" "api2"]`)
	w.expect(w.issue(Claims{}), "")

	for _, row := range []struct {
		what, table, key string
		claims           Claims
	}{
		{"pod", "pods", "ns/p", Claims{Pod: &Ref{"p", "u2"}, Node: &Ref{Name: "n"}}},
		{"secret", "secrets", "ns/s", Claims{Secret: &Ref{"s", "u2"}}},
		{"node", "nodes", "n", Claims{Node: &Ref{"n", "u2"}}},
	} {
		token := w.issue(row.claims, "api", "else")
		w.expect(token, "service account token has been invalidated")
		w.put(row.table, row.key, "u2", time.Time{})
		w.expect(token, "")
		// What shuts down keeps its token for another minute.
		w.put(row.table, row.key, "u2", w.now.Add(-59*time.Second))
		w.expect(token, "")
		w.put(row.table, row.key, "u2", w.now.Add(-61*time.Second))
		w.expect(token, "service account token has been invalidated")
		w.remove(row.table, row.key)
		w.expect(token, "service account token has been invalidated")
		w.put(row.table, row.key, "u3", time.Time{})
		w.expect(token, fmt.Sprintf("%s UID (u3) does not match service account %s ref claim (u2)", row.what, row.what))
	}

	w.now = w.now.Add(time.Hour + 59*time.Second)
	w.expect(plain, "")
	w.now = w.now.Add(2 * time.Second)
	w.expect(plain, "service account token has expired")
	w.now = w.now.Add(-3 * time.Hour)
	w.expect(plain, "service account token is not valid yet")
	w.now = w.now.Add(2 * time.Hour)
	w.put("serviceaccounts", "ns/robot", "u9", time.Time{})
	w.expect(plain, "service account UID (u9) does not match claim (u1)")
	w.remove("serviceaccounts", "ns/robot")
	w.expect(plain, `serviceaccounts "robot" not found`)
}

// TestForged: nobody but the holder of a key makes tokens.
func TestForged(t *testing.T) {
	key, old, stranger := newKey(t), newKey(t), newKey(t)
	w := newWorld(t, key, &old.PublicKey)
	w.put("serviceaccounts", "ns/robot", "u1", time.Time{})
	by := func(key *ecdsa.PrivateKey) string {
		o := newWorld(t, key)
		return o.issue(Claims{}, "api")
	}
	w.expect(by(key), "")
	w.expect(by(old), "")
	good := by(key)
	parts := strings.Split(good, ".")
	other := strings.Split(by(old), ".")
	for name, forged := range map[string]string{
		"stranger":          by(stranger),
		"other signature":   parts[0] + "." + parts[1] + "." + other[2],
		"no signature":      parts[0] + "." + parts[1] + ".",
		"algorithm none":    "eyJhbGciOiJub25lIn0." + parts[1] + ".",
		"two parts":         parts[0] + "." + parts[1],
		"cut":               good[:len(good)-4],
		"empty":             "",
		"another language":  "opaque",
		"longer than looks": strings.Repeat(good, 40),
	} {
		if w.refused(forged) == "" {
			t.Errorf("%s: accepted", name)
		}
	}
	// A symmetric signature with the public key as the secret.
	secret, err := json.Marshal(jose.JSONWebKey{Key: &key.PublicKey})
	must.OK(t, err)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: secret}, nil)
	must.OK(t, err)
	s, err := jwt.Signed(signer).Claims(jwt.Claims{Issuer: "https://issuer", Audience: jwt.Audience{"api"}}).Serialize()
	must.OK(t, err)
	w.expect(s, "not ours")
}

// TestConfirm: a node that lags asks before it refuses.
func TestConfirm(t *testing.T) {
	w := newWorld(t, newKey(t))
	w.a.cfg.Confirm = func(context.Context) error {
		w.put("serviceaccounts", "ns/robot", "u1", time.Time{})
		return nil
	}
	w.expect(w.issue(Claims{}, "api"), "")
	for _, row := range []struct {
		table, key string
		claims     Claims
	}{
		{"pods", "ns/p", Claims{Pod: &Ref{"p", "u2"}, Node: &Ref{Name: "n"}}},
		{"secrets", "ns/s", Claims{Secret: &Ref{"s", "u2"}}},
		{"nodes", "n", Claims{Node: &Ref{"n", "u2"}}},
	} {
		token := w.issue(row.claims, "api")
		// The node has an older object of that name, too.
		for _, was := range []string{"", "u1"} {
			if was != "" {
				w.put(row.table, row.key, was, time.Time{})
			}
			w.a.gone = nil
			w.a.cfg.Confirm = func(context.Context) error { w.put(row.table, row.key, "u2", time.Time{}); return nil }
			w.expect(token, "")
		}
		// Deleted at another node, and not yet here: what the state shows counts, until it has that.
		w.a.cfg.Confirm = func(context.Context) error { t.Error("asked before it was refused"); return nil }
		w.expect(token, "")
		w.a.cfg.Confirm = nil
		w.remove(row.table, row.key)
		w.expect(token, "service account token has been invalidated")
	}
	w.a.cfg.Confirm = func(context.Context) error { t.Error("asked for nothing"); return nil }
	w.expect(w.issue(Claims{}, "api"), "")
}

// TestGone: an account that is gone is looked for once a second, however many tokens it has
// left; one that is found in the meantime is served.
func TestGone(t *testing.T) {
	w := newWorld(t, newKey(t))
	asked := 0
	w.a.cfg.Confirm = func(context.Context) error { asked++; return nil }
	robot, other := w.issue(Claims{}, "api"), w.issue(Claims{Pod: &Ref{"p", "u2"}}, "api")
	const notFound = `serviceaccounts "robot" not found`
	for range 100 {
		w.expect(robot, notFound)
		w.expect(other, notFound)
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	w.now = w.now.Add(rememberGone)
	w.expect(robot, notFound)
	if asked != 2 {
		t.Errorf("asked %d times, want once more", asked)
	}
	w.put("serviceaccounts", "ns/robot", "u1", time.Time{})
	w.expect(robot, "")
	w.expect(other, "service account token has been invalidated") // of another object
	if asked != 3 {
		t.Errorf("asked %d times, want once for the pod", asked)
	}
	w.a.cfg.Confirm = func(context.Context) error { asked++; return errors.New("no quorum") }
	w.now = w.now.Add(rememberGone)
	w.expect(other, "service account token has been invalidated")
	w.a.cfg.Confirm = func(context.Context) error {
		w.put("pods", "ns/p", "u2", time.Time{})
		return nil
	}
	w.expect(other, "") // what was not confirmed is not remembered
	for i := range 3 * maxGone {
		w.a.markGone(auth.Object{Table: "pods", Key: fmt.Sprint("ns/", i), UID: "u"}, w.now)
	}
	if len(w.a.gone) > maxGone {
		t.Errorf("%d are remembered", len(w.a.gone))
	}
}

// TestCredential: what a token follows from is known to those who write for its holder, and can be
// asked for again.
func TestCredential(t *testing.T) {
	w := newWorld(t, newKey(t))
	w.a.cfg.KeyTables = []string{"keys"}
	w.put("serviceaccounts", "ns/robot", "u1", time.Time{})
	for _, row := range []struct {
		claims     Claims
		table, key string
		want       string
	}{
		{Claims{}, "serviceaccounts", "ns/robot", "[{serviceaccounts ns/robot u1} {keys  }]"},
		{Claims{Pod: &Ref{"p", "u2"}, Node: &Ref{Name: "n"}}, "pods", "ns/p", "[{serviceaccounts ns/robot u1} {pods ns/p u2} {keys  }]"},
		{Claims{Secret: &Ref{"s", "u2"}}, "secrets", "ns/s", "[{serviceaccounts ns/robot u1} {secrets ns/s u2} {keys  }]"},
		{Claims{Node: &Ref{"n", "u2"}}, "nodes", "n", "[{serviceaccounts ns/robot u1} {nodes n u2} {keys  }]"},
	} {
		w.put("serviceaccounts", "ns/robot", "u1", time.Time{})
		if row.table != "serviceaccounts" {
			w.put(row.table, row.key, "u2", time.Time{})
		}
		u, ok, err := w.a.AuthenticateToken(t.Context(), w.issue(row.claims, "api"))
		if !ok || err != nil {
			t.Fatalf("%v: %v %v", row.claims, ok, err)
		}
		if got := fmt.Sprint(u.Credential.Objects()); got != row.want {
			t.Errorf("%s, want %s", got, row.want)
		}
		if err := u.Credential.Holds(t.Context()); err != nil {
			t.Error(err)
		}
		w.remove(row.table, row.key)
		if err := u.Credential.Holds(t.Context()); err == nil {
			t.Errorf("%s: it holds without %s", row.want, row.key)
		}
	}
	w.put("serviceaccounts", "ns/robot", "u1", time.Time{})
	u, _, _ := w.a.AuthenticateToken(t.Context(), w.issue(Claims{}, "api"))
	w.inForce(newKey(t))
	if err := u.Credential.Holds(t.Context()); err == nil {
		t.Error("it holds without its key")
	}
}

// TestExtra: what the user knows of its token.
func TestExtra(t *testing.T) {
	w := newWorld(t, newKey(t))
	w.put("serviceaccounts", "ns/robot", "u1", time.Time{})
	w.put("pods", "ns/p", "u2", time.Time{})
	token := w.issue(Claims{Pod: &Ref{"p", "u2"}, Node: &Ref{"n", "u3"}}, "x", "api2", "y")
	u, both, ok, err := w.a.AuthenticateFor(context.Background(), token, []string{"y", "z", "x"})
	if !ok || err != nil || fmt.Sprint(both) != "[y x]" {
		t.Fatalf("%v %v %v", both, ok, err)
	}
	for key, want := range map[string]string{"pod-name": "p", "pod-uid": "u2", "node-name": "n", "node-uid": "u3"} {
		if got := u.Extra["authentication.kubernetes.io/"+key]; len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q", key, got)
		}
	}
	if id := u.Extra[auth.CredentialID]; len(id) != 1 || !strings.HasPrefix(id[0], "JTI=") {
		t.Errorf("credential id %q", id)
	}
}

// TestOpenID: who has only the documents can verify a token.
func TestOpenID(t *testing.T) {
	w := newWorld(t, newKey(t), &newKey(t).PublicKey)
	h, err := w.a.OpenID("https://here/openid/v1/jwks")
	must.OK(t, err)
	get := func(path, contentType string, into any) {
		t.Helper()
		r := httptest.NewRecorder()
		h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
		if r.Code != 200 || r.Header().Get("Content-Type") != contentType {
			t.Fatalf("%s: %d %v", path, r.Code, r.Header())
		}
		must.OK(t, json.Unmarshal(r.Body.Bytes(), into))
	}
	var configuration struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	get(ConfigurationPath, "application/json", &configuration)
	if configuration.Issuer != "https://issuer" || configuration.Keys != "https://here/openid/v1/jwks" {
		t.Errorf("%+v", configuration)
	}
	var keys jose.JSONWebKeySet
	get(KeysPath, "application/jwk-set+json", &keys)
	parsed, err := jwt.ParseSigned(w.issue(Claims{}, "api"), []jose.SignatureAlgorithm{jose.ES256})
	must.OK(t, err)
	var claims jwt.Claims
	if err := parsed.Claims(keys, &claims); err != nil || claims.Subject != "system:serviceaccount:ns:robot" {
		t.Errorf("%+v %v", claims, err)
	}
	if len(keys.Keys) != 2 || !keys.Keys[0].IsPublic() {
		t.Errorf("%d keys", len(keys.Keys))
	}
}

// BenchmarkAuthenticate is a request with a token that was seen before.
func BenchmarkAuthenticate(b *testing.B) {
	w := newWorld(b, newKey(b))
	w.put("serviceaccounts", "ns/robot", "u1", time.Time{})
	token := w.issue(Claims{}, "api")
	b.ReportAllocs()
	for b.Loop() {
		if _, ok, err := w.a.AuthenticateToken(context.Background(), token); !ok || err != nil {
			b.Fatal(err)
		}
	}
}
