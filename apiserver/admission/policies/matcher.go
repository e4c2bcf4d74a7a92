package policies

import (
	v1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstreamadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
)

// matcher is upstream's PolicyMatcher for the policies of a concern, whose selectors are parsed
// already: upstream parses them for each write.
type matcher struct {
	generic.PolicyMatcher
	by       *matching.Matcher
	criteria map[*v1.MatchResources]*criteria
}

// criteria are selectors of a policy or a binding.
type criteria struct {
	resources           *v1.MatchResources
	namespaces, objects selector
}

type selector struct {
	labels.Selector
	err error
}

var _ matching.MatchCriteria = (*criteria)(nil)

// parse returns criteria, nil if a selector is missing, for which upstream has the words.
func parse(m *v1.MatchResources) *criteria {
	if m == nil || m.NamespaceSelector == nil || m.ObjectSelector == nil {
		return nil
	}
	c := &criteria{resources: m}
	c.namespaces.Selector, c.namespaces.err = metav1.LabelSelectorAsSelector(m.NamespaceSelector)
	c.objects.Selector, c.objects.err = metav1.LabelSelectorAsSelector(m.ObjectSelector)
	return c
}

// GetParsedNamespaceSelector implements matching.MatchCriteria.
func (c *criteria) GetParsedNamespaceSelector() (labels.Selector, error) {
	return c.namespaces.Selector, c.namespaces.err
}

// GetParsedObjectSelector implements matching.MatchCriteria.
func (c *criteria) GetParsedObjectSelector() (labels.Selector, error) {
	return c.objects.Selector, c.objects.err
}

// GetMatchResources implements matching.MatchCriteria.
func (c *criteria) GetMatchResources() v1.MatchResources { return *c.resources }

// DefinitionMatches implements generic.PolicyMatcher.
func (m *matcher) DefinitionMatches(a upstreamadmission.Attributes, o upstreamadmission.ObjectInterfaces, definition generic.PolicyAccessor) (bool, schema.GroupVersionResource, schema.GroupVersionKind, error) {
	if c := m.criteria[definition.GetMatchConstraints()]; c != nil {
		return m.by.Matches(a, o, c)
	}
	return m.PolicyMatcher.DefinitionMatches(a, o, definition)
}

// BindingMatches implements generic.PolicyMatcher.
func (m *matcher) BindingMatches(a upstreamadmission.Attributes, o upstreamadmission.ObjectInterfaces, binding generic.BindingAccessor) (bool, error) {
	if c := m.criteria[binding.GetMatchResources()]; c != nil {
		is, _, _, err := m.by.Matches(a, o, c)
		return is, err
	}
	return m.PolicyMatcher.BindingMatches(a, o, binding)
}
