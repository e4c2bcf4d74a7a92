package rbac

import (
	"maps"
	"slices"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// Policy is a set of roles and bindings.
type Policy struct {
	ClusterRoles        []*rbacv1.ClusterRole
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding
	Roles               []*rbacv1.Role
	RoleBindings        []*rbacv1.RoleBinding
}

// Bootstrap is what a cluster has in the beginning: upstream's roles and bindings with its default
// feature gates, and ours. Not to be changed.
var Bootstrap = sync.OnceValue(func() *Policy {
	return &Policy{
		ClusterRoles: pointers(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()),
		ClusterRoleBindings: pointers(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings(),
			[]rbacv1.ClusterRoleBinding{kubeletAPIClients()}),
		Roles:        pointers(inOrder(bootstrappolicy.NamespaceRoles())...),
		RoleBindings: pointers(inOrder(bootstrappolicy.NamespaceRoleBindings())...),
	}
})

// kubeletAPIClients lets this server's own client use the API of kubelets, which ask whether it may.
// Upstream leaves it to those who install a cluster.
func kubeletAPIClients() rbacv1.ClusterRoleBinding {
	b := rbacv1.ClusterRoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:kubelet-api-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "kube-apiserver-kubelet-client"}},
	}
	b.Name, b.Labels, b.Annotations = "system:kubelet-api-clients", bootstrappolicy.Label, bootstrappolicy.Annotation
	return b
}

// inOrder returns the lists of all namespaces, by name.
func inOrder[T any](byNamespace map[string][]T) (out [][]T) {
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		out = append(out, byNamespace[namespace])
	}
	return out
}

func pointers[T any](lists ...[]T) (out []*T) {
	for _, list := range lists {
		for i := range list {
			out = append(out, &list[i])
		}
	}
	return out
}

// NodeRules are what kubelets may do by the role system:node as a cluster has it in the beginning,
// no matter who is bound to it and whatever it says by now. bundles: ClusterTrustBundles are served.
func NodeRules(bundles bool) []rbacv1.PolicyRule {
	rules := bootstrappolicy.NodeRules()
	if bundles {
		rules = append(rules, rbacv1.PolicyRule{
			Verbs: bootstrappolicy.Read, APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"clustertrustbundles"},
		})
	}
	return rules
}
