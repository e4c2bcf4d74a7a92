package plugins_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/plugins"
	"github.com/quorate/quorate/apiserver/admission/suspension"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// BenchmarkChain is what the default plugins cost a write that no rule of the cluster is about.
func BenchmarkChain(b *testing.B) {
	store := memstore.New()
	defer store.Close()
	w := &proto.Write{Table: "namespaces", Key: "default", Op: proto.Op_OP_PUT, Value: []byte(`{"metadata":{"name":"default"}}`)}
	if _, err := store.Propose(b.Context(), w); err != nil {
		b.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	registry, err := kinds.Available()
	if err != nil {
		b.Fatal(err)
	}
	chain, err := plugins.New(plugins.Config{
		Kinds: func() *kinds.Registry { return registry },
		Store: store, Authorizer: auth.Default(), Log: log, Suspensions: suspension.NewView(store, time.Now, log),
		Confirm: func(context.Context) error { return nil },
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx := b.Context()
	user := &auth.User{Name: "alice", Groups: []string{"system:authenticated"}}
	obj := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "default"}}
	var a admission.Attributes
	b.Run("configmap", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			a.Reset()
			a.Operation, a.Namespace, a.Name, a.User, a.Object = admission.Create, "default", "a", user, obj
			a.Kind, a.Resource = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
			if err := chain.Admit(ctx, &a); err != nil {
				b.Fatal(err)
			}
			if err := chain.Validate(ctx, &a); err != nil {
				b.Fatal(err)
			}
		}
	})
}
