package sim

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quorate/quorate/apiserver/objects/storage"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Objects that use something, and the limit of what they use together.
const (
	chargedTable = "sim/charged"
	limitTable   = "sim/limits"
	limitKey     = "box/limit"
	chargedUnit  = "units"
)

// charger makes and deletes objects that use something, and changes their limit.
type charger struct {
	c   *cluster
	rng *rand.Rand
}

func (k *charger) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		time.Sleep(time.Duration(k.rng.ExpFloat64() * float64(k.c.profile.think)))
		if s := k.c.anySeat(k.rng); s != nil && !s.isDrained() {
			k.step(s)
		}
	}
}

// step makes one write through a node. What came of it is in the log.
func (k *charger) step(s *seat) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	w := &proto.Write{Table: chargedTable, Key: fmt.Sprint("box/", k.rng.IntN(12)), Op: proto.Op_OP_PUT, Value: []byte("v"), EnforceLimits: true}
	switch dice := k.rng.IntN(100); {
	case dice < 12:
		w.Table, w.Key = limitTable, limitKey
		w.Limits = []*proto.Limit{{Bounds: []*proto.Bound{
			{Name: chargedUnit, Max: int64(3 + k.rng.IntN(12))}, {Name: "keys", Max: int64(3 + k.rng.IntN(8)), Table: chargedTable},
		}}}
	case dice < 15:
		w.Table, w.Key, w.Op = limitTable, limitKey, proto.Op_OP_DELETE
	case dice < 45:
		w.Op = proto.Op_OP_DELETE
	default:
		w.Usage = &proto.Usage{Amounts: []*proto.Amount{{Name: chargedUnit, Value: int64(k.rng.IntN(5))}}}
		w.EnforceLimits = k.rng.IntN(10) > 0
	}
	// Whether it was lost is the business of other clients.
	_ = s.ask(ctx, func(ctx context.Context, n *node) {
		_, _, _ = storage.Propose(ctx, n.store, w)
	})
}

// boxed is what follows from the log: a recount at each index.
type boxed struct {
	units   map[string]int64
	bounds  []*proto.Bound // nil: no limit
	broken  []string
	refused int
}

func (b *boxed) used() (units, keys int64) {
	for _, n := range b.units {
		units += n
	}
	return units, int64(len(b.units))
}

// apply takes the next write to one of the tables, with its outcome.
func (b *boxed) apply(index uint64, w *proto.Write, outcome proto.Outcome) {
	units, keys := b.used()
	before, existed := b.units[w.Key]
	var is int64
	for _, a := range w.Usage.GetAmounts() {
		is += a.Value
	}
	more := []int64{is - before, 1}
	if existed {
		more[1] = 0
	}
	over := false
	for i, used := range []int64{units, keys} {
		over = over || b.bounds != nil && more[i] > 0 && used+more[i] > b.bounds[i].Max
	}
	charged := w.Table == chargedTable && w.Op == proto.Op_OP_PUT
	switch {
	case outcome == proto.Outcome_OUTCOME_LIMIT_EXCEEDED:
		b.refused++
		if !charged || !over || !w.EnforceLimits {
			b.broken = append(b.broken, fmt.Sprintf("limits: entry %d is refused: %v; %d units of %d keys are used of %v", index, w, units, keys, b.bounds))
		}
		return
	case outcome != proto.Outcome_OUTCOME_APPLIED:
		return
	case charged && over && w.EnforceLimits:
		b.broken = append(b.broken, fmt.Sprintf("limits: entry %d takes effect: %v; %d units of %d keys are used of %v", index, w, units, keys, b.bounds))
	}
	switch {
	case w.Table == limitTable && w.Op == proto.Op_OP_DELETE:
		b.bounds = nil
	case w.Table == limitTable:
		b.bounds = w.Limits[0].Bounds
	case w.Op == proto.Op_OP_DELETE:
		delete(b.units, w.Key)
	default:
		b.units[w.Key] = is
	}
}

// box goes through all that was written to the box.
func (t *trace) box() *boxed {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := &boxed{units: map[string]int64{}}
	for _, i := range slices.Sorted(maps.Keys(t.boxed)) {
		e := t.boxed[i]
		b.apply(i, e.write, e.outcome)
	}
	return b
}

// boxEntry is a write to the box.
type boxEntry struct {
	write   *proto.Write
	outcome proto.Outcome
}

// noteBox keeps a write to the box.
func (t *trace) noteBox(index uint64, body []byte, r mvcc.Result) {
	w := new(proto.Write)
	if proto.Decode(body, w) == nil && (w.Table == chargedTable || w.Table == limitTable) {
		t.boxed[index] = boxEntry{w, r.Outcome}
	}
}

// limits judges what was written to the box, and what the members say is used.
func (c *cluster) limits() {
	b := c.trace.box()
	for _, text := range b.broken {
		c.fail("%s", text)
	}
	var want []mvcc.BoundUse
	units, keys := b.used()
	if b.bounds != nil {
		want = []mvcc.BoundUse{{Name: chargedUnit, Used: units, Max: b.bounds[0].Max}, {Name: "keys", Used: keys, Max: b.bounds[1].Max}}
	}
	for _, s := range c.members() {
		if n := s.running(); n != nil {
			if got, at := n.store.State().Usage(limitTable, limitKey); !slices.Equal(got, want) {
				c.fail("limits: %s says as of %d that %v is used, a recount finds %v", s.name, at, got, want)
			}
		}
	}
}
