package nodeauthorizer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/access/nodeauthorizer"
	"github.com/quorate/quorate/apiserver/access/rbac"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	"github.com/quorate/quorate/raftstore/view"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
	upstream "k8s.io/kubernetes/plugin/pkg/auth/authorizer/node"
	"k8s.io/utils/ptr"
)

// both are a state here and upstream's graph of the same objects.
type both struct {
	t     testing.TB
	store *memstore.Store
	graph *upstream.Graph
	ours  *nodeauthorizer.Authorizer
	their authorizer.Authorizer
	n     int
}

func newBoth(t testing.TB) *both {
	store := memstore.New()
	t.Cleanup(func() { _ = store.Close() })
	rules := rbac.NodeRules(false)
	b := &both{t: t, store: store, graph: upstream.NewGraph()}
	b.ours = nodeauthorizer.New(nodeauthorizer.Config{
		Store: store, Pods: view.NewFieldIndex(store, "pods", "spec.nodeName"), Rules: rules, Log: slog.New(slog.DiscardHandler),
	})
	b.their = upstream.NewAuthorizer(b.graph, nodeidentifier.NewDefaultNodeIdentifier(), rules)
	return b
}

func (b *both) write(resource, key string, obj any, node string) {
	b.t.Helper()
	gr := schema.ParseGroupResource(resource)
	b.n++
	w := &proto.Write{Table: kinds.BuiltinTable(gr), Key: key, Op: proto.Op_OP_DELETE, RequestId: fmt.Appendf(nil, "%0*d", proto.RequestIDSize, b.n)}
	if obj != nil {
		raw, err := json.Marshal(obj)
		must.OK(b.t, err)
		w.Op, w.Value, w.Uid = proto.Op_OP_PUT, raw, "uid-"+key
		if node != "" {
			w.Fields = []*proto.Attribute{{Name: "spec.nodeName", Value: node}}
		}
	}
	if _, err := b.store.Propose(b.t.Context(), w); err != nil {
		b.t.Fatal(err)
	}
}

func (b *both) putPod(p *corev1.Pod) {
	b.write("pods", p.Namespace+"/"+p.Name, p, p.Spec.NodeName)
	if p.Spec.NodeName != "" {
		b.graph.AddPod(p)
	}
}

func (b *both) deletePod(namespace, name string) {
	b.write("pods", namespace+"/"+name, nil, "")
	b.graph.DeletePod(name, namespace)
}

func (b *both) putVolume(v *corev1.PersistentVolume) {
	b.write("persistentvolumes", v.Name, v, "")
	b.graph.AddPV(v)
}

func (b *both) deleteVolume(name string) {
	b.write("persistentvolumes", name, nil, "")
	b.graph.DeletePV(name)
}

// compare asks both.
func (b *both) compare(a auth.Attributes) auth.Decision {
	b.t.Helper()
	d, reason, err := b.ours.Authorize(context.Background(), a)
	their, why, failed := b.their.Authorize(context.Background(), authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: a.User.Name, Groups: a.User.Groups}, Verb: a.Verb, Namespace: a.Namespace, APIGroup: a.APIGroup, APIVersion: a.APIVersion,
		Resource: a.Resource, Subresource: a.Subresource, Name: a.Name, ResourceRequest: a.ResourceRequest, Path: a.Path, FieldSelectorRequirements: a.FieldSelector,
	})
	if (d == auth.Allow) != (their == authorizer.DecisionAllow) || (d == auth.Deny) != (their == authorizer.DecisionDeny) || reason != why || err != nil || failed != nil {
		b.t.Errorf("%+v\n%s: %v %q %v, upstream %v %q %v", a, a.User.Name, d, reason, err, their, why, failed)
	}
	return d
}

func kubelet(node string) *auth.User {
	return &auth.User{Name: "system:node:" + node, Groups: []string{auth.Nodes, auth.Authenticated}}
}

