package kinds

import (
	"strings"
	"testing"
)

// TestUnheeded: which kinds this server stores and does not enforce. What
// upstream enforces by default and is not here is listed in docs/differences.md.
func TestUnheeded(t *testing.T) {
	for _, c := range []struct {
		kind string
		want bool
	}{
		{"ValidatingWebhookConfiguration", false},
		{"MutatingWebhookConfiguration", false},
		{"ValidatingAdmissionPolicy", false},
		{"ValidatingAdmissionPolicyBinding", false},
		{"MutatingAdmissionPolicy", false},
		{"MutatingAdmissionPolicyBinding", false},
		{"ResourceQuota", true},
		{"LimitRange", false},
		{"PriorityClass", false},
		{"Namespace", false},
		{"RuntimeClass", false},
		{"IngressClass", false}, // a plugin sets it
		{"ConfigMap", false},
		{"NetworkPolicy", false}, // upstream leaves it to others as well
	} {
		found := false
		for _, r := range registry(t).All() {
			if r.Kind != c.kind {
				continue
			}
			found = true
			got := r.Unheeded()
			if (len(got) > 0) != c.want || c.want && !strings.Contains(got[0], "NOT enforced") {
				t.Errorf("%s: warnings %q", c.kind, got)
			}
		}
		if !found {
			t.Errorf("nothing is of the kind %s", c.kind)
		}
	}
}
