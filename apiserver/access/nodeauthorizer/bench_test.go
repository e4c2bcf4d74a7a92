package nodeauthorizer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/access/nodeauthorizer"
	"github.com/quorate/quorate/apiserver/access/rbac"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/view"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
	upstream "k8s.io/kubernetes/plugin/pkg/auth/authorizer/node"
)

const benchNodes, benchPods = 5_000, 150_000

// benchLog is a state in memory, without a log behind it.
type benchLog struct {
	b     testing.TB
	s     *mvcc.State
	index proto.RaftIndex
}

func (l *benchLog) State() *mvcc.State { return l.s }

func (l *benchLog) apply(entry []byte, err error) {
	if err != nil {
		l.b.Fatal(err)
	}
	l.index++
	if r, err := l.s.Apply(l.index, 1, entry); err != nil || r.Outcome != proto.Outcome_OUTCOME_APPLIED {
		l.b.Fatal(r.Outcome, err)
	}
}

// benchPod is the Pod of a Deployment: an account with its token and the cluster's certificate, a
// secret, two ConfigMaps, a claim.
func benchPod(i, version int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("namespace-%02d", i%50), Name: fmt.Sprintf("application-7d9c6b8f5d-%06d", i), Labels: map[string]string{"app": "application", "pod-template-hash": "7d9c6b8f5d"}}}
	p.Spec.NodeName, p.Spec.ServiceAccountName = nodeOf(i), "application"
	p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry-credentials"}}
	p.Spec.Containers = []corev1.Container{{Name: "main", Image: "registry.example.com/team/application:v1.2.3", Env: []corev1.EnvVar{
		{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secretOf(i)}, Key: "k"}}}}}}
	p.Spec.Volumes = []corev1.Volume{
		{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprintf("data-%06d", i)}}},
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "application-config"}}}},
		{Name: "kube-api-access-x2x4z", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}}}}}},
	}
	p.Status.Message = fmt.Sprint("version ", version)
	return p
}

func nodeOf(i int) string   { return fmt.Sprintf("node-%04d.example.com", i%benchNodes) }
func secretOf(i int) string { return fmt.Sprintf("application-secret-%06d", i) }

func (l *benchLog) writePod(i, version int) {
	p := benchPod(i, version)
	raw, err := json.Marshal(p)
	if err != nil {
		l.b.Fatal(err)
	}
	l.apply(proto.Encode(proto.KindWrite, &proto.Write{Table: "pods", Key: p.Namespace + "/" + p.Name, Op: proto.Op_OP_PUT, Uid: "b1a7d9f2-5f0c-4d38-9c1e-000000000000",
		Value: raw, Fields: []*proto.Attribute{{Name: "spec.nodeName", Value: p.Spec.NodeName}}}))
}

var benchState = sync.OnceValue(func() *benchLog {
	l := &benchLog{b: &testing.B{}, s: mvcc.New()}
	for i := range benchPods {
		l.writePod(i, 0)
	}
	// A tenth of the claims have a volume that names a secret.
	for i := 0; i < benchPods; i += 10 {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pvc-%06d", i)}}
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: fmt.Sprintf("namespace-%02d", i%50), Name: fmt.Sprintf("data-%06d", i)}
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "ceph", VolumeHandle: v.Name, NodeStageSecretRef: &corev1.SecretReference{Namespace: "ceph", Name: "ceph-node"}}
		raw, _ := json.Marshal(v)
		l.apply(proto.Encode(proto.KindWrite, &proto.Write{Table: "persistentvolumes", Key: v.Name, Op: proto.Op_OP_PUT, Uid: v.Name, Value: raw}))
	}
	l.s.Publish()
	return l
})

func (l *benchLog) authorizer(tb testing.TB) *nodeauthorizer.Authorizer {
	rules := rbac.NodeRules(false)
	return nodeauthorizer.New(nodeauthorizer.Config{Store: l, Pods: view.NewFieldIndex(l, "pods", "spec.nodeName"), Rules: rules, Log: slog.New(slog.DiscardHandler)})
}

func question(i int, resource, namespace, name string) auth.Attributes {
	return auth.Attributes{User: kubelet(nodeOf(i)), Verb: "get", APIVersion: "v1", Resource: resource, Namespace: namespace, Name: name, ResourceRequest: true}
}

func expect(b *testing.B, z auth.Authorizer, a auth.Attributes, want auth.Decision) {
	if d, reason, err := z.Authorize(context.Background(), a); d != want || err != nil {
		b.Fatalf("%+v: %v %q %v", a, d, reason, err)
	}
}

