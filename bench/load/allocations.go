package load

import (
	"context"

	"github.com/quorate/quorate/bench/client"
)

// The counters of Go's runtime that say what has been allocated since the start.
const (
	heapObjects = "go_memstats_mallocs_total"
	heapBytes   = "go_memstats_alloc_bytes_total"
)

// heap asks all servers, each on a connection of its own, for the sums of their counters; nil if one does not serve
// them, or not to this client. What the question itself allocates is in the answer to the next one: some thousand objects.
func (b *bench) heap(ctx context.Context) client.Metrics {
	servers := len(b.target.Servers())
	if b.target.Etcd || servers > len(b.conns) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	var all []client.Metrics
	for _, c := range b.conns[:servers] {
		m, err := c.Metrics(ctx)
		if err != nil {
			return nil
		}
		all = append(all, m)
	}
	return heapOf(all)
}

func heapOf(all []client.Metrics) client.Metrics {
	sum := client.Metrics{}
	for _, m := range all {
		for _, name := range []string{heapObjects, heapBytes} {
			if m[name] == 0 {
				return nil // half of it is nothing
			}
			sum[name] += m[name]
		}
	}
	return sum
}

// perOperation sets what each operation of a row allocated.
func (x *Row) perOperation(before, after client.Metrics) {
	if len(before) > 0 && len(after) > 0 && x.Ops > 0 {
		x.Allocs = (after[heapObjects] - before[heapObjects]) / float64(x.Ops)
		x.AllocatedBytes = (after[heapBytes] - before[heapBytes]) / float64(x.Ops)
	}
}
