package health

import (
	"slices"
	"strconv"
	"strings"
)

// exclude reports whether one of c's names is among those to leave out, and notes each that is.
func exclude(excluded map[string]bool, c Check) bool {
	skip := false
	for _, name := range c.names() {
		if _, named := excluded[name]; named {
			excluded[name], skip = true, true
		}
	}
	return skip
}

// unmatched lists the excludes that named no check: quoted, sorted, joined.
func unmatched(excluded map[string]bool) string {
	var names []string
	for name, found := range excluded {
		if !found {
			names = append(names, strconv.Quote(name))
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}
