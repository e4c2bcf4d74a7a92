//go:build linux

package nodes

import (
	"maps"
	"slices"
	"testing"

	"github.com/quorate/quorate/test/harness/isolated"
)

// TestNodes is all that is done with real nodes on one site.
func TestNodes(t *testing.T) {
	if why := isolated.Skipped(); why != "" {
		t.Skipf("%s; to have the proof: make nodes, as root", why)
	}
	s := newSite(t)
	t.Log("\n" + s.kubectl(t, "get", "nodes", "-o", "wide"))
	t.Run("Workloads", func(t *testing.T) {
		for _, name := range slices.Sorted(maps.Keys(workloads)) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				workloads[name](t, s)
			})
		}
	})
	t.Run("ExtensionServers", func(t *testing.T) { testExtensionServers(t, s) })
	t.Run("Drain", func(t *testing.T) { testDrain(t, s) })
	t.Run("Faults", func(t *testing.T) { testFaults(t, s) })
	s.reportRefusals(t)
}
