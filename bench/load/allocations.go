package load

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"

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
		var text bytes.Buffer
		if _, err := c.Do(ctx, client.Request{Method: http.MethodGet, Path: "/metrics", Header: client.Plain}, &text); err != nil {
			return allocations{}
		}
		one := parseAllocations(&text)
		if one == (allocations{}) {
			return one
		}
		sum.objects, sum.bytes = sum.objects+one.objects, sum.bytes+one.bytes
	}
	return sum
}

// parseAllocations finds the two counters of Go's runtime in a text of metrics.
func parseAllocations(text *bytes.Buffer) (a allocations) {
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		switch name {
		case "go_memstats_mallocs_total":
			a.objects, _ = strconv.ParseFloat(value, 64)
		case "go_memstats_alloc_bytes_total":
			a.bytes, _ = strconv.ParseFloat(value, 64)
		}
	}
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
