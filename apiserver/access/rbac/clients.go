package rbac

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
)

// What follows is Objects as package reconciliation wants it, for each of the four
// kinds.

type clusterRoles struct {
	ctx context.Context
	api Objects
}

func (c clusterRoles) Get(_, name string) (reconciliation.RuleOwner, error) {
	o := new(rbacv1.ClusterRole)
	err := c.api.Get(c.ctx, resource("clusterroles"), "", name, o)
	return reconciliation.ClusterRoleRuleOwner{ClusterRole: o}, err
}

func (c clusterRoles) Create(o reconciliation.RuleOwner) (reconciliation.RuleOwner, error) {
	return o, c.api.Create(c.ctx, resource("clusterroles"), "", o.GetObject())
}

func (c clusterRoles) Update(o reconciliation.RuleOwner) (reconciliation.RuleOwner, error) {
	return o, c.api.Update(c.ctx, resource("clusterroles"), "", o.GetName(), o.GetObject())
}

type roles struct {
	ctx context.Context
	api Objects
}

func (c roles) Get(namespace, name string) (reconciliation.RuleOwner, error) {
	o := new(rbacv1.Role)
	err := c.api.Get(c.ctx, resource("roles"), namespace, name, o)
	return reconciliation.RoleRuleOwner{Role: o}, err
}

func (c roles) Create(o reconciliation.RuleOwner) (reconciliation.RuleOwner, error) {
	return o, c.api.Create(c.ctx, resource("roles"), o.GetNamespace(), o.GetObject())
}

func (c roles) Update(o reconciliation.RuleOwner) (reconciliation.RuleOwner, error) {
	return o, c.api.Update(c.ctx, resource("roles"), o.GetNamespace(), o.GetName(), o.GetObject())
}

type clusterRoleBindings struct {
	ctx context.Context
	api Objects
}

func (c clusterRoleBindings) Get(_, name string) (reconciliation.RoleBinding, error) {
	o := new(rbacv1.ClusterRoleBinding)
	err := c.api.Get(c.ctx, resource("clusterrolebindings"), "", name, o)
	return reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: o}, err
}

func (c clusterRoleBindings) Delete(_, name string, uid types.UID) error {
	return c.api.Delete(c.ctx, resource("clusterrolebindings"), "", name, uid)
}

func (c clusterRoleBindings) Create(o reconciliation.RoleBinding) (reconciliation.RoleBinding, error) {
	return o, c.api.Create(c.ctx, resource("clusterrolebindings"), "", o.GetObject())
}

func (c clusterRoleBindings) Update(o reconciliation.RoleBinding) (reconciliation.RoleBinding, error) {
	return o, c.api.Update(c.ctx, resource("clusterrolebindings"), "", o.GetName(), o.GetObject())
}

type roleBindings struct {
	ctx context.Context
	api Objects
}

func (c roleBindings) Get(namespace, name string) (reconciliation.RoleBinding, error) {
	o := new(rbacv1.RoleBinding)
	err := c.api.Get(c.ctx, resource("rolebindings"), namespace, name, o)
	return reconciliation.RoleBindingAdapter{RoleBinding: o}, err
}

func (c roleBindings) Delete(namespace, name string, uid types.UID) error {
	return c.api.Delete(c.ctx, resource("rolebindings"), namespace, name, uid)
}

func (c roleBindings) Create(o reconciliation.RoleBinding) (reconciliation.RoleBinding, error) {
	return o, c.api.Create(c.ctx, resource("rolebindings"), o.GetNamespace(), o.GetObject())
}

func (c roleBindings) Update(o reconciliation.RoleBinding) (reconciliation.RoleBinding, error) {
	return o, c.api.Update(c.ctx, resource("rolebindings"), o.GetNamespace(), o.GetName(), o.GetObject())
}
