package kinds

import (
	"fmt"
	"strings"
)

// Unenforced is what upstream's admission does with objects of a kind and this server
// does not: they are stored, and anyone who writes one is told that it has no effect. If a
// condition is given, only objects that meet it are meant; several are alternatives.
type Unenforced struct {
	// Warning is the text for the client.
	Warning string `json:"warning"`
	// Labels is a prefix of names of labels.
	Labels string `json:"labels,omitempty"`
}

// concerns reports whether an object is meant.
func (u *Unenforced) concerns(obj map[string]any) bool {
	if u.Labels == "" {
		return true
	}
	metadata, _ := obj["metadata"].(map[string]any)
	if labels, _ := metadata["labels"].(map[string]any); u.Labels != "" {
		for name := range labels {
			if strings.HasPrefix(name, u.Labels) {
				return true
			}
		}
	}
	return false
}

// Unheeded is what an object of the resource says that this server does not enforce, for
// its writer.
func (r *Resource) Unheeded(obj map[string]any) (warnings []string) {
	for i := range r.Unenforced {
		if u := &r.Unenforced[i]; u.concerns(obj) {
			warnings = append(warnings, u.Warning)
		}
	}
	return warnings
}

func checkUnenforced(list []Unenforced) error {
	for i := range list {
		if !strings.Contains(list[i].Warning, "NOT enforced") {
			return fmt.Errorf("unenforced: the warning %q does not say that something is NOT enforced", list[i].Warning)
		}
	}
	return nil
}
