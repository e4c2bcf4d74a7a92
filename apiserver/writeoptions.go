package apiserver

import (
	"strings"
	"unicode"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
)

// writeOptions is how a create, an update or a patch begins: its options are checked, as
// the kind that upstream names in the error, and noted.
func (c *call) writeOptions(kind string) error {
	if err := c.Options.CheckModify(kind); err != nil {
		return err
	}
	c.noteWrite()
	return nil
}

// noteWrite notes what the options of a write, which have been checked, say of it: whether
// it is a dry run, and who owns the fields that it writes.
func (c *call) noteWrite() {
	c.Kind.DryRun = c.Options.IsDryRun()
	if c.Manager = c.Options.FieldManager; c.Manager == "" {
		c.Manager = managerOfAgent(c.r.UserAgent())
	}
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
