package resourcequota

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/quota"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// request is a write as quotas see it.
type request struct {
	*plugin
	*admission.Attributes
	gr schema.GroupResource
	// is and was are what the object uses after the write and before it; was counts if the
	// object was there.
	is, was quota.Usage
	existed bool
}

func (p *plugin) requestOf(a *admission.Attributes, gr schema.GroupResource) *request {
	r := &request{plugin: p, Attributes: a, gr: gr, existed: a.Old != nil}
	r.is, _ = quota.Of(gr, a.Object, p.now())
	if r.existed {
		r.was, _ = quota.Of(gr, a.Old, p.now())
	}
	return r
}

// check holds the request against the quotas of its namespace, in upstream's order: what it
// must say, what only a quota may allow, and what is left.
func (r *request) check(rules []*rule) error {
	var concerned []*rule
	var covered []string
	var scopes []corev1.ScopedResourceSelectorRequirement
	for _, q := range rules {
		for _, s := range q.scopes {
			if r.is.InScope(s) {
				scopes = append(scopes, s)
			}
		}
		names := q.covers(r.gr)
		if len(names) == 0 || !q.concerns(r.is) {
			continue
		}
		if r.gr == quota.Pods {
			if err := mustSpecify(r.Object, names); err != nil {
				return r.Forbidden(fmt.Errorf("failed quota: %s: %w", q.name, err))
			}
		}
		concerned, covered = append(concerned, q), append(covered, names...)
	}
	if err := r.checkLimited(concerned, covered, scopes); err != nil {
		return err
	}
	for _, q := range concerned {
		if err := r.checkRoom(q); err != nil {
			return err
		}
	}
	return nil
}

// counted reports whether the quota counts the object as it was before the write.
func (r *request) counted(q *rule) bool { return r.existed && q.concerns(r.was) }

// requested is how much more of a bound the write asks for, as the state machine counts it and
// as a quantity.
func (r *request) requested(b *bound, counted bool) (int64, resource.Quantity) {
	if b.Amount == "" {
		if counted {
			return 0, resource.Quantity{}
		}
		return 1, *resource.NewQuantity(1, resource.DecimalSI)
	}
	q := r.is.Get(b.Amount)
	n := quota.Amount(b.Amount, q)
	if counted {
		was := r.was.Get(b.Amount)
		n -= quota.Amount(b.Amount, was)
		q.Sub(was)
	}
	return max(n, 0), q
}

// checkRoom refuses what would exceed a quota.
func (r *request) checkRoom(q *rule) error {
	used := r.state.Usage(quotas, q.namespace, q.name)
	at := q.of[r.gr].at
	same := len(used) == len(q.bounds) && !slices.ContainsFunc(at, func(i int) bool { return !q.bounds[i].is(used[i].Name, used[i].Max) })
	if !same {
		// It has changed just now, and the state machine knows.
		return nil
	}
	counted := r.counted(q)
	over := excess{quota: q.name}
	for _, i := range at {
		b := &q.bounds[i]
		n, quantity := r.requested(b, counted)
		if n == 0 || n <= used[i].Max-used[i].Used {
			continue
		}
		over.add(b.name, quantity, quota.Quantity(b.Amount, used[i].Used, b.hard.Format), b.hard)
	}
	if len(over.asked) == 0 {
		return nil
	}
	return r.Forbidden(&over)
}

// checkLimited refuses what the configuration allows only where a quota covers it, and none
// does. An update that asks for nothing more is let through.
func (r *request) checkLimited(concerned []*rule, covered []string, scopes []corev1.ScopedResourceSelectorRequirement) error {
	if len(r.limited) == 0 || !r.asksForMore(concerned) {
		return nil
	}
	var open []string
	var uncovered []corev1.ScopedResourceSelectorRequirement
	for _, l := range r.limited {
		for _, s := range l.MatchScopes {
			if r.is.InScope(s) && !slices.ContainsFunc(scopes, func(c corev1.ScopedResourceSelectorRequirement) bool { return c.ScopeName == s.ScopeName }) {
				uncovered = append(uncovered, s)
			}
		}
		if (schema.GroupResource{Group: l.APIGroup, Resource: l.Resource}) != r.gr {
			continue
		}
		for _, name := range quota.NamesOf(r.gr, r.is.List) {
			if slices.ContainsFunc(l.MatchContains, func(s string) bool { return strings.Contains(name, s) }) && !slices.Contains(covered, name) {
				open = append(open, name)
			}
		}
	}
	if len(open) > 0 {
		slices.Sort(open)
		return r.Forbidden(errors.New("insufficient quota to consume: " + strings.Join(slices.Compact(open), ",")))
	}
	if len(uncovered) > 0 {
		return &apierrors.StatusError{ErrStatus: metav1.Status{ // upstream's is no refusal of the API either
			Status: metav1.StatusFailure, Code: 500,
			Message: fmt.Sprintf("insufficient quota to match these scopes: %v", uncovered),
		}}
	}
	return nil
}

// asksForMore reports whether the write uses more of anything than before, as the quotas that
// it concerns count it.
func (r *request) asksForMore(concerned []*rule) bool {
	if !r.existed || slices.ContainsFunc(concerned, func(q *rule) bool { return !r.counted(q) }) {
		return true
	}
	for i := range r.is.List {
		item := &r.is.List[i]
		if was := r.was.Get(item.Name); item.Quantity.Cmp(was) > 0 {
			return true
		}
	}
	return false
}
