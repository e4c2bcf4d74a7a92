package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	stdmaps "maps"
	"net/http"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/access/auth/token"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/proto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ruleChange is a plugin and an authorizer: while it decides, rules change.
type ruleChange struct {
	changes  int // how many of the next decisions see a change
	change   func()
	refuses  func() bool // after the change, if there is one
	decided  int
	forbids  bool
	consults admission.Rules
}

func (c *ruleChange) Handles(a *admission.Attributes) bool {
	return a.Resource.Resource == "configmaps"
}

func (c *ruleChange) Validate(_ context.Context, a *admission.Attributes) error {
	c.decided++
	a.Consulted(c.consults)
	refuse := c.refuses != nil && c.refuses()
	if c.changes > 0 {
		c.changes--
		c.change()
	}
	if refuse {
		return apierrors.NewForbidden(a.Resource.GroupResource(), a.Name, errors.New("by a rule"))
	}
	return nil
}

func (c *ruleChange) Authorize(context.Context, auth.Attributes) (auth.Decision, string, error) {
	if c.forbids {
		return auth.NoOpinion, "not any more", nil
	}
	return auth.Allow, "", nil
}

// TestRulesChange: a write is decided again, and authorized again, if a rule has changed
// between its decision and its place in the log; a refusal is not yesterday's either.
func TestRulesChange(t *testing.T) {
	c := &ruleChange{}
	e := newEnv(t, func(cfg *apiserver.Config) {
		cfg.Authorizer = c
		cfg.Admission = admission.NewChain([]admission.Named{{Name: "Changing", Plugin: c}}, nil)
	})
	merge := http.Header{"Content-Type": {"application/merge-patch+json"}}
	if w, answer := e.do("POST", maps, nil, `{"metadata":{"name":"old"}}`); w.StatusCode != 201 {
		t.Fatal(answer)
	}
	table := func(rule uint32) string {
		for i, r := range proto.Rules {
			if rule == 1<<i {
				return r.Table
			}
		}
		t.Fatal("no such rule")
		return ""
	}
	n := 0
	write := func(table, key string) {
		n++
		w := &proto.Write{Table: table, Key: key, Op: proto.Op_OP_PUT, Value: fmt.Appendf(nil, `{"n":%d}`, n)}
		if _, err := e.mem.Propose(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		name        string
		table, key  string
		changes     int
		consults    uint32
		revokes     bool
		refuses     int // so many changes end a refusal
		decided     int
		create, put int // codes
	}{
		{name: "nothing", decided: 1, create: 201, put: 200},
		{name: "a webhook", table: table(proto.RuleValidatingWebhooks), key: "w", changes: 1, decided: 2, create: 201, put: 200},
		{name: "a role", table: table(proto.RuleClusterRoles), key: "r", changes: 1, decided: 2, create: 201, put: 200},
		{name: "the namespace", table: "namespaces", key: "default", changes: 0, decided: 1, create: 201, put: 200},
		{name: "a role of the namespace", table: table(proto.RuleRoles), key: "default/r", changes: 2, decided: 3, create: 201, put: 200},
		{name: "a role of another namespace", table: table(proto.RuleRoles), key: "other/r", changes: 1, decided: 1, create: 201, put: 200},
		{name: "what was not consulted", table: table(proto.RulePriorityClasses), key: "p", changes: 1, decided: 1, create: 201, put: 200},
		{name: "what was consulted", table: table(proto.RulePriorityClasses), key: "p", consults: proto.RulePriorityClasses, changes: 1, decided: 2, create: 201, put: 200},
		{name: "a right that is revoked meanwhile", table: table(proto.RuleRoleBindings), key: "default/b", changes: 1, revokes: true, decided: 1, create: 403, put: 403},
		{name: "without an end", table: table(proto.RuleClusterRoles), key: "r", changes: 1000, decided: 16, create: 429, put: 429},
		{name: "a refusal", refuses: 1, decided: 1, create: 403, put: 403},
		// What is decided a second time is decided by what counted when the request was here already.
		{name: "a refusal while rules change without an end", table: table(proto.RuleClusterRoles), key: "r", changes: 1000, refuses: 1000, decided: 2, create: 403, put: 403},
		{name: "a refusal by a rule that goes", table: table(proto.RuleValidatingPolicies), key: "v", changes: 1, refuses: 1, decided: 2, create: 201, put: 200},
	} {
		for _, r := range []struct {
			method, path, body string
			header             http.Header
			code               int
		}{
			{"POST", maps, `{"metadata":{"name":"NAME"}}`, nil, x.create},
			{"POST", maps, `{"metadata":{"generateName":"g-"}}`, nil, x.create},
			{"PATCH", maps + "/old", `{"data":{"n":"NAME"}}`, merge, x.put},
			// A dry run need not be newer than its own beginning.
			{"PATCH", maps + "/old?dryRun=All", `{"data":{"n":"NAME-dry"}}`, merge, orElse(x.put, 429, 200)},
			{"POST", maps + "?dryRun=All", `{"metadata":{"name":"NAME-dry"}}`, nil, orElse(x.create, 429, 201)},
		} {
			t.Run(x.name+" "+r.method+r.path, func(t *testing.T) {
				n++
				made := 0
				*c = ruleChange{changes: x.changes, consults: admission.Rules(x.consults), change: func() {
					write(x.table, x.key)
					made++
					c.forbids = x.revokes
				}}
				if x.refuses > 0 {
					c.refuses = func() bool { return made < x.refuses }
				}
				header := http.Header{"Impersonate-User": {"bob"}} // whom roles allow what he may do
				stdmaps.Copy(header, r.header)
				w, answer := e.do(r.method, r.path, header, strings.ReplaceAll(r.body, "NAME", fmt.Sprint("n", n)))
				if w.StatusCode != r.code {
					t.Errorf("%d %s, want %d", w.StatusCode, clip(answer), r.code)
				}
				if dry := strings.Contains(r.path, "dryRun"); c.decided != x.decided && !dry || dry && c.decided != min(x.decided, 2) && !x.revokes {
					t.Errorf("decided %d times, want %d", c.decided, x.decided)
				}
			})
		}
	}
}

// orElse is other where v is what it stands for.
func orElse(v, what, other int) int {
	if v == what {
		return other
	}
	return v
}

// posting is a ruleChange of what is posted to objects, and changes nothing of its own.
type posting struct{ *ruleChange }

func (posting) Handles(a *admission.Attributes) bool {
	return a.Operation == admission.Create && a.Subresource != ""
}

// TestRulesChangeOfPosted: what a POST does to another object is done by the rules that allowed
// the POST, and they are asked again if they have changed by then.
func TestRulesChangeOfPosted(t *testing.T) {
	c := &ruleChange{}
	e := newEnv(t, func(cfg *apiserver.Config) {
		cfg.Authorizer = c
		cfg.Admission = admission.NewChain([]admission.Named{{Name: "Changing", Plugin: posting{c}}}, nil)
	})
	const path = "/api/v1/namespaces/default/pods"
	n := 0
	for _, p := range []struct{ path, body string }{
		{"/eviction", `{"metadata":{"name":"NAME"}}`},
		{"/eviction?dryRun=All", `{"metadata":{"name":"NAME"}}`},
		{"/binding", `{"metadata":{"name":"NAME"},"target":{"name":"node"}}`},
	} {
		for _, x := range []struct {
			name    string
			changes int
			revokes bool
			refuses bool
			decided int
			code    int
		}{
			{name: "nothing", decided: 1, code: 201},
			{name: "a role", changes: 1, decided: 2, code: 201},
			{name: "a right that is revoked meanwhile", changes: 1, revokes: true, decided: 1, code: 403},
			{name: "a rule that refuses", changes: 1, refuses: true, decided: 2, code: 403},
			{name: "without an end", changes: 1000, decided: 16, code: 429},
		} {
			t.Run(p.path+" "+x.name, func(t *testing.T) {
				*c = ruleChange{}
				n++
				name := fmt.Sprint("p", n)
				if w, answer := e.do("POST", path, nil, `{"metadata":{"name":"`+name+`"},"spec":{"containers":[{"name":"c","image":"i"}]}}`); w.StatusCode != 201 {
					t.Fatal(clip(answer))
				}
				made := 0
				*c = ruleChange{changes: x.changes, change: func() {
					made++
					w := &proto.Write{Table: "rolebindings.rbac.authorization.k8s.io", Key: fmt.Sprint("default/b", n), Op: proto.Op_OP_PUT, Value: fmt.Appendf(nil, `{"n":%d}`, made)}
					if _, err := e.mem.Propose(t.Context(), w); err != nil {
						t.Error(err)
					}
					c.forbids = x.revokes
				}}
				if x.refuses {
					c.refuses = func() bool { return made > 0 }
				}
				w, answer := e.do("POST", path+"/"+name+p.path, http.Header{"Impersonate-User": {"bob"}}, strings.ReplaceAll(p.body, "NAME", name))
				if w.StatusCode != x.code || c.decided != x.decided {
					t.Errorf("%d %s, decided %d times; want %d and %d", w.StatusCode, clip(answer), c.decided, x.code, x.decided)
				}
				*c = ruleChange{}
				w, answer = e.do("GET", path+"/"+name, nil, "")
				untouched := w.StatusCode == 200 && !strings.Contains(answer, "nodeName") && !strings.Contains(answer, "DisruptionTarget")
				if want := x.code != 201 || strings.Contains(p.path, "dryRun"); untouched != want {
					t.Errorf("it is untouched: %t; %d %s", untouched, w.StatusCode, clip(answer))
				}
			})
		}
	}
}

// known is a node that gives tokens.
type known struct{ noTokens }

func (known) Issue(token.Spec) (string, error) { return "a-token", nil }

// TestRulesChangeOfTokens: a token is not given by rules that have changed, although no entry
// in the log says so.
func TestRulesChangeOfTokens(t *testing.T) {
	c := &ruleChange{}
	e := newEnv(t, func(cfg *apiserver.Config) {
		cfg.Authorizer, cfg.Tokens = c, known{}
		cfg.Admission = admission.NewChain([]admission.Named{{Name: "Changing", Plugin: posting{c}}}, nil)
	})
	const path = "/api/v1/namespaces/default/serviceaccounts"
	if w, answer := e.do("POST", path, nil, `{"metadata":{"name":"robot"}}`); w.StatusCode != 201 {
		t.Fatal(clip(answer))
	}
	for _, revokes := range []bool{false, true} {
		*c = ruleChange{changes: 1, change: func() {
			w := &proto.Write{Table: "rolebindings.rbac.authorization.k8s.io", Key: "default/b", Op: proto.Op_OP_PUT, Value: fmt.Appendf(nil, `{"n":%t}`, revokes)}
			if _, err := e.mem.Propose(t.Context(), w); err != nil {
				t.Error(err)
			}
			c.forbids = revokes
		}}
		code := 201
		if revokes {
			code = 403
		}
		w, answer := e.do("POST", path+"/robot/token", http.Header{"Impersonate-User": {"bob"}}, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`)
		if w.StatusCode != code || strings.Contains(answer, "a-token") == revokes {
			t.Errorf("%d %s, want %d", w.StatusCode, clip(answer), code)
		}
	}
}

// TestRulesChangeOfMasks: who acts as a service account may do so by roles of its namespace, which
// need not be that of the object.
func TestRulesChangeOfMasks(t *testing.T) {
	c := &ruleChange{}
	e := newEnv(t, func(cfg *apiserver.Config) {
		cfg.Authorizer = c
		cfg.Admission = admission.NewChain([]admission.Named{{Name: "Changing", Plugin: c}}, nil)
	})
	for i, x := range []struct {
		user    string
		decided int
	}{{"system:serviceaccount:other:robot", 2}, {"system:serviceaccount:third:robot", 1}, {"other", 1}} {
		*c = ruleChange{changes: 1, change: func() {
			w := &proto.Write{Table: "rolebindings.rbac.authorization.k8s.io", Key: "other/b", Op: proto.Op_OP_PUT, Value: fmt.Appendf(nil, `{"n":%d}`, i)}
			if _, err := e.mem.Propose(t.Context(), w); err != nil {
				t.Error(err)
			}
		}}
		w, answer := e.do("POST", maps, http.Header{"Impersonate-User": {x.user}}, fmt.Sprintf(`{"metadata":{"name":"as-%d"}}`, i))
		if w.StatusCode != 201 || c.decided != x.decided {
			t.Errorf("as %s: %d %s, decided %d times, want %d", x.user, w.StatusCode, clip(answer), c.decided, x.decided)
		}
	}
}