var (
	verbs     = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate", "request-serviceaccounts-token-audience"}
	resources = []string{"secrets", "configmaps", "persistentvolumeclaims", "persistentvolumes", "resourceclaims.resource.k8s.io", "volumeattachments.storage.k8s.io",
		"serviceaccounts", "leases.coordination.k8s.io", "csinodes.storage.k8s.io", "resourceslices.resource.k8s.io", "nodes", "pods", "podcertificaterequests.certificates.k8s.io",
		"services", "events", "events.events.k8s.io", "endpoints", "certificatesigningrequests.certificates.k8s.io", "csidrivers.storage.k8s.io", "runtimeclasses.node.k8s.io",
		"tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io", "clustertrustbundles.certificates.k8s.io", "deployments.apps", "namespaces", "users",
		"secrets.other", "pods.metrics.k8s.io"}
	parts     = []string{"", "status", "token", "eviction", "binding", "exec", "proxy", "approval", "ephemeralcontainers", "resize"}
	nodes     = []string{"a", "b", "c", "ab"}
	spaces    = []string{"x", "y"}
	names     = []string{"n0", "n1", "n2", "n", "n1-n2", "a", "b"}
	selectors = []fields.Requirements{
		nil, {{Field: "spec.nodeName", Operator: selection.Equals, Value: "a"}}, {{Field: "spec.nodeName", Operator: selection.NotEquals, Value: "a"}},
		{{Field: "spec.nodeName", Operator: selection.DoubleEquals, Value: "a"}}, {{Field: "spec.nodeName", Operator: selection.Equals, Value: "b"}},
		{{Field: "metadata.name", Operator: selection.Equals, Value: "a"}, {Field: "spec.nodeName", Operator: selection.Equals, Value: "a"}},
	}
)

func pick[T any](rng *rand.Rand, list []T) T { return list[rng.IntN(len(list))] }

// randomPod names objects in every way that there is.
func randomPod(rng *rand.Rand, namespace, name, node string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(fmt.Sprint(rng.Uint32()))}}
	p.Spec.NodeName = node
	one := func() string { return pick(rng, names[:4]) }
	local := func() *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: one()} }
	if rng.IntN(3) == 0 {
		p.Spec.ServiceAccountName = one()
	}
	if rng.IntN(8) == 0 {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	}
	if rng.IntN(4) == 0 {
		p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{*local()}
	}
	c := corev1.Container{Name: "c"}
	switch rng.IntN(8) {
	case 0:
		c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: *local()}}}
	case 1:
		c.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: *local()}}}
	case 2:
		c.Env = []corev1.EnvVar{{Name: "e", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: *local()}}}}
	case 3:
		c.Env = []corev1.EnvVar{{Name: "e", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: *local()}}}}
	}
	switch rng.IntN(3) {
	case 0:
		p.Spec.InitContainers = []corev1.Container{c}
	case 1:
		p.Spec.Containers = []corev1.Container{c}
	case 2:
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "c", Env: c.Env, EnvFrom: c.EnvFrom}}}
	}
	for i := range rng.IntN(3) {
		v := corev1.Volume{Name: pick(rng, []string{"n1", "n2", fmt.Sprint("v", i)})}
		switch rng.IntN(13) {
		case 0:
			v.Secret = &corev1.SecretVolumeSource{SecretName: one()}
		case 1:
			v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: *local()}
		case 2:
			v.Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: *local()}}, {ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: *local()}}}}
		case 3, 4, 5:
			v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: one()}
		case 6:
			v.Ephemeral = &corev1.EphemeralVolumeSource{}
		case 7:
			v.CSI = &corev1.CSIVolumeSource{Driver: "d", NodePublishSecretRef: local()}
		case 8:
			v.AzureFile = &corev1.AzureFileVolumeSource{SecretName: one()}
		case 9:
			v.CephFS = &corev1.CephFSVolumeSource{SecretRef: local()}
		case 10:
			v.ISCSI = &corev1.ISCSIVolumeSource{SecretRef: local()}
		case 11:
			v.RBD = &corev1.RBDVolumeSource{SecretRef: local()}
		case 12:
			v.FlexVolume = &corev1.FlexVolumeSource{SecretRef: local()}
		}
		p.Spec.Volumes = append(p.Spec.Volumes, v)
	}
	switch rng.IntN(5) {
	case 0:
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "r", ResourceClaimName: ptr.To(one())}}
	case 1:
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "r", ResourceClaimTemplateName: ptr.To("t")}}
		if rng.IntN(2) == 0 {
			p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "r", ResourceClaimName: ptr.To(one())}}
		}
	case 2:
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: one()}
	}
	return p
}

