package validation

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/rbac"
	v1 "k8s.io/kubernetes/pkg/apis/rbac/v1"
	"k8s.io/kubernetes/pkg/apis/rbac/validation"
)

var rbacKinds = map[string]Kind{
	"clusterrolebindings.rbac.authorization.k8s.io": rules[rbacv1.ClusterRoleBinding, rbac.ClusterRoleBinding]{
		convert: v1.Convert_v1_ClusterRoleBinding_To_rbac_ClusterRoleBinding,
		create:  validation.ValidateClusterRoleBinding,
		update:  validation.ValidateClusterRoleBindingUpdate,
	},
	"clusterroles.rbac.authorization.k8s.io": rules[rbacv1.ClusterRole, rbac.ClusterRole]{
		convert: v1.Convert_v1_ClusterRole_To_rbac_ClusterRole,
		create: func(r *rbac.ClusterRole) field.ErrorList {
			return validation.ValidateClusterRole(r, validation.ClusterRoleValidationOptions{})
		},
		update: func(r, old *rbac.ClusterRole) field.ErrorList {
			return validation.ValidateClusterRoleUpdate(r, old, validation.ClusterRoleValidationOptions{
				AllowInvalidLabelValueInSelector: aggregatesInvalidLabel(old),
			})
		},
	},
	"rolebindings.rbac.authorization.k8s.io": rules[rbacv1.RoleBinding, rbac.RoleBinding]{
		convert: v1.Convert_v1_RoleBinding_To_rbac_RoleBinding,
		create:  validation.ValidateRoleBinding,
		update:  validation.ValidateRoleBindingUpdate,
	},
	"roles.rbac.authorization.k8s.io": rules[rbacv1.Role, rbac.Role]{
		convert: v1.Convert_v1_Role_To_rbac_Role,
		create:  validation.ValidateRole,
		update:  validation.ValidateRoleUpdate,
	},
}

// aggregatesInvalidLabel: a role from before label values were checked may keep them.
func aggregatesInvalidLabel(r *rbac.ClusterRole) bool {
	if r.AggregationRule == nil {
		return false
	}
	for i := range r.AggregationRule.ClusterRoleSelectors {
		if metavalidation.LabelSelectorHasInvalidLabelValue(&r.AggregationRule.ClusterRoleSelectors[i]) {
			return true
		}
	}
	return false
}
