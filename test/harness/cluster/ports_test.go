package cluster

import (
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// TestPortsAreHandedOutOnce: not again before the end of the process that has them, and
// not to another one, which finds the block's name taken.
func TestPortsAreHandedOutOnce(t *testing.T) {
	taken := map[int]bool{}
	for i := range 100 {
		n := 1 + i%21
		p, err := FreePorts(n)
		must.OK(t, err)
		for port := p; port < p+n; port++ {
			for _, x := range []int{port, port + peerPorts} {
				if taken[x] {
					t.Fatalf("port %d was handed out twice", x)
				}
				taken[x] = true
				if x < firstPort || x >= 20000 {
					t.Errorf("port %d may be taken by a cluster of quorate bench", x)
				}
			}
		}
		if held, ok := holdPorts(p, 1); ok {
			release(held)
			t.Fatalf("another process could take port %d", p)
		}
	}
}
