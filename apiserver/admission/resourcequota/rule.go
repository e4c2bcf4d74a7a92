package resourcequota

import (
	"cmp"
	"encoding/json"

	"github.com/quorate/quorate/apiserver/quota"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// rule is a quota, made once for each version of it.
type rule struct {
	namespace, name string
	scopes          []corev1.ScopedResourceSelectorRequirement
	bounds          []bound // in the order of their names, which is that of what is used
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
	*r = rule{namespace: q.Namespace, name: q.Name}
	for _, s := range q.Spec.Scopes {
		r.scopes = append(r.scopes, corev1.ScopedResourceSelectorRequirement{ScopeName: s, Operator: corev1.ScopeSelectorOpExists})
	}
	if q.Spec.ScopeSelector != nil {
		r.scopes = append(r.scopes, q.Spec.ScopeSelector.MatchExpressions...)
	}
	for _, name := range quota.Names(q.Spec.Hard) {
		of, _ := quota.ResourceOf(name)
		b := bound{name: name, Resource: of, hard: q.Spec.Hard[corev1.ResourceName(name)]}
		b.entry = cmp.Or(of.Amount, name)
		b.most = quota.Bound(b.entry, b.hard)
		r.bounds = append(r.bounds, b)
	}
	return nil
}

// covers are the names of what a quota bounds of a kind of object.
func (r *rule) covers(gr schema.GroupResource) (names []string) {
	for i := range r.bounds {
		if r.bounds[i].Of == gr {
			names = append(names, r.bounds[i].name)
		}
	}
	return names
}

// concerns reports whether the quota counts an object with this usage.
func (r *rule) concerns(u quota.Usage) bool {
	for _, s := range r.scopes {
		if !u.InScope(s) {
			return false
		}
	}
	return true
}
