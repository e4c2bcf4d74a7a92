// Package noderestriction is upstream's plugin NodeRestriction: a kubelet writes its own Node, lease,
// CSINode and ResourceSlices, mirror Pods on its node, the status and the end of Pods there, and has
// tokens made of these Pods alone. What the node authorizer lets kubelets do is only safe with it.
//
// Its decisions and words are those of plugin/pkg/admission/noderestriction. It decides on trees,
// because kubelets write the status of Pods and Nodes all the time; where a refusal shows values, they
// are decoded for that. Where upstream asks a lister for the object that is written, the version is
// looked at on whose being the newest the write depends.
package noderestriction

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/apis/certificates"
)

var (
	podsResource  = corev1.Resource("pods")
	nodesResource = corev1.Resource("nodes")
)

// Plugin is NodeRestriction.
type Plugin struct {
	state      *state.State
	authorizer auth.Authorizer
}

// New returns the plugin. authorizer is asked whether a kubelet may have tokens for others than its
// Pods ask for.
func New(s *state.State, authorizer auth.Authorizer) *Plugin { return &Plugin{s, authorizer} }

// Handles implements admission.Plugin.
func (*Plugin) Handles(a *admission.Attributes) bool {
	if a.Operation == admission.Connect {
		return false
	}
	_, kubelet := a.User.Node()
	return kubelet
}

// Admit implements admission.Mutator: it changes nothing, and refuses where upstream does, before
// anything else looks at the object.
func (p *Plugin) Admit(ctx context.Context, a *admission.Attributes) error {
	node, kubelet := a.User.Node()
	if !kubelet {
		return nil
	}
	if node == "" {
		return a.Forbidden(fmt.Errorf("could not determine node from user %q", a.User.Name))
	}
	switch a.Resource.GroupResource() {
	case podsResource:
		switch a.Subresource {
		case "":
			return p.pod(node, a)
		case "status":
			return p.podStatus(node, a)
		case "eviction":
			return p.eviction(node, a)
		}
		return a.Forbidden(fmt.Errorf("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", a.Subresource))
	case nodesResource:
		return p.node(node, a)
	case schema.GroupResource{Resource: "persistentvolumeclaims"}:
		if a.Subresource == "status" {
			return p.claimStatus(node, a)
		}
		return a.Forbidden(errors.New("may only update PVC status"))
	case schema.GroupResource{Resource: "serviceaccounts"}:
		if a.Operation == admission.Create && a.Subresource == "token" {
			return p.token(ctx, node, a)
		}
	case schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}:
		if a.Namespace != corev1.NamespaceNodeLease {
			return a.Forbidden(fmt.Errorf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease))
		}
		if nameOf(a) != node {
			return a.Forbidden(errors.New("can only access node lease with the same name as the requesting node"))
		}
	case schema.GroupResource{Group: "storage.k8s.io", Resource: "csinodes"}:
		if nameOf(a) != node {
			return a.Forbidden(errors.New("can only access CSINode with the same name as the requesting node"))
		}
	case schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceslices"}:
		return p.slice(node, a)
	case schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}:
		return p.signingRequest(node, a)
	case schema.GroupResource{Group: "certificates.k8s.io", Resource: "podcertificaterequests"}:
		return a.Forbidden(errors.New("PodCertificateRequest feature gate is disabled"))
	}
	return nil
}

// nameOf is the name of what is written; that of a new object stands in it.
func nameOf(a *admission.Attributes) string {
	if a.Operation == admission.Create {
		return tree.Text(a.Meta(), "name")
	}
	return a.Name
}

func (p *Plugin) slice(node string, a *admission.Attributes) error {
	slice, verb := a.Object, "create"
	switch a.Operation {
	case admission.Create:
	case admission.Delete: // also of a collection, one by one
		slice, verb = a.Old, "delete"
	default:
		return nil // the node authorizer has looked at the stored one, and the field does not change
	}
	if name, ok := tree.As(slice["spec"])["nodeName"].(string); !ok || name != node {
		return a.Forbidden(fmt.Errorf("can only %s ResourceSlice with the same NodeName as the requesting node", verb))
	}
	return nil
}

// signingRequest lets a kubelet ask for certificates of its own name. The signer looks at the rest.
func (p *Plugin) signingRequest(node string, a *admission.Attributes) error {
	if a.Operation != admission.Create {
		return nil
	}
	spec := tree.As(a.Object["spec"])
	switch tree.Text(spec, "signerName") {
	case certificates.KubeletServingSignerName, certificates.KubeAPIServerClientKubeletSignerName:
	default:
		return nil
	}
	raw, err := base64.StdEncoding.DecodeString(tree.Text(spec, "request"))
	if err != nil {
		return a.Forbidden(fmt.Errorf("unable to parse csr: %w", err))
	}
	request, err := certificates.ParseCSR(raw)
	if err != nil {
		return a.Forbidden(fmt.Errorf("unable to parse csr: %w", err))
	}
	if request.Subject.CommonName != "system:node:"+node {
		return a.Forbidden(fmt.Errorf("can only create a node CSR with CN=system:node:%s", node))
	}
	return nil
}

// looked notes an object that the decision follows from. Where it decides for the kubelet, what counts is
// that it is there; a refusal may be another one with any change.
func looked(a *admission.Attributes, gr schema.GroupResource, namespace, name string, v *mvcc.Version, allowed bool) {
	r := admission.Range{Table: kinds.BuiltinTable(gr), Prefix: name}
	if namespace != "" {
		r.Prefix = namespace + "/" + name
	}
	if allowed {
		r.UID = v.UID
	}
	a.ConsultedRange(r)
}

// notFound has the resource in the singular, as upstream's listers say it.
func notFound(resource, name string) error { return notFoundIn("", resource, name) }

func notFoundIn(group, resource, name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Group: group, Resource: resource}, name)
}
