package health

import (
	"slices"
	"strconv"
	"strings"
)

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