func randomVolume(rng *rand.Rand, name string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if rng.IntN(5) > 0 {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: pick(rng, spaces), Name: pick(rng, names)}
	}
	ref := func() *corev1.SecretReference {
		return &corev1.SecretReference{Namespace: pick(rng, append(spaces, "")), Name: pick(rng, names[:4])}
	}
	switch rng.IntN(7) {
	case 0:
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h", NodePublishSecretRef: ref()}
	case 1:
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h", NodeStageSecretRef: ref(), ControllerPublishSecretRef: ref()}
	case 2:
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h", ControllerExpandSecretRef: ref(), NodeExpandSecretRef: ref()}
	case 3:
		v.Spec.AzureFile = &corev1.AzureFilePersistentVolumeSource{SecretName: pick(rng, names[:4])}
	case 4:
		v.Spec.CephFS = &corev1.CephFSPersistentVolumeSource{SecretRef: ref()}
	case 5:
		v.Spec.ISCSI = &corev1.ISCSIPersistentVolumeSource{SecretRef: ref()}
	}
	return v
}

// TestAsUpstream asks upstream's authorizer, with its graph, and ours about random requests while
// Pods and volumes come, change and go.
func TestAsUpstream(t *testing.T) {
	allowed := map[string]int{}
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 14))
		b := newBoth(t)
		for i, node := range nodes[:3] {
			b.write("volumeattachments.storage.k8s.io", names[i], &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{NodeName: node}}, "")
			b.graph.AddVolumeAttachment(names[i], node)
			b.write("resourceslices.resource.k8s.io", names[i], &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{NodeName: &node}}, node)
			b.graph.AddResourceSlice(names[i], node)
		}
		b.write("resourceslices.resource.k8s.io", "n", &resourcev1.ResourceSlice{}, "")
		b.graph.AddResourceSlice("n", "")
		here := map[string]*corev1.Pod{}
		for range 400 {
			namespace, name := pick(rng, spaces), pick(rng, names)
			switch was := here[namespace+"/"+name]; {
			case rng.IntN(3) == 0:
				if v := pick(rng, names); rng.IntN(4) == 0 {
					b.deleteVolume(v)
				} else {
					b.putVolume(randomVolume(rng, v))
				}
			case was == nil:
				p := randomPod(rng, namespace, name, pick(rng, append(nodes, "")))
				here[namespace+"/"+name] = p
				b.putPod(p)
			case rng.IntN(4) == 0 && was.Spec.NodeName != "": // only its status
				p := was.DeepCopy()
				p.Status.Message = fmt.Sprint(rng.Uint32())
				here[namespace+"/"+name] = p
				b.putPod(p)
			default:
				delete(here, namespace+"/"+name)
				b.deletePod(namespace, name)
			}
			for range 100 {
				gr := schema.ParseGroupResource(pick(rng, resources[:12]))
				if rng.IntN(4) == 0 {
					gr = schema.ParseGroupResource(pick(rng, resources))
				}
				a := auth.Attributes{User: kubelet(pick(rng, nodes)), Verb: "get", APIGroup: gr.Group, APIVersion: "v1", Resource: gr.Resource,
					Namespace: pick(rng, append(spaces, "")), Name: pick(rng, append(names, "")), ResourceRequest: true}
				if rng.IntN(2) == 0 {
					a.Verb = pick(rng, verbs)
				}
				if rng.IntN(4) == 0 {
					a.Subresource = pick(rng, parts)
				}
				if rng.IntN(4) == 0 {
					a.FieldSelector = pick(rng, selectors)
				}
				if b.compare(a) == auth.Allow {
					allowed[gr.Resource]++
				}
			}
			if t.Failed() {
				return
			}
		}
	}
	for _, r := range []string{"secrets", "configmaps", "persistentvolumeclaims", "persistentvolumes", "resourceclaims", "volumeattachments", "serviceaccounts", "resourceslices", "nodes", "pods"} {
		if allowed[r] < 20 {
			t.Errorf("%s: %d requests were allowed", r, allowed[r])
		}
	}
}

