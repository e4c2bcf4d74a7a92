package raftstore

import (
	"runtime/metrics"
	"time"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

const (
	// packOld is for how long a superseded version stays as it is: watchers that are not behind
	// have read it, and the disk has it. packFresh is for how long the newest one of a key does: what
	// changes more often is not packed again and again.
	packOld   = 5 * time.Second
	packFresh = 30 * time.Second
	// packEvery is how often the packer looks, and packShare how much of a core it takes at most:
	// one part of so many.
	packEvery = time.Second
	packShare = 8
	// packRest is for how long fewer than restWrites entries are applied, and fewer than restAllocated bytes allocated
	// by all that the process does, until a burst is over: then both kinds stay no longer than that, because what
	// it has left is not likely to be changed or read soon, and the packer may take more of a core, so that
	// the memory is free when the process gives it back.
	packRest      = time.Second
	restWrites    = 50
	restAllocated = 2 << 20
	restShare     = 4
)

// packing is after what time versions are packed.
type packing struct{ old, fresh, rest time.Duration }

// due returns up to which revision superseded versions are packed, up to which the newest ones, and in how many
// parts a core is. was says what had been applied when, oldest first; allocated is how many bytes were since the last look.
func (p packing) due(was []mark, now time.Time, applied proto.Revision, allocated uint64) (old, fresh proto.Revision, share time.Duration) {
	if at := appliedBefore(was, now.Add(-p.rest)); at > 0 && applied < at+restWrites && allocated < restAllocated {
		return at, at, restShare
	}
	return appliedBefore(was, now.Add(-p.old)), appliedBefore(was, now.Add(-p.fresh)), packShare
}

// packer packs, on every node, what is not likely to be read soon (mvcc.State.Pack). It ends with
// the store.
func (s *Store) packer() {
	p := packing{old: min(packOld, s.cfg.Timing.History/4), fresh: min(packFresh, s.cfg.Timing.History/2)}
	p.rest = min(packRest, p.old)
	tick := time.NewTicker(min(packEvery, p.old/2))
	defer tick.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	allocated := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(allocated)
	var state *mvcc.State
	var was []mark // oldest first
	for {
		select {
		case <-s.node.Context().Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		if s.State() != state {
			// A snapshot has brought another one: how old what is in it is nobody knows.
			state, was = s.State(), nil
		}
		was = append(was, mark{at: now, applied: state.Applied()})
		for len(was) > 1 && now.Sub(was[1].at) >= p.fresh {
			was = was[1:]
		}
		before := allocated[0].Value.Uint64()
		metrics.Read(allocated)
		old, fresh, share := p.due(was, now, state.Applied(), allocated[0].Value.Uint64()-before)
		for from := now; state.Pack(old, fresh); from = time.Now() {
			pause.Reset((share - 1) * time.Since(from))
			select {
			case <-s.node.Context().Done():
				return
			case <-pause.C:
			}
		}
	}
}

// appliedBefore is what had been applied at a time, as far as the marks say.
func appliedBefore(was []mark, t time.Time) (applied proto.Revision) {
	for _, m := range was {
		if m.at.After(t) {
			break
		}
		applied = m.applied
	}
	return applied
}
