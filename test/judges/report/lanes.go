package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/test/judges/history"
)

// assignLanes gives every client a lane. Clients whose times do not overlap share
// one: a client that lost an answer goes on under another number.
func (d *data) assignLanes(h *history.History, end time.Duration) {
	type life struct {
		key      laneKey
		from, to time.Duration
	}
	lives := map[laneKey]*life{}
	note := func(k laneKey, from, to time.Duration) {
		l := lives[k]
		if l == nil {
			lives[k] = &life{k, from, to}
			return
		}
		l.from, l.to = min(l.from, from), max(l.to, to)
	}
	for i := range h.Ops {
		o := &h.Ops[i]
		to := o.Return
		if to == history.Forever || o.Outcome == history.Unknown {
			to = o.Call + 1
		}
		note(laneKey{false, o.Client}, o.Call, to)
	}
	for i := range h.Watches {
		w := &h.Watches[i]
		note(laneKey{true, w.Client}, w.Begin, min(lastOf(w), end))
	}
	order := make([]*life, 0, len(lives))
	for _, l := range lives {
		order = append(order, l)
	}
	slices.SortFunc(order, func(a, b *life) int {
		if a.key.watch != b.key.watch {
			if b.key.watch {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.key.client, b.key.client))
	})
	var busy []time.Duration // of each lane, until when
	for _, l := range order {
		n := slices.IndexFunc(busy, func(t time.Duration) bool { return t < l.from })
		for n >= 0 && d.Lanes[n].Watch != l.key.watch {
			if next := slices.IndexFunc(busy[n+1:], func(t time.Duration) bool { return t < l.from }); next >= 0 {
				n += 1 + next
			} else {
				n = -1
			}
		}
		if n >= 0 {
			busy[n] = l.to
		} else {
			n = len(busy)
			busy = append(busy, l.to)
			d.Lanes = append(d.Lanes, lane{name(l.key), l.key.watch})
		}
		d.lanes[l.key] = n
	}
}

// name is of the first client of a lane.
func name(k laneKey) string {
	if k.watch {
		return fmt.Sprintf("watch %d", k.client)
	}
	return fmt.Sprintf("c%d", k.client)
}
