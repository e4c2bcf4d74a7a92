package plugins_test

import (
	"context"
	"log/slog"
	"maps"
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
	utiljson "k8s.io/apimachinery/pkg/util/json"
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

const benchedPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-7d4b9c","namespace":"default","uid":"u","labels":{"app":"web","pod-template-hash":"7d4b9c"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-7d4b9c","uid":"x","controller":true,"blockOwnerDeletion":true}]},
"spec":{"containers":[{"name":"c","image":"registry.example.com/web:1.2","imagePullPolicy":"IfNotPresent","ports":[{"containerPort":8080,"protocol":"TCP"}],"env":[{"name":"A","value":"b"},{"name":"C","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}}],"resources":{"requests":{"cpu":"100m","memory":"64Mi"},"limits":{"memory":"128Mi"}},"livenessProbe":{"httpGet":{"path":"/","port":8080,"scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","volumeMounts":[{"name":"data","mountPath":"/data"}]}],"volumes":[{"name":"data","emptyDir":{}}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","securityContext":{},"schedulerName":"default-scheduler","enableServiceLinks":true},"status":{"phase":"Pending"}}`

// BenchmarkPlugin is what single plugins cost a Pod: those that are written for trees, and one of upstream
// that decides on its internal type, as a mutator and as a validator.
func BenchmarkPlugin(b *testing.B) {
	store := memstore.New()
	defer store.Close()
	for _, name := range []string{"Priority", "DefaultTolerationSeconds", "AlwaysPullImages", "LimitPodHardAntiAffinityTopology"} {
		b.Run(name, func(b *testing.B) {
			p := plugins.NewEnv(b, store, nil, nil).Must(b, name, "").Plugin
			var obj map[string]any
			if err := utiljson.Unmarshal([]byte(benchedPod), &obj); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				a := admission.Attributes{Operation: admission.Create, Namespace: "default", Name: "web-7d4b9c", Object: maps.Clone(obj)}
				a.Kind, a.Resource = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, schema.GroupVersionResource{Version: "v1", Resource: "pods"}
				var err error
				if m, ok := p.(admission.Mutator); ok {
					err = m.Admit(b.Context(), &a)
				} else {
					err = p.(admission.Validator).Validate(b.Context(), &a)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
