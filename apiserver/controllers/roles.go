package controllers

import (
	"context"
	"log/slog"

	"github.com/quorate/quorate/apiserver/access/rbac"
	"github.com/quorate/quorate/apiserver/objects"
)

// EnsureRoles makes what is missing of the roles and bindings that every cluster has. It may be
// called at any node, once it has caught up with the leader.
func EnsureRoles(ctx context.Context, s *objects.Store, log *slog.Logger) error {
	return rbac.Ensure(ctx, objects.NewClient(s), rbac.Bootstrap(), log)
}

// roleAggregator writes the rules of ClusterRoles that collect those of others.
type roleAggregator struct{ base }

func (a roleAggregator) run(ctx context.Context) error {
	return a.keep(ctx, []string{rbac.ClusterRolesTable}, 0, "cannot aggregate rules of ClusterRoles, retrying", func(ctx context.Context) error {
		return rbac.Aggregate(ctx, a.objects.Storage, a.api)
	}, "retry", retryDelay)
}
