package listener

import (
	"container/list"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestIdleList compares it with a plain list of those that are idle.
func TestIdleList(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var l idleList
	var all, idle []*connection
	places := map[*connection]*list.Element{}
	for range 20_000 {
		switch {
		case len(all) < 2 || random.IntN(8) == 0:
			c := &connection{}
			places[c] = l.add(c)
			all = append(all, c)
		default:
			c := all[random.IntN(len(all))]
			at := slices.Index(idle, c)
			if at < 0 {
				l.idle(places[c])
				idle = append(idle, c)
				break
			}
			l.busy(places[c])
			idle = slices.Delete(idle, at, at+1)
			if len(all) > 12 {
				l.remove(places[c])
				all = slices.DeleteFunc(all, func(x *connection) bool { return x == c })
			}
		}
		if l.count != len(idle) || l.conns.Len() != len(all) || (l.first == nil) != (len(idle) == 0) {
			t.Fatalf("%d idle of %d, want %d of %d", l.count, l.conns.Len(), len(idle), len(all))
		}
		if len(idle) > 0 && l.longest() != idle[0] {
			t.Fatal("another one is idle for longer")
		}
	}
}
