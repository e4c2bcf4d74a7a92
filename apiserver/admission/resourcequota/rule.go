package resourcequota

import (
	"cmp"
	"encoding/json"

	"github.com/quorate/quorate/apiserver/types/quota"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// rule is a quota, made once for each version of it.
type rule struct {
	namespace, name string
	scopes          []corev1.ScopedResourceSelectorRequirement
	bounds          []bound // in the order of their names, which is that of what is used
	// of are the bounds of each kind of object: a write looks at no others.
	of map[schema.GroupResource]bounds
}

// bounds are those of one kind of object.
type bounds struct {
	names []string
	at    []int // in rule.bounds
}

// bound is one line of a quota's spec.hard.
type bound struct {
	name string
	quota.Resource
	hard resource.Quantity
	// entry and most are its name and hard in the state machine.
	entry string
	most  int64
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *rule) UnmarshalJSON(raw []byte) error {
	var q corev1.ResourceQuota
	if err := json.Unmarshal(raw, &q); err != nil {
		return err
	}
	*r = rule{namespace: q.Namespace, name: q.Name, of: map[schema.GroupResource]bounds{}}
	for _, s := range q.Spec.Scopes {
		r.scopes = append(r.scopes, corev1.ScopedResourceSelectorRequirement{ScopeName: s, Operator: corev1.ScopeSelectorOpExists})
	}
	if q.Spec.ScopeSelector != nil {
		r.scopes = append(r.scopes, q.Spec.ScopeSelector.MatchExpressions...)
	}
	for _, name := range quota.Names(q.Spec.Hard) {
		what, _ := quota.ResourceOf(name)
		b := bound{name: name, Resource: what, hard: q.Spec.Hard[corev1.ResourceName(name)]}
		b.entry = cmp.Or(what.Amount, name)
		b.most = quota.Bound(b.entry, b.hard)
		of := r.of[b.Of]
		r.of[b.Of] = bounds{append(of.names, name), append(of.at, len(r.bounds))}
		r.bounds = append(r.bounds, b)
	}
	return nil
}

// covers are the names of what a quota bounds of a kind of object. They are shared.
func (r *rule) covers(gr schema.GroupResource) []string { return r.of[gr].names }

// concerns reports whether the quota counts an object with this usage.
func (r *rule) concerns(u quota.Usage) bool {
	for _, s := range r.scopes {
		if !u.InScope(s) {
			return false
		}
	}
	return true
}
