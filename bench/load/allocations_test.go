package load

import (
	"maps"
	"testing"

	"github.com/quorate/quorate/bench/client"
)

func TestHeap(t *testing.T) {
	both := client.Metrics{heapObjects: 4000, heapBytes: 2.5e6, "other": 1}
	for _, c := range []struct {
		name string
		all  []client.Metrics
		want client.Metrics
	}{
		{"one", []client.Metrics{both}, client.Metrics{heapObjects: 4000, heapBytes: 2.5e6}},
		{"two", []client.Metrics{both, both}, client.Metrics{heapObjects: 8000, heapBytes: 5e6}},
		{"half of it is nothing", []client.Metrics{both, {heapObjects: 4000}}, nil},
		{"nothing", []client.Metrics{{}}, nil},
	} {
		if got := heapOf(c.all); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestAllocationsPerOperation(t *testing.T) {
	before, after := client.Metrics{heapObjects: 1000, heapBytes: 1 << 20}, client.Metrics{heapObjects: 3000, heapBytes: 3 << 20}
	x := Row{Ops: 100}
	if x.perOperation(before, after); x.Allocs != 20 || x.AllocatedBytes != 2<<20/100.0 {
		t.Errorf("%v, %v", x.Allocs, x.AllocatedBytes)
	}
	// A server that does not tell, before or after, leaves both unknown.
	for _, known := range [][2]client.Metrics{{nil, after}, {before, nil}} {
		x = Row{Ops: 100}
		if x.perOperation(known[0], known[1]); x.Allocs != 0 || x.AllocatedBytes != 0 {
			t.Errorf("%v: %v, %v", known, x.Allocs, x.AllocatedBytes)
		}
	}
}
