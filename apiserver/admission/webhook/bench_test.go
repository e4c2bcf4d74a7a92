package webhook_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/upstream"
	"github.com/quorate/quorate/apiserver/admission/webhook"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
)

// BenchmarkOthers is what webhooks cost a write that none of them is asked about: because of
// their rules, or of their selectors.
func BenchmarkOthers(b *testing.B) {
	registry, err := kinds.Builtin()
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		n        int
		resource string
	}{
		{"none", 0, "configmaps"}, {"500 by rules", 500, "deployments"}, {"500 by selectors", 500, "configmaps"},
	} {
		b.Run(c.name, func(b *testing.B) {
			store := memstore.New()
			defer store.Close()
			put := func(table, key, value string) {
				if _, err := store.Propose(b.Context(), &proto.Write{Table: table, Key: key, Op: proto.Op_OP_PUT, Value: []byte(value)}); err != nil {
					b.Fatal(err)
				}
			}
			put("namespaces", "default", `{"metadata":{"name":"default","labels":{"kubernetes.io/metadata.name":"default"}}}`)
			for i := range c.n / 10 {
				var hooks []string
				for j := range 10 {
					hooks = append(hooks, fmt.Sprintf(`{"name":"w%d.example.com","matchPolicy":"Equivalent","rules":[{"apiGroups":["*"],"apiVersions":["v1"],"operations":["*"],"resources":[%q]}],
						"namespaceSelector":{"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"In","values":["other"]}]},"objectSelector":{}}`, j, c.resource))
				}
				put("validatingwebhookconfigurations.admissionregistration.k8s.io", fmt.Sprintf("c%d", i), fmt.Sprintf(`{"metadata":{"name":"c%d"},"webhooks":[%s]}`, i, strings.Join(hooks, ",")))
			}
			s := state.New(store)
			known := upstream.NewKinds(func() *kinds.Registry { return registry }, nil)
			v, err := webhook.NewValidating(webhook.Config{
				State: s, Kinds: known, Namespaces: upstream.NewNamespaces(s, func(context.Context) error { return nil }),
				Suspended: func(string, string) bool { return false }, Suspensions: func() int { return 0 },
				Resolve:    func(context.Context, string, string, int32) (string, error) { return "", nil },
				Authorizer: auth.Default(), Log: slog.New(slog.DiscardHandler),
			}, nil)
			if err != nil {
				b.Fatal(err)
			}
			var a admission.Attributes
			b.ReportAllocs()
			for b.Loop() {
				a.Reset()
				a.Operation, a.Namespace, a.Name, a.User, a.Interfaces = admission.Create, "default", "a", &auth.User{Name: "admin"}, known
				a.Kind.Version, a.Kind.Kind, a.Resource.Version, a.Resource.Resource = "v1", "ConfigMap", "v1", "configmaps"
				a.Object = map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "default"}}
				if v.Handles(&a) {
					if err := v.Validate(b.Context(), &a); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
