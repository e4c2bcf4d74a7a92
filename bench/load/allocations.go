package load

import (
	"context"

	"github.com/quorate/quorate/bench/client"
)

// allocations is what the Go heaps of all servers have allocated since their start. Its zero value
// says that it is not known: a server does not serve these metrics, or not to this client.
type allocations struct{ objects, bytes float64 }

// allocations asks all servers, each on a connection of its own. What the question itself allocates
// is in the answer to the next one: some thousand objects.
func (b *bench) allocations(ctx context.Context) (sum allocations) {
	servers := len(b.target.Servers())
	if b.target.Etcd || servers > len(b.conns) {
		return allocations{}
	}
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	for _, c := range b.conns[:servers] {
		m, err := c.Metrics(ctx)
		one := allocated(m)
		if err != nil || one == (allocations{}) {
			return allocations{}
		}
		sum.objects, sum.bytes = sum.objects+one.objects, sum.bytes+one.bytes
	}
	return sum
}

// allocated are the two counters of Go's runtime; half of it is nothing.
func allocated(m client.Metrics) allocations {
	a := allocations{m["go_memstats_mallocs_total"], m["go_memstats_alloc_bytes_total"]}
	if a.objects == 0 || a.bytes == 0 {
		return allocations{}
	}
	return a
}

// perOperation sets what each operation of a row allocated.
func (x *Row) perOperation(before, after allocations) {
	if before == (allocations{}) || after == (allocations{}) || x.Ops == 0 {
		return
	}
	x.Allocs = (after.objects - before.objects) / float64(x.Ops)
	x.AllocatedBytes = (after.bytes - before.bytes) / float64(x.Ops)
}