// TestEveryRequestAsUpstream compares all that can be asked, without regard to what is related.
func TestEveryRequestAsUpstream(t *testing.T) {
	b := newBoth(t)
	b.putPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "n"}, Spec: corev1.PodSpec{NodeName: "a", ServiceAccountName: "n", ImagePullSecrets: []corev1.LocalObjectReference{{Name: "n"}}}})
	for _, u := range []*auth.User{kubelet("a"), kubelet("b"), kubelet(""), {Name: "system:node:a"}, {Name: "a", Groups: []string{auth.Nodes}}, {Name: "alice"}} {
		for _, resource := range resources {
			gr := schema.ParseGroupResource(resource)
			for _, verb := range verbs {
				for _, part := range parts {
					for _, namespace := range []string{"", "x", "kube-node-lease"} {
						for _, name := range []string{"", "n", "a"} {
							for _, selector := range selectors[:2] {
								b.compare(auth.Attributes{User: u, Verb: verb, APIGroup: gr.Group, APIVersion: "v1", Resource: gr.Resource, Subresource: part, Namespace: namespace, Name: name, ResourceRequest: true, FieldSelector: selector})
							}
						}
					}
				}
			}
		}
		for _, path := range []string{"/", "/metrics", "/livez", "/api"} {
			b.compare(auth.Attributes{User: u, Verb: "get", Path: path})
		}
	}
}

// basis collects what a permission follows from.
type basis []auth.Object

func (b *basis) Follows(from auth.Object) { *b = append(*b, from) }

// TestBasis: a permission names what has to be there.
func TestBasis(t *testing.T) {
	b := newBoth(t)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p"}, Spec: corev1.PodSpec{NodeName: "a", Volumes: []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}}}
	b.putPod(p)
	b.putVolume(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "x", Name: "c"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{NodePublishSecretRef: &corev1.SecretReference{Namespace: "y", Name: "s"}}}}})
	node := "a"
	b.write("resourceslices.resource.k8s.io", "l", &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{NodeName: &node}}, node)
	b.write("volumeattachments.storage.k8s.io", "t", &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{NodeName: node}}, "")
	of := func(resource, key string) auth.Object {
		return auth.Object{Table: kinds.BuiltinTable(schema.ParseGroupResource(resource)), Key: key, UID: "uid-" + key}
	}
	pod, volume := of("pods", "x/p"), of("persistentvolumes", "v")
	for _, x := range []struct {
		verb, resource, part, namespace, name string
		want                                  []auth.Object
	}{
		{"get", "pods", "", "x", "p", []auth.Object{pod}},
		{"update", "persistentvolumeclaims", "status", "x", "c", []auth.Object{pod}},
		{"get", "persistentvolumes", "", "", "v", []auth.Object{pod, volume}},
		{"get", "secrets", "", "y", "s", []auth.Object{volume, pod}},
		{"update", "resourceslices.resource.k8s.io", "", "", "l", []auth.Object{of("resourceslices.resource.k8s.io", "l")}},
		{"get", "volumeattachments.storage.k8s.io", "", "", "t", []auth.Object{of("volumeattachments.storage.k8s.io", "t")}},
		{"create", "pods", "", "x", "", nil},
	} {
		gr := schema.ParseGroupResource(x.resource)
		var got basis
		d, _, _ := b.ours.Authorize(t.Context(), auth.Attributes{User: kubelet("a"), Verb: x.verb, APIGroup: gr.Group, Resource: gr.Resource, Subresource: x.part, Namespace: x.namespace, Name: x.name, ResourceRequest: true, Basis: &got})
		if d != auth.Allow || !slices.Equal(got, x.want) {
			t.Errorf("%s %s %s: %v %v", x.verb, x.resource, x.name, d, got)
		}
	}
}

