package raftstore

import (
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
)

// packer packs, on every node, what is not likely to be read soon (mvcc.State.Pack). It ends with
// the store.
func (s *Store) packer() {
	old, fresh := min(packOld, s.cfg.Timing.History/4), min(packFresh, s.cfg.Timing.History/2)
	tick := time.NewTicker(min(packEvery, old/2))
	defer tick.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	var state *mvcc.State
	var was []mark // oldest first
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		if s.State() != state {
			// A snapshot has brought another one: how old what is in it is nobody knows.
			state, was = s.State(), nil
		}
		was = append(was, mark{at: now, applied: state.Applied()})
		for len(was) > 1 && now.Sub(was[1].at) >= fresh {
			was = was[1:]
		}
		for from := now; state.Pack(appliedBefore(was, now.Add(-old)), appliedBefore(was, now.Add(-fresh))); from = time.Now() {
			pause.Reset((packShare - 1) * time.Since(from))
			select {
			case <-s.ctx.Done():
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
