package controllers

import (
	"context"

	"github.com/quorate/quorate/apiserver/rbac"
)

// ensureRoles makes the roles and bindings that every cluster has, once in a term.
func (l *Loops) ensureRoles(ctx context.Context, r *reports) error {
	policy, err := rbac.Bootstrap()
	if err != nil { // no other try would read them
		r.log.Error("the first roles cannot be read", "err", err)
		return nil
	}
	return rbac.Ensure(ctx, l.client(), policy, r.log)
}

// aggregateRoles writes the rules of ClusterRoles that collect those of others, until ctx
// ends.
func (l *Loops) aggregateRoles(ctx context.Context, r *reports) error {
	return l.onChange(ctx, []string{rbac.ClusterRolesTable}, 0, func() (again bool, _ error) {
		err := rbac.Aggregate(ctx, l.objects.Storage, l.client())
		if err != nil && ctx.Err() == nil {
			r.failed("cannot aggregate rules of ClusterRoles, retrying", "err", err, "retry", retryDelay)
		}
		return err != nil, nil
	})
}