// TestVolumesOfOneClaim: any of the volumes that say that they are a claim's may name the secret.
func TestVolumesOfOneClaim(t *testing.T) {
	b := newBoth(t)
	b.putPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p"}, Spec: corev1.PodSpec{NodeName: "a", Volumes: []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}}})
	for _, name := range []string{"v0", "v1", "v2"} {
		b.putVolume(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "x", Name: "c"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{NodePublishSecretRef: &corev1.SecretReference{Namespace: "y", Name: "secret-of-" + name}}}}})
	}
	for _, name := range []string{"v0", "v1", "v2", "v3"} {
		a := auth.Attributes{User: kubelet("a"), Verb: "get", Resource: "secrets", Namespace: "y", Name: "secret-of-" + name, ResourceRequest: true}
		if got := b.compare(a) == auth.Allow; got != (name != "v3") {
			t.Errorf("%s: allowed %v", a.Name, got)
		}
	}
}

// TestOthersCostNothing: requests of others than kubelets allocate nothing here.
func TestOthersCostNothing(t *testing.T) {
	b := newBoth(t)
	a := auth.Attributes{User: &auth.User{Name: "alice", Groups: []string{auth.Authenticated}}, Verb: "get", Resource: "secrets", Namespace: "x", Name: "n", ResourceRequest: true}
	if n := testing.AllocsPerRun(100, func() {
		if d, _, err := b.ours.Authorize(t.Context(), a); d != auth.NoOpinion || err != nil {
			t.Fatal(d, err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestWhileWriting: kubelets ask at once while Pods and volumes come, change and go. What is always on one
// node is always that one's, and never another's.
func TestWhileWriting(t *testing.T) {
	b := newBoth(t)
	on := func(name, node, volume, message string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name}, Status: corev1.PodStatus{Message: message}, Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: name, ImagePullSecrets: []corev1.LocalObjectReference{{Name: name}},
			Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volume}}}},
		}}
	}
	for _, node := range nodes {
		b.putPod(on("of-"+node, node, "c-"+node, ""))
		b.putVolume(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "x", Name: "c-" + node},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{NodePublishSecretRef: &corev1.SecretReference{Namespace: "y", Name: "v-" + node}}}}})
	}
	var done atomic.Bool
	var wg sync.WaitGroup
	for i := range 4 {
		rng := rand.New(rand.NewPCG(uint64(i), 17))
		wg.Go(func() {
			for !done.Load() {
				asks, of := pick(rng, nodes), pick(rng, nodes)
				want := auth.NoOpinion
				if asks == of {
					want = auth.Allow
				}
				for _, a := range []auth.Attributes{
					{Resource: "secrets", Namespace: "x", Name: "of-" + of}, {Resource: "secrets", Namespace: "y", Name: "v-" + of}, {Resource: "pods", Namespace: "x", Name: "of-" + of},
					{Resource: "persistentvolumes", Name: of}, {Resource: "serviceaccounts", Namespace: "x", Name: "of-" + of},
				} {
					a.User, a.Verb, a.ResourceRequest, a.Basis = kubelet(asks), "get", true, &basis{}
					if d, reason, err := b.ours.Authorize(context.Background(), a); d != want || err != nil {
						t.Errorf("%s asks for %s %s: %v %q %v", asks, a.Resource, a.Name, d, reason, err)
						return
					}
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 17))
	for i := range 400 {
		node, name := pick(rng, nodes), pick(rng, names)
		switch i % 4 {
		case 0:
			b.putPod(on("of-"+node, node, "c-"+node, fmt.Sprint(i)))
		case 1:
			b.putPod(on(name, node, pick(rng, []string{"n", "c-none"}), fmt.Sprint(i)))
		case 2:
			b.deletePod("x", name)
		case 3:
			b.putVolume(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "w" + name}, Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "x", Name: "c-none"},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{NodePublishSecretRef: &corev1.SecretReference{Namespace: "z", Name: name}}}}})
		}
	}
	done.Store(true)
	wg.Wait()
}
