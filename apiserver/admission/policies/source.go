package policies

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/upstream"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/state"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"

	upstreamadmission "k8s.io/apiserver/pkg/admission"
)

// stored is a policy or a binding of k8s.io/api, as a pointer.
type stored interface {
	comparable
	runtime.Object
}

// source are the policies of one kind that have bindings, compiled: P are policies, B bindings,
// E what evaluates a policy. Nothing runs in it. Safe for concurrent use.
type source[P, B stored, E any] struct {
	kinds    *upstream.Kinds
	policies func() []P // the same slice as long as none has changed
	bindings func() []B
	// unreadable is the refusal of all writes while there is one of them that cannot be decoded.
	unreadable func() error
	policy     func(P) generic.PolicyAccessor
	binding    func(B) generic.BindingAccessor
	compile    func(P) E
	// static are policies from files; nil: there are none.
	static func() []generic.PolicyHook[P, B, E]

	now atomic.Pointer[hooks[P, B, E]]
	mu  sync.Mutex // of the one that renews

	compiling sync.Mutex
	compiled  map[P]E // what a write has needed
}

// hooks are the policies at one moment.
type hooks[P, B stored, E any] struct {
	registry *kinds.Registry
	policies []P
	bindings []B
	static   []generic.PolicyHook[P, B, E]

	all       []generic.PolicyHook[P, B, E] // of the API, by the names of their policies, not compiled
	concerned atomic.Pointer[map[write]*concern[P, B, E]]
}

// write is what rules tell writes apart by.
type write struct {
	resource    schema.GroupVersionResource
	subresource string
	operation   admission.Operation
	namespaced  bool
}

// concern are the policies whose rules match a write: nothing else was looked at.
type concern[P, B stored, E any] struct {
	hooks  []generic.PolicyHook[P, B, E]
	params bool // one of them has parameters
	// criteria are what they and their bindings match, but for those without selectors.
	criteria map[*admissionregistrationv1.MatchResources]*criteria
}

// maxWrites is for how many kinds of writes it is kept which policies they concern. There are
// not more unless definitions come and go.
const maxWrites = 4096

