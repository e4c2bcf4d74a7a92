package tree

import (
	"testing"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// FuzzPlainNames: the fast checks accept nothing that the library refuses.
func FuzzPlainNames(f *testing.F) {
	for _, s := range []string{"a", "a-b", "-a", "A", "a.b/c_d", "1a", "a/b/c", "\x10a", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, rule := range []NameRule{NameSubdomain, NameLabel, NameLabel1035, NamePath} {
			if plainName(s, rule) && len(rule.validate()(s, false)) > 0 {
				t.Errorf("%q passes for a name of rule %q", s, rule)
			}
		}
		if plainQualifiedName(s) && len(libraryLabels(s, "")) > 0 {
			t.Errorf("%q passes for a label name", s)
		}
		if plainLabel(s) && len(libraryLabels("k", s)) > 0 {
			t.Errorf("%q passes for a label value", s)
		}
	})
}

func libraryLabels(k, v string) field.ErrorList {
	return metav1validation.ValidateLabels(map[string]string{k: v}, metadataPath)
}
