package load

import (
	"testing"

	"github.com/quorate/quorate/bench/client"
)

func TestParseAllocations(t *testing.T) {
	const both = "# HELP x y\ngo_memstats_alloc_bytes 5\ngo_memstats_alloc_bytes_total 2.5e+06\ngo_memstats_mallocs_total 4000\nx{a=\"go_memstats_mallocs_total 1\"} 3\n"
	for text, want := range map[string]allocations{
		both:                               {objects: 4000, bytes: 2.5e6},
		"go_memstats_mallocs_total 4000\n": {}, // half of it is nothing
		"":                                 {},
	} {
		if got := allocated(client.ParseMetrics([]byte(text))); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestAllocationsPerOperation(t *testing.T) {
	before, after := allocations{objects: 1000, bytes: 1 << 20}, allocations{objects: 3000, bytes: 3 << 20}
	x := Row{Ops: 100}
	if x.perOperation(before, after); x.Allocs != 20 || x.AllocatedBytes != 2<<20/100.0 {
		t.Errorf("%v, %v", x.Allocs, x.AllocatedBytes)
	}
	// A server that does not tell, before or after, leaves both unknown.
	for _, known := range [][2]allocations{{{}, after}, {before, {}}} {
		x = Row{Ops: 100}
		if x.perOperation(known[0], known[1]); x.Allocs != 0 || x.AllocatedBytes != 0 {
			t.Errorf("%v: %v, %v", known, x.Allocs, x.AllocatedBytes)
		}
	}
}
