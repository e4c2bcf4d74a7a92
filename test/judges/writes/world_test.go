package writes

import (
	"fmt"
	"testing"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	"github.com/quorate/quorate/test/judges/random"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// there are the objects that plugins decide by, each with its version and kind.
const there = `
v1 Namespace {metadata: {name: default}}
v1 Namespace {metadata: {name: ending, deletionTimestamp: "2026-01-01T00:00:00Z", finalizers: [a]}, status: {phase: Terminating}}
v1 Namespace {metadata: {name: strict, labels: {pod-security.kubernetes.io/enforce: restricted, pod-security.kubernetes.io/warn: baseline}}}
v1 Namespace {metadata: {name: tidy, annotations: {scheduler.alpha.kubernetes.io/node-selector: "a=b,zone=x", scheduler.alpha.kubernetes.io/defaultTolerations: '[{"key":"a","operator":"Exists"}]', scheduler.alpha.kubernetes.io/tolerationsWhitelist: '[{"key":"a","operator":"Exists"},{"key":"b","operator":"Exists","effect":"NoSchedule"}]'}}}
v1 ServiceAccount {metadata: {name: default, namespace: default}, imagePullSecrets: [{name: pull}]}
v1 ServiceAccount {metadata: {name: a, namespace: default, annotations: {kubernetes.io/enforce-mountable-secrets: "true"}}, secrets: [{name: b}], automountServiceAccountToken: false}
v1 ServiceAccount {metadata: {name: default, namespace: strict}}
v1 ServiceAccount {metadata: {name: default, namespace: tidy}}
v1 Secret {metadata: {name: b, namespace: default}}
v1 LimitRange {metadata: {name: l, namespace: default}, spec: {limits: [{type: Container, default: {cpu: "1", memory: 1Gi}, defaultRequest: {cpu: 100m}, max: {cpu: "2"}, min: {memory: "1"}, maxLimitRequestRatio: {cpu: "2"}}, {type: Pod, max: {memory: 2Gi}, min: {cpu: 100m}}, {type: PersistentVolumeClaim, min: {storage: "1"}, max: {storage: 1Gi}}]}}
v1 LimitRange {metadata: {name: m, namespace: tidy}, spec: {limits: [{type: Container, defaultRequest: {cpu: 100m, example.com/a: "1"}, default: {example.com/a: "1"}, maxLimitRequestRatio: {memory: "2"}}]}}
scheduling.k8s.io/v1 PriorityClass {metadata: {name: a}, value: 5, preemptionPolicy: Never}
scheduling.k8s.io/v1 PriorityClass {metadata: {name: b}, value: 0, globalDefault: true}
scheduling.k8s.io/v1 PriorityClass {metadata: {name: system-node-critical}, value: 2000001000}
node.k8s.io/v1 RuntimeClass {metadata: {name: a}, handler: h, overhead: {podFixed: {cpu: 100m, memory: 1Gi}}, scheduling: {nodeSelector: {a: b}, tolerations: [{key: a, operator: Exists}]}}
node.k8s.io/v1 RuntimeClass {metadata: {name: b}, handler: h}
v1 Node {metadata: {name: a, labels: {topology.kubernetes.io/zone: z, topology.kubernetes.io/region: r}}, status: {declaredFeatures: [a], nodeInfo: {operatingSystem: linux}, allocatable: {cpu: "2", memory: 2Gi}}}
v1 Node {metadata: {name: b, labels: {topology.kubernetes.io/zone: z}}, status: {nodeInfo: {operatingSystem: windows}}}
v1 Pod {metadata: {name: "n", namespace: default, uid: u}, spec: {nodeName: a, serviceAccountName: default, containers: [{name: a, image: a}]}}
v1 Pod {metadata: {name: a, namespace: default, uid: v}, spec: {nodeName: b, serviceAccountName: a, containers: [{name: a, image: a}]}}
storage.k8s.io/v1 StorageClass {metadata: {name: a, annotations: {storageclass.kubernetes.io/is-default-class: "true"}, creationTimestamp: "2026-01-01T00:00:00Z"}, provisioner: p, allowVolumeExpansion: true}
storage.k8s.io/v1 StorageClass {metadata: {name: b, creationTimestamp: "2026-01-01T00:00:00Z"}, provisioner: p}
networking.k8s.io/v1 IngressClass {metadata: {name: a, annotations: {ingressclass.kubernetes.io/is-default-class: "true"}, creationTimestamp: "2026-01-01T00:00:00Z"}, spec: {controller: c}}
v1 PersistentVolumeClaim {metadata: {name: a, namespace: default}, spec: {volumeName: a}}
v1 PersistentVolume {metadata: {name: a, labels: {topology.kubernetes.io/zone: z}}}
`

// world is what is there, in both servers.
type world struct {
	store   *memstore.Store
	objects []runtime.Object // for upstream's clients
}

// newWorld reads the objects that are there.
func newWorld(t *testing.T, lines []string) *world {
	t.Helper()
	w := &world{store: memstore.New()}
	t.Cleanup(func() { _ = w.store.Close() })
	registry, err := kinds.Builtin()
	must.OK(t, err)
	for i, line := range lines {
		var version, kind string
		if _, err := fmt.Sscan(line, &version, &kind); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		gvk := schema.FromAPIVersionAndKind(version, kind)
		obj, err := scheme.Scheme.New(gvk)
		must.OK(t, err)
		body := line[len(version)+len(kind)+2:]
		if err := yaml.UnmarshalStrict([]byte(body), obj); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		obj.GetObjectKind().SetGroupVersionKind(gvk)
		w.objects = append(w.objects, obj)
		w.put(t, i, registry.LookupKind(gvk), random.Tree(t, obj))
	}
	return w
}

// put writes an object into the store.
func (w *world) put(t *testing.T, i int, res *kinds.Resource, obj tree.Object) {
	t.Helper()
	meta := tree.As(obj["metadata"])
	key := res.Key(tree.Text(meta, "namespace"), tree.Text(meta, "name"))
	labels, fields := res.Attributes(obj)
	write := &proto.Write{
		Table: res.Table(), Labels: labels, Fields: fields, Key: key, Op: proto.Op_OP_PUT, Value: text(obj), Uid: tree.Text(meta, "uid"),
		RequestId: fmt.Appendf(nil, "%0*d", proto.RequestIDSize, i),
	}
	if meta["deletionTimestamp"] != nil {
		write.Flags = proto.FlagTerminating
	}
	if _, err := w.store.Propose(t.Context(), write); err != nil {
		t.Fatalf("put %s %s: %v", res.Table(), key, err)
	}
}