// get returns the policies of what is visible now.
func (s *source[P, B, E]) get() *hooks[P, B, E] {
	if h := s.now.Load(); h != nil && s.current(h) {
		return h
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.now.Load()
	if was != nil && s.current(was) {
		return was // another goroutine was first
	}
	h := s.renew(was)
	s.now.Store(h)
	return h
}

func (s *source[P, B, E]) current(h *hooks[P, B, E]) bool {
	return same(h.policies, s.policies()) && same(h.bindings, s.bindings()) && same(h.static, s.fromFiles()) && h.registry == s.kinds.Registry()
}

func (s *source[P, B, E]) fromFiles() []generic.PolicyHook[P, B, E] {
	if s.static == nil {
		return nil
	}
	return s.static()
}

// same reports whether two slices are the same one.
func same[T any](a, b []T) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// renew sorts what is there now.
func (s *source[P, B, E]) renew(was *hooks[P, B, E]) *hooks[P, B, E] {
	h := &hooks[P, B, E]{
		registry: s.kinds.Registry(), policies: s.policies(), bindings: s.bindings(), static: s.fromFiles(),
	}
	h.concerned.Store(&map[write]*concern[P, B, E]{})
	if was != nil && same(h.policies, was.policies) && same(h.bindings, was.bindings) {
		h.all = was.all
		return h
	}
	bound := map[string][]B{}
	for _, b := range h.bindings {
		name := s.binding(b).GetPolicyName().Name
		bound[name] = append(bound[name], b)
	}
	for _, p := range h.policies {
		name := s.policy(p).GetName()
		if len(bound[name]) == 0 {
			continue
		}
		h.all = append(h.all, generic.PolicyHook[P, B, E]{Policy: p, Bindings: bound[name]})
	}
	slices.SortFunc(h.all, func(a, b generic.PolicyHook[P, B, E]) int {
		return cmp.Compare(s.policy(a.Policy).GetName(), s.policy(b.Policy).GetName())
	})
	s.forget(h.policies)
	return h
}

// forget drops what was compiled of policies that are not there any more.
func (s *source[P, B, E]) forget(stay []P) {
	s.compiling.Lock()
	defer s.compiling.Unlock()
	for p := range s.compiled {
		if !slices.Contains(stay, p) {
			delete(s.compiled, p)
		}
	}
}

// evaluator compiles a policy, once for each version, when the first write needs it: that takes
// milliseconds, and policies about something else are not to delay a write.
func (s *source[P, B, E]) evaluator(p P) E {
	s.compiling.Lock()
	defer s.compiling.Unlock()
	e, ok := s.compiled[p]
	if !ok {
		if s.compiled == nil {
			s.compiled = map[P]E{}
		}
		e = s.compile(p)
		s.compiled[p] = e
	}
	return e
}

// unread is the refusal of a write while it is not known which policies there are for it. Those that
// do not guard policies are the way to mend it.
func (s *source[P, B, E]) unread(a *admission.Attributes) error {
	if gr := a.Resource.GroupResource(); ofPolicies[gr] || unguarded[gr] || a.Resource.Group == group {
		return nil
	}
	return s.unreadable()
}

// unreadableOf is source.unreadable for the policies of a resource and their bindings. A policy that
// is suspended refuses nothing.
func unreadableOf[P, B any](cfg Config, resource string, policies *state.Objects[P], bindings *state.Objects[B]) func() error {
	suspended := func(name string) bool { return cfg.Suspensions.Suspended(resource, name) }
	return func() error {
		if err := policies.Unreadable(suspended); err != nil {
			return err
		}
		return bindings.Unreadable(nil)
	}
}

// concerns returns the policies whose rules match a write, nil if there are none. Whatever the
// rules do not say (names, selectors, conditions) is left to upstream's dispatcher.
func (s *source[P, B, E]) concerns(a *admission.Attributes) *concern[P, B, E] {
	h := s.get()
	if len(h.all)+len(h.static) == 0 {
		return nil
	}
	key := write{a.Resource, a.Subresource, a.Operation, a.GetNamespace() != ""}
	known := *h.concerned.Load()
	c, ok := known[key]
	if !ok {
		c = s.concern(h, a)
		next := make(map[write]*concern[P, B, E], len(known)+1)
		if len(known) < maxWrites {
			for k, v := range known {
				next[k] = v
			}
		}
		next[key] = c
		h.concerned.Store(&next) // of two at once one is lost, and made again
	}
	return c
}

func (s *source[P, B, E]) concern(h *hooks[P, B, E], a *admission.Attributes) *concern[P, B, E] {
	gr := a.Resource.GroupResource()
	if unguarded[gr] {
		return nil
	}
	c := &concern[P, B, E]{}
	for _, hook := range h.static {
		if s.mayMatch(s.policy(hook.Policy).GetMatchConstraints(), a) {
			c.hooks = append(c.hooks, hook)
		}
	}
	for _, hook := range h.all {
		p := s.policy(hook.Policy)
		if ofPolicies[gr] || !s.mayMatch(p.GetMatchConstraints(), a) {
			continue
		}
		hook.Evaluator = s.evaluator(hook.Policy)
		c.hooks, c.params = append(c.hooks, hook), c.params || p.GetParamKind() != nil
	}
	if len(c.hooks) == 0 {
		return nil
	}
	c.criteria = map[*admissionregistrationv1.MatchResources]*criteria{}
	for _, hook := range c.hooks {
		c.parse(s.policy(hook.Policy).GetMatchConstraints())
		for _, b := range hook.Bindings {
			c.parse(s.binding(b).GetMatchResources())
		}
	}
	return c
}

func (c *concern[P, B, E]) parse(m *admissionregistrationv1.MatchResources) {
	if parsed := parse(m); parsed != nil {
		c.criteria[m] = parsed
	}
}

// mayMatch reports whether the rules of a policy match a write, or one of the same object in
// another version. Rules that are wrong match: the dispatcher says so.
func (s *source[P, B, E]) mayMatch(m *admissionregistrationv1.MatchResources, a *admission.Attributes) bool {
	if m == nil || m.NamespaceSelector == nil || m.ObjectSelector == nil || len(m.ResourceRules) == 0 {
		return true
	}
	in := []schema.GroupVersionResource{a.Resource}
	if m.MatchPolicy != nil && *m.MatchPolicy != admissionregistrationv1.Exact {
		in = append(in, s.kinds.EquivalentResourcesFor(a.Resource, a.Subresource)...)
	}
	for _, resource := range in {
		of := as{a, resource}
		for i := range m.ResourceRules {
			if r := (rules.Matcher{Rule: m.ResourceRules[i].RuleWithOperations, Attr: of}); r.Matches() {
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

func (w as) GetResource() schema.GroupVersionResource { return w.resource }
