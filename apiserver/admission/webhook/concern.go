package webhook

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/upstream"
	"github.com/quorate/quorate/apiserver/types/kinds"
	registration "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstreamadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
)

// hook is what decides whether a webhook may be called about a write, before any selector.
type hook struct {
	rules      []registration.RuleWithOperations
	match      *registration.MatchPolicyType
	conditions []registration.MatchCondition
}

// asks reports whether its conditions may ask for permissions, of anybody in any namespace:
// upstream's plugin does not say for which decision it asks the authorizer.
func (h *hook) asks() bool {
	return slices.ContainsFunc(h.conditions, func(c registration.MatchCondition) bool { return strings.Contains(c.Expression, "authorizer") })
}

// index are webhooks at one moment, by the writes that their rules match: upstream's plugin goes
// through all of them for each write, which is not to be asked about writes of other resources.
// Safe for concurrent use. A nil index has none.
type index struct {
	kinds *upstream.Kinds
	hooks []hook
	asks  bool // one of them asks
	known atomic.Pointer[matched]
}

// matched is which writes are known to concern a webhook, while the same resources are served.
type matched struct {
	registry *kinds.Registry
	writes   map[write]bool
}

// write is what rules tell writes apart by.
type write struct {
	resource    schema.GroupVersionResource
	subresource string
	operation   admission.Operation
	namespaced  bool
}

// maxWrites is of how many kinds of writes it is kept whether they concern a webhook. There are
// not more unless definitions come and go.
const maxWrites = 4096

func newIndex(known *upstream.Kinds, hooks []hook) *index {
	return &index{kinds: known, hooks: hooks, asks: slices.ContainsFunc(hooks, func(h hook) bool { return h.asks() })}
}

// asking reports whether a webhook may ask for permissions.
func (x *index) asking() bool { return x != nil && x.asks }

// concerns reports whether the rules of a webhook match a write.
func (x *index) concerns(a *admission.Attributes) bool {
	if x == nil || len(x.hooks) == 0 {
		return false
	}
	key := write{a.Resource, a.Subresource, a.Operation, a.GetNamespace() != ""}
	known, registry := x.known.Load(), x.kinds.Registry()
	if known == nil || known.registry != registry {
		known = &matched{registry: registry}
	}
	is, ok := known.writes[key]
	if !ok {
		is = x.matches(a)
		next := &matched{registry, map[write]bool{key: is}}
		if len(known.writes) < maxWrites {
			maps.Copy(next.writes, known.writes)
		}
		x.known.Store(next) // of two at once one is lost, and made again
	}
	return is
}

// matches is concerns without what is known: what upstream's plugin does with the rules.
func (x *index) matches(a *admission.Attributes) bool {
	var equivalent []schema.GroupVersionResource
	for i := range x.hooks {
		h := &x.hooks[i]
		in := []schema.GroupVersionResource{a.Resource}
		if h.match != nil && *h.match == registration.Equivalent {
			if equivalent == nil {
				equivalent = x.kinds.EquivalentResourcesFor(a.Resource, a.Subresource)
			}
			in = append(in, equivalent...)
		}
		for _, resource := range in {
			of := as{a, resource}
			if slices.ContainsFunc(h.rules, func(r registration.RuleWithOperations) bool {
				m := rules.Matcher{Rule: r, Attr: of}
				return m.Matches()
			}) {
				return true
			}
		}
	}
	return false
}

// as is a write of another version.
type as struct {
	upstreamadmission.Attributes
	resource schema.GroupVersionResource
}

// GetResource implements upstream's Attributes.
func (w as) GetResource() schema.GroupVersionResource { return w.resource }
