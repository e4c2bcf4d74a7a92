package apiserver

import (
	"strings"
	"unicode"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
)

// writeOptions is how every write begins, once its options were checked: it notes what they
// say of it, whether it is a dry run, and who owns the fields that it writes. refused is what
// the check has found.
func (c verbs) writeOptions(refused error) error {
	if refused != nil {
		return refused
	}
	c.Kind.DryRun = c.Options.IsDryRun()
	if c.Manager = c.Options.FieldManager; c.Manager == "" {
		c.Manager = managerOfAgent(c.r.UserAgent())
	}
	return nil
}

// managerOfAgent is upstream's rule: the User-Agent up to the first slash, its
// printable runes, at most 128 bytes.
func managerOfAgent(agent string) string {
	name, _, _ := strings.Cut(agent, "/")
	if plainManager(name) {
		return name
	}
	var b strings.Builder
	for _, r := range name {
		if !unicode.IsPrint(r) {
			continue
		}
		if b.Len()+len(string(r)) > metav1validation.FieldManagerMaxLength {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// plainManager reports whether all of a name counts, as of most programs.
func plainManager(name string) bool {
	for i := range len(name) {
		if name[i] < ' ' || name[i] > '~' {
			return false
		}
	}
	return len(name) <= metav1validation.FieldManagerMaxLength
}
