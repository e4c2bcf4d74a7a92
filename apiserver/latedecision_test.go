package apiserver_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/objects/builtin"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	rbacv1 "k8s.io/api/rbac/v1"
)

// lateRoles confirms everything, but only when the request is over.
type lateRoles struct{ builtin.Roles }

func (lateRoles) ConfirmNoEscalation(ctx context.Context, _ *auth.User, _ string, _ []rbacv1.PolicyRule) error {
	<-ctx.Done()
	return nil
}

// lateAuthorizer allows what the user has no role for, but only when the request is over.
type lateAuthorizer struct{ verb string }

func (l lateAuthorizer) Authorize(ctx context.Context, a auth.Attributes) (auth.Decision, string, error) {
	if a.Verb == l.verb {
		<-ctx.Done()
	}
	if a.Verb == "escalate" || a.Verb == "bind" {
		if a.Verb != l.verb {
			return auth.NoOpinion, "", nil
		}
	}
	return auth.Allow, "", nil
}

// proposals counts what reaches the log.
type proposals struct {
	apiserver.Store
	n atomic.Int64
}

func (p *proposals) Propose(ctx context.Context, w *proto.Write) (mvcc.Result, error) {
	p.n.Add(1)
	return p.Store.Propose(ctx, w)
}

// TestNothingIsWrittenOverTime: a permission that is confirmed only when the request is over
// does not reach the log. A client places the end where it likes, with ?timeout=.
func TestNothingIsWrittenOverTime(t *testing.T) {
	const group = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/"
	const rules = `"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]`
	ref := `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"there"}`
	subjects := `"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"bob"}]`
	for _, check := range []struct {
		name, verb string // of the authorizer that comes late; none: the comparison does
	}{{"the comparison of rules", ""}, {"escalate", "escalate"}, {"bind", "bind"}} {
		var store *proposals
		e := newEnv(t, func(c *apiserver.Config) {
			store = &proposals{Store: c.Store}
			c.Store = store
			c.Authorizer = lateAuthorizer{check.verb}
			if check.verb == "" {
				c.Roles = lateRoles{c.Roles}
			}
		})
		for path, body := range map[string]string{"roles": `{"metadata":{"name":"there"}}`, "rolebindings": `{"metadata":{"name":"there"},` + ref + `}`} {
			if w, answer := e.do(http.MethodPost, group+path, nil, body); w.StatusCode != http.StatusCreated {
				t.Fatalf("%s: %d %s", path, w.StatusCode, answer)
			}
		}
		for _, row := range []struct{ method, path, kind, body string }{
			{http.MethodPost, "roles", "", `{"metadata":{"name":"mine"},` + rules + `}`},
			{http.MethodPut, "roles/there", "", `{"metadata":{"name":"there"},` + rules + `}`},
			{http.MethodPatch, "roles/there", "application/merge-patch+json", `{` + rules + `}`},
			{http.MethodPatch, "roles/there", "application/json-patch+json", `[{"op":"add","path":"/rules","value":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}]`},
			{http.MethodPatch, "roles/new?fieldManager=m", "application/apply-patch+yaml", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"new"},` + rules + `}`},
			{http.MethodPost, "rolebindings", "", `{"metadata":{"name":"mine"},` + ref + `,` + subjects + `}`},
			{http.MethodPut, "rolebindings/there", "", `{"metadata":{"name":"there"},` + ref + `,` + subjects + `}`},
		} {
			if check.verb == "bind" && strings.HasPrefix(row.path, "roles/") || check.verb == "bind" && row.path == "roles" ||
				check.verb == "escalate" && strings.HasPrefix(row.path, "rolebindings") {
				continue // it is not asked for
			}
			t.Run(check.name+"/"+row.method+" "+row.path+" "+row.kind, func(t *testing.T) {
				header := http.Header{"Test-User": {"bob"}, "Content-Type": {"application/json"}}
				if row.kind != "" {
					header.Set("Content-Type", row.kind)
				}
				path := group + row.path + "?timeout=30ms"
				if strings.Contains(row.path, "?") {
					path = group + row.path + "&timeout=30ms"
				}
				before := store.n.Load()
				w, answer := e.do(row.method, path, header, row.body)
				if w.StatusCode != http.StatusGatewayTimeout {
					t.Errorf("answered %d %s", w.StatusCode, answer)
				}
				if n := store.n.Load() - before; n != 0 {
					t.Errorf("%d writes reached the log", n)
				}
			})
		}
	}
}