// BenchmarkAuthorize is one decision about a kubelet beside 5,000 nodes with 30 Pods each.
func BenchmarkAuthorize(b *testing.B) {
	l := benchState()
	l.b = b
	z := l.authorizer(b)
	own := func(i int) (string, string) { return fmt.Sprintf("namespace-%02d", i%50), secretOf(i) }
	for i := range benchNodes {
		ns, name := own(i)
		expect(b, z, question(i, "secrets", ns, name), auth.Allow)
	}
	run := func(name string, f func(b *testing.B, i int)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				f(b, i%benchNodes)
			}
		})
	}
	run("secret", func(b *testing.B, i int) {
		ns, name := own(i)
		expect(b, z, question(i, "secrets", ns, name), auth.Allow)
	})
	run("other's secret", func(b *testing.B, i int) {
		ns, name := own(i + 1)
		expect(b, z, question(i, "secrets", ns, name), auth.NoOpinion)
	})
	run("secret of a volume", func(b *testing.B, i int) { expect(b, z, question(i/10*10, "secrets", "ceph", "ceph-node"), auth.Allow) })
	run("other's secret of a volume", func(b *testing.B, i int) {
		expect(b, z, question(i/10*10, "secrets", "ceph", "ceph-other"), auth.NoOpinion)
	})
	run("volume", func(b *testing.B, i int) {
		expect(b, z, question(i/10*10, "persistentvolumes", "", fmt.Sprintf("pvc-%06d", i/10*10)), auth.Allow)
	})
	run("pod", func(b *testing.B, i int) {
		p := benchPod(i, 0)
		expect(b, z, question(i, "pods", p.Namespace, p.Name), auth.Allow)
	})
	// Between two decisions Pods have their status written; that time is not counted.
	for _, changed := range []int{1, 100} {
		b.Run(fmt.Sprintf("secret/changed=%d", changed), func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				i %= benchNodes
				b.StopTimer()
				l.b = b
				l.apply(proto.Encode(proto.KindCompact, &proto.Compact{Floor: uint64(l.s.Applied())}))
				for j := range changed {
					l.writePod((i+j*7)%benchPods, b.N)
				}
				l.s.Publish()
				ns, name := own(i)
				a := question(i, "secrets", ns, name)
				b.StartTimer()
				expect(b, z, a, auth.Allow)
			}
		})
	}
	// The first question about a node: its Pods are decoded.
	b.Run("secret/cold", func(b *testing.B) {
		b.ReportAllocs()
		z := l.authorizer(b)
		expect(b, z, question(benchNodes-1, "secrets", "x", "x"), auth.NoOpinion) // the indexes
		b.ResetTimer()
		for i := range b.N {
			i %= benchNodes - 1
			if i == 0 && b.N >= benchNodes {
				b.StopTimer()
				z = l.authorizer(b)
				expect(b, z, question(benchNodes-1, "secrets", "x", "x"), auth.NoOpinion)
				b.StartTimer()
			}
			ns, name := own(i)
			expect(b, z, question(i, "secrets", ns, name), auth.Allow)
		}
	})
	// The first question of all: the indexes of Pods and of volumes are made.
	b.Run("first", func(b *testing.B) {
		for range b.N {
			expect(b, l.authorizer(b), question(0, "secrets", "x", "x"), auth.NoOpinion)
		}
	})
}

// BenchmarkUpstream is the decision of upstream's graph of the same Pods.
func BenchmarkUpstream(b *testing.B) {
	graph := upstream.NewGraph()
	before := heap()
	for i := range benchPods {
		graph.AddPod(benchPod(i, 0))
	}
	b.Run("memory", func(b *testing.B) {
		b.ReportMetric(float64(heap()-before)/benchPods, "bytes/pod")
		b.ReportMetric(0, "ns/op")
	})
	rules := rbac.NodeRules(false)
	z := upstream.NewAuthorizer(graph, nodeidentifier.NewDefaultNodeIdentifier(), rules)
	for _, x := range []struct {
		name   string
		beside int
		want   authorizer.Decision
	}{{"secret", 0, authorizer.DecisionAllow}, {"other's secret", 1, authorizer.DecisionNoOpinion}} {
		b.Run(x.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				i %= benchNodes
				d, _, _ := z.Authorize(context.Background(), authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "system:node:" + nodeOf(i), Groups: []string{"system:nodes"}}, Verb: "get",
					Resource: "secrets", Namespace: fmt.Sprintf("namespace-%02d", (i+x.beside)%50), Name: secretOf(i + x.beside), ResourceRequest: true})
				if d != x.want {
					b.Fatal(d)
				}
			}
		})
	}
}

// BenchmarkMemory is what is kept when all kubelets have asked, beside the index that their lists of
// Pods need.
func BenchmarkMemory(b *testing.B) {
	l := benchState()
	z := l.authorizer(b)
	expect(b, z, question(benchNodes-1, "secrets", "x", "x"), auth.NoOpinion)
	before := heap()
	for i := range benchNodes {
		expect(b, z, question(i, "secrets", "x", "x"), auth.NoOpinion)
	}
	b.ReportMetric(float64(heap()-before)/benchPods, "bytes/pod")
	b.ReportMetric(0, "ns/op")
	runtime.KeepAlive(z)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
