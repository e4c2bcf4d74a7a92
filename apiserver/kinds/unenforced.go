package kinds

import (
	"fmt"
	"strings"
)

// Unenforced is what upstream's admission does with objects of a kind and this server
// does not: they are stored, and anyone who writes one is told that it has no effect.
type Unenforced struct {
	// Warning is the text for the client.
	Warning string `json:"warning"`
}

// Unheeded is what this server does not enforce of the resource's objects, for who writes one.
func (r *Resource) Unheeded() (warnings []string) {
	for i := range r.Unenforced {
		warnings = append(warnings, r.Unenforced[i].Warning)
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
