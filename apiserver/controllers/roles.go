package controllers

import (
	"context"

	"github.com/quorate/quorate/apiserver/access/rbac"
)

// ensureRoles makes the roles and bindings that every cluster has, once in a term.
func (l *Loops) ensureRoles(ctx context.Context, _ *reports) error {
	return l.EnsureRoles(ctx)
}

// EnsureRoles makes what is missing of the roles and bindings that every cluster has. It may be
// called at any node, once it has caught up with the leader.
func (l *Loops) EnsureRoles(ctx context.Context) error {
	return rbac.Ensure(ctx, l.client(), rbac.Bootstrap(), l.cfg.Log)
}

// aggregateRoles writes the rules of ClusterRoles that collect those of others, until ctx
// ends.
func (l *Loops) aggregateRoles(ctx context.Context, r *reports) error {
	return l.onChange(ctx, []string{rbac.ClusterRolesTable}, 0, func() (again bool, _ error) {
		err := rbac.Aggregate(ctx, l.objects.Storage, l.client())
		if ctx.Err() == nil {
			r.tried("cannot aggregate rules of ClusterRoles, retrying", err, "retry", retryDelay)
		}
		return err != nil, nil
	})
}
