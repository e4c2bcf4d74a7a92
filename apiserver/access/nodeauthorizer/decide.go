package nodeauthorizer

import (
	"fmt"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/access/rbac"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
)

// kind is of an object that a node may be related to.
type kind byte

const (
	secret        kind = 's'
	configMap     kind = 'c'
	claim         kind = 'v' // PersistentVolumeClaim
	resourceClaim kind = 'r'
	account       kind = 'a' // ServiceAccount
	volume        kind = 'p' // PersistentVolume
	attachment    kind = 't'
	slice         kind = 'l'
	pod           kind = 'o'
)

const nodeNameField = "spec.nodeName"

// decision is one request of a kubelet. What it says, and in which words, is upstream's.
type decision struct {
	node string
	*auth.Attributes
	// rules allow what is not told apart by objects.
	rules []rbacv1.PolicyRule
	// related reports whether an object belongs to the node.
	related func(of kind, namespace, name string) bool
}

func allow() (auth.Decision, string) { return auth.Allow, "" }

func refuse(format string, args ...any) (auth.Decision, string) {
	return auth.NoOpinion, fmt.Sprintf(format, args...)
}

func (d *decision) decide() (auth.Decision, string) {
	if d.ResourceRequest {
		switch (schema.GroupResource{Group: d.APIGroup, Resource: d.Resource}) {
		case schema.GroupResource{Resource: "secrets"}:
			return d.read(secret)
		case schema.GroupResource{Resource: "configmaps"}:
			return d.read(configMap)
		case schema.GroupResource{Resource: "persistentvolumeclaims"}:
			if d.Subresource == "status" {
				return d.claimStatus()
			}
			return d.get(claim)
		case schema.GroupResource{Resource: "persistentvolumes"}:
			return d.get(volume)
		case schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}:
			return d.get(resourceClaim)
		case schema.GroupResource{Group: "storage.k8s.io", Resource: "volumeattachments"}:
			return d.get(attachment)
		case schema.GroupResource{Resource: "serviceaccounts"}:
			return d.account()
		case schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}:
			return d.lease()
		case schema.GroupResource{Group: "storage.k8s.io", Resource: "csinodes"}:
			return d.csiNode()
		case schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceslices"}:
			return d.slice()
		case schema.GroupResource{Resource: "nodes"}:
			return d.ownNode()
		case schema.GroupResource{Resource: "pods"}:
			return d.pod()
		case schema.GroupResource{Group: "certificates.k8s.io", Resource: "podcertificaterequests"}:
			return auth.NoOpinion, "" // PodCertificateRequest is off
		}
	}
	if rbac.Allow(d.rules, d.Attributes) {
		return allow()
	}
	return auth.NoOpinion, ""
}

// read lets single objects be read that the node is related to.
func (d *decision) read(of kind) (auth.Decision, string) {
	switch {
	case d.Verb != "get" && d.Verb != "list" && d.Verb != "watch":
		return refuse("can only read resources of this type")
	case d.Subresource != "":
		return refuse("cannot read subresource")
	case d.Namespace == "":
		return refuse("can only read namespaced object of this type")
	}
	return d.isRelated(of)
}

// get is read without list and watch.
func (d *decision) get(of kind) (auth.Decision, string) {
	switch {
	case d.Verb != "get":
		return refuse("can only get individual resources of this type")
	case d.Subresource != "":
		return refuse("cannot get subresource")
	}
	return d.isRelated(of)
}

func (d *decision) claimStatus() (auth.Decision, string) {
	if d.Verb != "update" && d.Verb != "patch" {
		return refuse("can only get/update/patch this type")
	}
	return d.isRelated(claim)
}

func (d *decision) isRelated(of kind) (auth.Decision, string) {
	if d.Name == "" {
		return refuse("No Object name found")
	}
	if !d.related(of, d.Namespace, d.Name) {
		return refuse("no relationship found between node '%s' and this object", d.node)
	}
	return allow()
}

// account lets accounts of Pods be read, and tokens of them be made: NodeRestriction has them bound
// to a Pod.
func (d *decision) account() (auth.Decision, string) {
	switch {
	case d.Verb == "get" && d.Subresource == "":
		return d.read(account)
	case d.Verb != "create" || d.Name == "":
		return refuse("can only create tokens for individual service accounts")
	case d.Subresource != "token":
		return refuse("can only create token subresource of serviceaccount")
	}
	return d.isRelated(account)
}

func (d *decision) lease() (auth.Decision, string) {
	switch {
	case !d.writesOrGets():
		return refuse("can only get, create, update, patch, or delete a node lease")
	case d.Namespace != corev1.NamespaceNodeLease:
		return refuse("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	case d.Verb != "create" && d.Name != d.node: // a create has no name yet: NodeRestriction looks at it
		return refuse("can only access node lease with the same name as the requesting node")
	}
	return allow()
}

func (d *decision) csiNode() (auth.Decision, string) {
	switch {
	case !d.writesOrGets():
		return refuse("can only get, create, update, patch, or delete a CSINode")
	case d.Subresource != "":
		return refuse("cannot authorize CSINode subresources")
	case d.Verb != "create" && d.Name != d.node:
		return refuse("can only access CSINode with the same name as the requesting node")
	}
	return allow()
}

func (d *decision) writesOrGets() bool {
	switch d.Verb {
	case "get", "create", "update", "patch", "delete":
		return true
	}
	return false
}

func (d *decision) slice() (auth.Decision, string) {
	if d.Subresource != "" {
		return refuse("cannot authorize ResourceSlice subresources")
	}
	switch d.Verb {
	case "create": // NodeRestriction looks at the object
		return allow()
	case "get", "update", "patch", "delete":
		return d.isRelated(slice)
	case "watch", "list", "deletecollection":
		if d.selectsNode() {
			return allow()
		}
		return refuse("can only list/watch/deletecollection resourceslices with nodeName field selector")
	}
	return refuse("only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection")
}

// selectsNode reports whether only objects of the node are asked for.
func (d *decision) selectsNode() bool {
	for _, r := range d.FieldSelector {
		if r.Field == nodeNameField && r.Operator == selection.Equals && r.Value == d.node {
			return true
		}
	}
	return false
}

// ownNode compares names: a kubelet asks for its Node before there is one. NodeRestriction has it
// write no other.
func (d *decision) ownNode() (auth.Decision, string) {
	switch d.Subresource {
	case "":
		switch d.Verb {
		case "create", "update", "patch":
			return allow()
		case "get", "list", "watch":
			switch d.Name {
			case d.node:
				return allow()
			case "":
				return refuse("node '%s' cannot read all nodes, only its own Node object", d.node)
			}
			return refuse("node '%s' cannot read '%s', only its own Node object", d.node, d.Name)
		}
	case "status":
		if d.Verb == "update" || d.Verb == "patch" {
			return allow()
		}
	}
	return auth.NoOpinion, ""
}

// pod leaves it to NodeRestriction whose Pods are written.
func (d *decision) pod() (auth.Decision, string) {
	switch d.Subresource {
	case "":
		switch d.Verb {
		case "get":
			return d.get(pod)
		case "list", "watch":
			if d.selectsNode() {
				return allow()
			}
			if d.Name != "" {
				return d.isRelated(pod)
			}
			return refuse("can only list/watch pods with spec.nodeName field selector")
		case "create", "delete":
			return allow()
		}
	case "status":
		if d.Verb == "update" || d.Verb == "patch" {
			return allow()
		}
	case "eviction":
		if d.Verb == "create" {
			return allow()
		}
	}
	return auth.NoOpinion, ""
}
