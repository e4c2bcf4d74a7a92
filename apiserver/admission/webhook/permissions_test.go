package webhook_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/upstream"
	"github.com/quorate/quorate/apiserver/admission/webhook"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
)

// TestPermissions: conditions that may ask for anybody's permissions make all roles count, and no
// others do.
func TestPermissions(t *testing.T) {
	store := memstore.New()
	defer func() { must.Close(t, store) }()
	registry, err := kinds.Builtin()
	must.OK(t, err)
	s := state.New(store)
	v, err := webhook.NewValidating(webhook.Config{
		State: s, Kinds: upstream.NewKinds(func() *kinds.Registry { return registry }, nil), Namespaces: upstream.NewNamespaces(s, func(context.Context) error { return nil }),
		Suspended: func(string, string) bool { return false }, Suspensions: func() int { return 0 },
		Resolve:    func(context.Context, string, string, int32) (string, error) { return "", nil },
		Authorizer: auth.Default(), Log: slog.New(slog.DiscardHandler),
	}, nil)
	must.OK(t, err)
	for _, c := range []struct {
		condition, ranges string
		rules             admission.Rules
	}{
		{"request.userInfo.username == 'a'", "[]", 0},
		{"authorizer.group('').resource('pods').namespace('other').check('list').allowed()",
			"[{roles.rbac.authorization.k8s.io  } {rolebindings.rbac.authorization.k8s.io  }]", 0xf},
		{"true", "[]", 0},
	} {
		value := fmt.Sprintf(`{"metadata":{"name":"w"},"webhooks":[{"name":"w.example.com","rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["DELETE"],"resources":["configmaps"]}],"namespaceSelector":{},"objectSelector":{"matchLabels":{"a":"b"}},"matchConditions":[{"name":"c","expression":%q}]}]}`, c.condition)
		w := &proto.Write{Table: "validatingwebhookconfigurations.admissionregistration.k8s.io", Key: "w", Op: proto.Op_OP_PUT, Value: []byte(value)}
		if _, err := store.Propose(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		a := &admission.Attributes{Operation: admission.Delete, Namespace: "default", Name: "a", User: &auth.User{Name: "admin"}}
		a.Resource.Version, a.Resource.Resource = "v1", "configmaps"
		if !v.Handles(a) {
			t.Error("there is no webhook")
		}
		if err := v.Validate(t.Context(), a); err != nil {
			t.Error(err)
		}
		if rules, ranges := a.Decided(); rules != c.rules || fmt.Sprint(ranges) != c.ranges {
			t.Errorf("%s: consulted %b %v, want %b %s", c.condition, rules, ranges, c.rules, c.ranges)
		}
	}
}
