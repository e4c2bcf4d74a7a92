package nodeauthorizer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/view"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	pvutil "k8s.io/kubernetes/pkg/api/v1/persistentvolume"
)

var (
	pods        = corev1.Resource("pods")
	volumes     = corev1.Resource("persistentvolumes")
	attachments = storagev1.SchemeGroupVersion.WithResource("volumeattachments").GroupResource()
	slices      = schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceslices"}
)

// Config of an Authorizer. All of it is required.
type Config struct {
	Store view.Store
	// Pods has the Pods by the field spec.nodeName.
	Pods *view.FieldIndex
	// Rules are those of the role system:node. They are not the stored ones: kubelets need no
	// binding.
	Rules []rbacv1.PolicyRule
	Log   *slog.Logger
}

// Authorizer decides what kubelets may do, by what is visible in this node's state. It is safe for
// concurrent use, and nothing runs in it.
type Authorizer struct {
	cfg   Config
	state *state.State
	// claimed has the PersistentVolumes that name secrets, by their claims.
	claimed *view.FieldIndex
	known   known
}

// New returns an Authorizer.
func New(cfg Config) *Authorizer {
	z := &Authorizer{cfg: cfg, state: state.New(cfg.Store)}
	z.claimed = view.NewIndex(cfg.Store, kinds.BuiltinTable(volumes), z.claimWithSecrets)
	return z
}

// Authorize implements auth.Authorizer. It has no opinion about others than kubelets.
func (z *Authorizer) Authorize(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
	node, ok := a.User.Node()
	if !ok {
		return auth.NoOpinion, "", nil
	}
	if node == "" {
		return auth.NoOpinion, fmt.Sprintf("unknown node for user %q", a.User.Name), nil
	}
	decided, reason := z.ofKubelet(node, a)
	return decided, reason, nil
}

// ofKubelet is apart from Authorize: a decision outlives its frame, and others than kubelets, which are
// nearly all, would have their attributes copied to the heap.
func (z *Authorizer) ofKubelet(node string, a auth.Attributes) (auth.Decision, string) {
	d := &decision{node: node, Attributes: &a, rules: z.cfg.Rules}
	d.related = func(of kind, namespace, name string) bool { return z.related(d, of, namespace, name) }
	return d.decide()
}

// related looks for a way from an object to the node.
func (z *Authorizer) related(d *decision, of kind, namespace, name string) bool {
	if strings.Contains(name, end) {
		return false // no object is called that, and references must not be mistaken for it
	}
	switch of {
	case slice, attachment, volume:
		if namespace != "" {
			return false // a review may ask for it
		}
	}
	switch of {
	case pod:
		return z.onNode(d, pods, namespace, name)
	case slice:
		return z.onNode(d, slices, "", name)
	case attachment:
		return z.attached(d, name)
	case volume:
		return z.mounted(d, name)
	}
	return z.named(d, of, namespace, name)
}

// follows notes an object that the permission follows from.
func (d *decision) follows(gr schema.GroupResource, key, uid string) {
	if d.Basis != nil {
		d.Basis.Follows(auth.Object{Table: kinds.BuiltinTable(gr), Key: key, UID: uid})
	}
}

// onNode looks for the node in the field of an object.
func (z *Authorizer) onNode(d *decision, gr schema.GroupResource, namespace, name string) bool {
	v := z.state.Version(gr, namespace, name)
	if v == nil {
		return false
	}
	if node, _ := v.Fields.Get(nodeNameField); node != d.node {
		return false
	}
	d.follows(gr, v.Key, v.UID)
	return true
}

func (z *Authorizer) attached(d *decision, name string) bool {
	v := z.state.Version(attachments, "", name)
	if v == nil {
		return false
	}
	var a storagev1.VolumeAttachment
	if !z.decode(v, attachments, &a) || a.Spec.NodeName != d.node {
		return false
	}
	d.follows(attachments, v.Key, v.UID)
	return true
}

