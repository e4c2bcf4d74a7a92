package rbac

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/quorate/quorate/raftstore/mvcc"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	helpers "k8s.io/kubernetes/pkg/apis/rbac/v1"
)

// Store is what is needed of the replicated store.
type Store interface {
	// State is the local state. It may be replaced as a whole by a snapshot.
	State() *mvcc.State
}

// Aggregate writes the rules of ClusterRoles that collect those of others, as far as
// they differ from what this state shows; a role that was changed meanwhile is left as it
// is, and its change is a reason to call Aggregate again. Two that run at once write the
// same.
func Aggregate(ctx context.Context, store Store, api Objects) error {
	all, err := storedClusterRoles(store)
	if err != nil {
		return err
	}
	var failed []error
	for _, r := range all {
		if r.AggregationRule == nil {
			continue
		}
		rules, err := collect(r, all)
		if err != nil {
			failed = append(failed, fmt.Errorf("ClusterRole %s: %w", r.Name, err))
			continue
		}
		if equality.Semantic.DeepEqual(rules, r.Rules) {
			continue
		}
		next := r.DeepCopy()
		next.Rules = rules
		if err := api.Update(ctx, resource("clusterroles"), "", r.Name, next); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// storedClusterRoles returns the ClusterRoles of the local state by name.
func storedClusterRoles(store Store) ([]*rbacv1.ClusterRole, error) {
	for {
		state := store.State()
		t := state.Table(tableNames[0])
		if t == nil {
			return nil, nil
		}
		page, err := t.Range(mvcc.Query{At: state.Applied()})
		if errors.Is(err, mvcc.ErrCompacted) {
			continue // the floor has passed what was newest a moment ago
		}
		if err != nil {
			return nil, fmt.Errorf("read ClusterRoles: %w", err)
		}
		out := make([]*rbacv1.ClusterRole, 0, len(page.Versions))
		for _, v := range page.Versions {
			r := new(rbacv1.ClusterRole)
			if err := json.Unmarshal(v.Value(), r); err != nil {
				return nil, fmt.Errorf("read ClusterRole %s: %w", v.Key, err)
			}
			out = append(out, r)
		}
		return out, nil
	}
}

// collect returns the rules of the roles that r selects, each once, selector by
// selector and role by role in the order of their names. The same roles give the
// same list, so that nothing is written that is there already. There may be ten thousands.
func collect(r *rbacv1.ClusterRole, all []*rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	rules, known := []rbacv1.PolicyRule{}, map[string]struct{}{}
	for i := range r.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&r.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, err
		}
		for _, other := range all {
			if other.Name == r.Name || !selector.Matches(labels.Set(other.Labels)) {
				continue
			}
			for i := range other.Rules {
				text := helpers.CompactString(other.Rules[i]) // an empty list is as good as none
				if _, ok := known[text]; !ok {
					known[text] = struct{}{}
					rules = append(rules, other.Rules[i])
				}
			}
		}
	}
	return rules, nil
}
