// Package words writes lists and numbers as people do.
package words

import (
	"fmt"
	"strings"
)

// And is a list: a, b and c.
func And(list []string) string { return join(list, " and ") }

// Or is a choice: a, b or c.
func Or(list []string) string { return join(list, " or ") }

func join(list []string, last string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	n := len(list) - 1
	return strings.Join(list[:n], ", ") + last + list[n]
}

// Count is a number of things: 1 node, 2 nodes.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
