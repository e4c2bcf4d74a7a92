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
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/auth"
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
