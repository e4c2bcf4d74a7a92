package kinds

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestUnheeded: which objects say something that this server does not enforce. What
// upstream enforces by default and is not here is listed in docs/differences.md.
func TestUnheeded(t *testing.T) {
	for _, c := range []struct {
		kind, obj string
		want      bool
	}{
		{"ValidatingWebhookConfiguration", `{}`, false},
		{"MutatingWebhookConfiguration", `{}`, false},
		{"ValidatingAdmissionPolicy", `{}`, false},
		{"ValidatingAdmissionPolicyBinding", `{}`, false},
		{"MutatingAdmissionPolicy", `{}`, false},
		{"MutatingAdmissionPolicyBinding", `{}`, false},
		{"ResourceQuota", `{}`, true},
		{"LimitRange", `{}`, false},
		{"PriorityClass", `{}`, false},
		{"Namespace", `{}`, false},
		{"Namespace", `{"metadata":{"labels":{"kubernetes.io/metadata.name":"a","pod-security":"x"}}}`, false},
		{"Namespace", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`, true},
		{"Namespace", `{"metadata":{"labels":{"pod-security.kubernetes.io/warn-version":"v1.36"}}}`, true},
		{"RuntimeClass", `{"handler":"h","scheduling":{},"overhead":{}}`, false},
		{"IngressClass", `{"metadata":{"annotations":{"ingressclass.kubernetes.io/is-default-class":"true"}}}`, false}, // a plugin sets it
		{"ConfigMap", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`, false},
		{"NetworkPolicy", `{}`, false}, // upstream leaves it to others as well
	} {
		var obj map[string]any
		if err := json.Unmarshal([]byte(c.obj), &obj); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, r := range registry(t).All() {
			if r.Kind != c.kind {
				continue
			}
			found = true
			got := r.Unheeded(obj)
			if (len(got) > 0) != c.want || c.want && !strings.Contains(got[0], "NOT enforced") {
				t.Errorf("%s %s: warnings %q", c.kind, c.obj, got)
			}
		}
		if !found {
			t.Errorf("nothing is of the kind %s", c.kind)
		}
	}
}