// mounted looks for a Pod that uses the claim of a volume.
func (z *Authorizer) mounted(d *decision, name string) bool {
	v := z.state.Version(volumes, "", name)
	if v == nil {
		return false
	}
	var p corev1.PersistentVolume
	if !z.decode(v, volumes, &p) || p.Spec.ClaimRef == nil || !z.named(d, claim, p.Spec.ClaimRef.Namespace, p.Spec.ClaimRef.Name) {
		return false
	}
	d.follows(volumes, v.Key, v.UID)
	return true
}

// named looks for a Pod on the node that names an object in its namespace; a secret may be named by
// a volume of the Pod's, too.
func (z *Authorizer) named(d *decision, of kind, namespace, name string) bool {
	if name == "" {
		return false
	}
	needle := needle(of, name)
	// Most questions are about Pods that are known and have not changed: one look into the table
	// tells.
	for _, p := range z.known.peek(d.node) {
		if p.in(namespace) && p.names.contains(needle) && z.unchanged(p) {
			d.follows(pods, p.key, p.uid)
			return true
		}
	}
	all := z.podsOf(d.node)
	for _, p := range all {
		if p.in(namespace) && p.names.contains(needle) {
			d.follows(pods, p.key, p.uid)
			return true
		}
	}
	return of == secret && z.ofVolume(d, all, namespace, name)
}

// unchanged reports whether a Pod is there at the version that is known.
func (z *Authorizer) unchanged(p named) bool {
	namespace, name, _ := strings.Cut(p.key, "/")
	v := z.state.Version(pods, namespace, name)
	return v != nil && v.Revision == p.revision
}

// in reports whether a Pod is in a namespace.
func (p *named) in(namespace string) bool {
	return len(p.key) > len(namespace) && p.key[len(namespace)] == '/' && p.key[:len(namespace)] == namespace
}

// ofVolume looks for a volume that names a secret, whose claim one of the Pods uses.
func (z *Authorizer) ofVolume(d *decision, all []named, namespace, name string) bool {
	for _, p := range all {
		of, _, _ := strings.Cut(p.key, "/")
		if !p.names.each(claim, func(claim string) bool { return !z.claimNames(d, of+"/"+claim, namespace, name) }) {
			d.follows(pods, p.key, p.uid)
			return true
		}
	}
	return false
}

// claimNames reports whether a volume of a claim names a secret that a kubelet may see.
func (z *Authorizer) claimNames(d *decision, claim, namespace, name string) bool {
	page, _ := z.claimed.Range(claim, mvcc.Query{})
	for _, v := range page.Versions {
		var p corev1.PersistentVolume
		if !bytes.Contains(v.Value(), []byte(name)) || !z.decode(v, volumes, &p) {
			continue
		}
		if !pvutil.VisitPVSecretNames(&p, func(ns, secret string, kubelet bool) bool { return !kubelet || ns != namespace || secret != name }) {
			d.follows(volumes, v.Key, v.UID)
			return true
		}
	}
	return false
}

// claimWithSecrets is the claim of a volume that names secrets. It depends on the version alone.
func (z *Authorizer) claimWithSecrets(v *mvcc.Version) (string, bool) {
	// All of upstream's fields for it are called ...secretRef or secretName. Most volumes name
	// none, and to decode all of them would keep the first kubelet that asks waiting.
	if !bytes.Contains(v.Value(), []byte("ecret")) {
		return "", false
	}
	var p corev1.PersistentVolume
	if !z.decode(v, volumes, &p) || p.Spec.ClaimRef == nil {
		return "", false
	}
	if pvutil.VisitPVSecretNames(&p, func(_, _ string, kubelet bool) bool { return !kubelet }) {
		return "", false
	}
	return p.Spec.ClaimRef.Namespace + "/" + p.Spec.ClaimRef.Name, true
}

// decode reports whether an object can be read. One that cannot be relates nothing to anybody.
func (z *Authorizer) decode(v *mvcc.Version, gr schema.GroupResource, into any) bool {
	if err := json.Unmarshal(v.Value(), into); err != nil {
		z.cfg.Log.Error("a stored object cannot be read and gives no kubelet a permission", "resource", gr.String(), "key", v.Key, "err", err)
		return false
	}
	return true
}
