//go:build linux

package nodes

import (
	"testing"
)

// TestNodes is all that is done with real nodes, one after the other on one site.
func TestNodes(t *testing.T) {
	if skipped != "" {
		t.Skip(skipped)
	}
	s := newSite(t)
	t.Log(s.kubectl(t, "get", "nodes", "-o", "wide"))
}
