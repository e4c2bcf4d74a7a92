package webhook

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/upstream"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
	registration "k8s.io/api/admissionregistration/v1"
)

// TestIndex: which writes the rules of a webhook match, asked twice: the second time it is known.
func TestIndex(t *testing.T) {
	registry, err := kinds.Builtin()
	must.OK(t, err)
	known := upstream.NewKinds(func() *kinds.Registry { return registry }, nil)
	for _, c := range []struct {
		rule  string // groups versions operations resources scope policy
		write string // group version operation resource[/subresource] namespace
		want  bool
	}{
		{"core v1 CREATE configmaps * Exact", "core v1 CREATE configmaps default", true},
		{"core v1 CREATE configmaps * Exact", "core v1 UPDATE configmaps default", false},
		{"core v1 CREATE configmaps * Exact", "core v1 CREATE secrets default", false},
		{"apps v1 CREATE configmaps * Exact", "core v1 CREATE configmaps default", false},
		{"* * * * * Exact", "core v1 DELETE configmaps default", true},
		{"* * * * * Exact", "core v1 UPDATE pods/status default", false},
		{"* * * */* * Exact", "core v1 UPDATE pods/status default", true},
		{"* * * pods/* * Exact", "core v1 CONNECT pods/exec default", true},
		{"* * * * Cluster Exact", "core v1 CREATE configmaps default", false},
		{"* * * * Cluster Exact", "core v1 CREATE namespaces default", true},
		{"* * * * Namespaced Exact", "core v1 CREATE namespaces default", false},
		{"* * * * Namespaced Exact", "core v1 CREATE nodes -", false},
		{"autoscaling v1 * horizontalpodautoscalers * Exact", "autoscaling v2 CREATE horizontalpodautoscalers default", false},
		{"autoscaling v1 * horizontalpodautoscalers * Equivalent", "autoscaling v2 CREATE horizontalpodautoscalers default", true},
		{"autoscaling v1 * horizontalpodautoscalers * -", "autoscaling v2 CREATE horizontalpodautoscalers default", false},
	} {
		group := func(s string) string { return strings.Replace(s, "core", "", 1) }
		r, w := strings.Fields(c.rule), strings.Fields(c.write)
		scope, policy := registration.ScopeType(r[4]), registration.MatchPolicyType(r[5])
		h := hook{rules: []registration.RuleWithOperations{{
			Operations: []registration.OperationType{registration.OperationType(r[2])},
			Rule:       registration.Rule{APIGroups: []string{group(r[0])}, APIVersions: []string{r[1]}, Resources: []string{r[3]}, Scope: &scope},
		}}, match: &policy}
		if policy == "-" {
			h.match = nil
		}
		a := &admission.Attributes{Operation: admission.Operation(w[2]), Namespace: strings.Trim(w[4], "-")}
		a.Resource.Group, a.Resource.Version = group(w[0]), w[1]
		a.Resource.Resource, a.Subresource, _ = strings.Cut(w[3], "/")
		if a.Resource.Resource == "namespaces" {
			a.Name, a.Namespace = a.Namespace, ""
		}
		x := newIndex(known, []hook{{}, h})
		for range 2 {
			if got := x.concerns(a); got != c.want {
				t.Errorf("%s: %s: %t", c.rule, c.write, got)
			}
		}
		if n := len(x.known.Load().writes); n != 1 {
			t.Errorf("%d writes are known", n)
		}
		before := x.known.Load()
		other := *registry
		registry = &other // other resources are served
		if x.concerns(a); x.known.Load() == before {
			t.Error("what is served counts no more")
		}
	}
	if (*index)(nil).concerns(&admission.Attributes{}) || (*index)(nil).asking() {
		t.Error("nothing concerns a write")
	}
}
