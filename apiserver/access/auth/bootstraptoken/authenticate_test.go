package bootstraptoken

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	corev1 "k8s.io/api/core/v1"
)

const (
	id     = "abcdef"
	secret = "0123456789abcdef"
)

type world struct {
	t   *testing.T
	mem *memstore.Store
	a   *Authenticator
	n   int
}

var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func newWorld(t *testing.T) *world {
	w := &world{t: t, mem: memstore.New()}
	t.Cleanup(func() { _ = w.mem.Close() })
	w.a = New(w.mem, func() time.Time { return now })
	return w
}

func (w *world) propose(write *proto.Write) {
	w.t.Helper()
	w.n++
	write.RequestId = fmt.Appendf(nil, "%016d", w.n)
	if _, err := w.mem.Propose(w.t.Context(), write); err != nil {
		w.t.Fatal(err)
	}
}

// put stores the Secret of a token with changes; an empty value takes the entry away.
func (w *world) put(at string, kind corev1.SecretType, change map[string]string, flags uint32) {
	w.t.Helper()
	text := map[string]string{"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true"}
	maps.Copy(text, change)
	s := corev1.Secret{Type: kind, Data: map[string][]byte{}}
	for k, v := range text {
		if v != "" {
			s.Data[k] = []byte(v)
		}
	}
	b, err := json.Marshal(s)
	must.OK(w.t, err)
	w.propose(&proto.Write{Op: proto.Op_OP_PUT, Table: table, Key: at, Uid: "1", Value: b, Flags: flags})
}

func (w *world) user(token string) *auth.User {
	w.t.Helper()
	u, why := w.authenticate(token)
	if why != "" {
		w.t.Fatalf("%q: %s", token, why)
	}
	return u
}

// authenticate returns the user of a token, and the error that says why it does not hold.
func (w *world) authenticate(token string) (u *auth.User, why string) {
	w.t.Helper()
	u, ok, err := w.a.AuthenticateToken(w.t.Context(), token)
	if ok != (u != nil) || ok && err != nil {
		w.t.Fatalf("%q: %v, %v, %v", token, u, ok, err)
	}
	if err != nil {
		why = err.Error()
	}
	return u, why
}

const bootstrap = corev1.SecretType("bootstrap.kubernetes.io/token")

// TestTokens are upstream's rules for the Secret of a token that is presented as it is.
func TestTokens(t *testing.T) {
	for _, x := range []struct {
		name   string
		at     string // default: that of the token
		kind   corev1.SecretType
		change map[string]string
		flags  uint32
		groups string // "": refused
		why    string // what is said of it
	}{
		{name: "usual", groups: "system:bootstrappers"},
		{name: "groups", change: map[string]string{"auth-extra-groups": "system:bootstrappers:b,system:bootstrappers:a,system:bootstrappers:b"}, groups: "system:bootstrappers system:bootstrappers:a system:bootstrappers:b"},
		{name: "group of administrators", change: map[string]string{"auth-extra-groups": "system:masters"}, why: "must match"},
		{name: "group with a blank", change: map[string]string{"auth-extra-groups": "system:bootstrappers:a, system:bootstrappers:b"}, why: "must match"},
		{name: "not for authentication", change: map[string]string{"usage-bootstrap-authentication": ""}, why: "not for authentication"},
		{name: "for it in other words", change: map[string]string{"usage-bootstrap-authentication": "True"}, why: "not for authentication"},
		{name: "another type", kind: corev1.SecretTypeOpaque},
		{name: "another namespace", at: "default/bootstrap-token-" + id},
		{name: "another id", change: map[string]string{"token-id": "abcdeg"}, why: "named for another id"},
		{name: "another secret", change: map[string]string{"token-secret": strings.Repeat("a", 16)}},
		{name: "a secret that goes on", change: map[string]string{"token-secret": secret + "0"}},
		{name: "no secret", change: map[string]string{"token-secret": ""}},
		{name: "later", change: map[string]string{"expiration": "2026-06-01T12:00:01Z"}, groups: "system:bootstrappers"},
		{name: "later, elsewhere", change: map[string]string{"expiration": "2026-06-01T10:00:01-02:00"}, groups: "system:bootstrappers"},
		{name: "now", change: map[string]string{"expiration": "2026-06-01T12:00:00Z"}, why: "has expired"},
		{name: "no date", change: map[string]string{"expiration": "never"}, why: "has expired"},
		{name: "a date without a zone", change: map[string]string{"expiration": "2027-06-01T12:00:00"}, why: "has expired"},
		{name: "a far year", change: map[string]string{"expiration": "10000-06-01T12:00:00Z"}, why: "has expired"},
		{name: "being deleted", flags: proto.FlagTerminating},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(t)
			if x.at == "" {
				x.at = key(id)
			}
			if x.kind == "" {
				x.kind = bootstrap
			}
			w.put(x.at, x.kind, x.change, x.flags)
			u, why := w.authenticate(id + "." + secret)
			switch {
			case !strings.Contains(why, x.why), x.why == "" && why != "":
				t.Errorf("%q, want %q", why, x.why)
			case u == nil && x.groups != "":
				t.Error("refused")
			case u != nil && (strings.Join(u.Groups, " ") != x.groups || u.Name != "system:bootstrap:"+id):
				t.Errorf("%s %v, want %s", u.Name, u.Groups, x.groups)
			}
		})
	}
}

// TestForms: nothing but the form of a token leads to a Secret.
func TestForms(t *testing.T) {
	w := newWorld(t)
	w.put(key(id), bootstrap, nil, 0)
	for _, token := range []string{
		"", ".", id, id + ".", "." + secret, id + "." + secret + "0", id + "." + secret[1:], "ABCDEF." + secret, "../../." + secret, "abcde/." + secret,
		id + "." + secret + "\n", " " + id + "." + secret, id + "." + strings.ToUpper(secret), "abcdeg." + secret, strings.Repeat(id+"."+secret, 1<<16),
	} {
		if u := w.user(token); u != nil {
			t.Errorf("%.40q is %s", token, u.Name)
		}
	}
	if w.user(id+"."+secret) == nil {
		t.Error("the token itself is refused")
	}
}

// TestCredential: what was decided by a token is decided again after any change of its Secret, and holds
// as long as the user is the same.
func TestCredential(t *testing.T) {
	w := newWorld(t)
	w.put(key(id), bootstrap, nil, 0)
	c := w.user(id + "." + secret).Credential
	if got := c.Objects(); len(got) != 1 || got[0] != (auth.Object{Table: "secrets", Key: "kube-system/bootstrap-token-abcdef"}) {
		t.Errorf("it follows from %v", got)
	}
	for _, x := range []struct {
		change map[string]string
		holds  bool
	}{
		{map[string]string{"description": "of no account"}, true},
		{map[string]string{"auth-extra-groups": "system:bootstrappers:other"}, false},
		{map[string]string{"token-secret": strings.Repeat("b", 16)}, false},
		{map[string]string{"expiration": "2020-01-01T00:00:00Z"}, false},
		{nil, true},
	} {
		w.put(key(id), bootstrap, x.change, 0)
		if err := c.Holds(t.Context()); (err == nil) != x.holds {
			t.Errorf("%v: %v", x.change, err)
		}
	}
	w.propose(&proto.Write{Op: proto.Op_OP_DELETE, Table: table, Key: key(id)})
	if err := c.Holds(t.Context()); err == nil {
		t.Error("it holds without its Secret")
	}
}
