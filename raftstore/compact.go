package raftstore

import (
	"context"
	"time"

	"github.com/quorate/quorate/proto"
)

// compactEvery is how often the floor is moved: often and a little, because the
// work is done in Apply.
const compactEvery = 10 * time.Second

// mark says which index this node had applied at a time.
type mark struct {
	at      time.Time
	applied proto.Revision
}

// compactor remembers, on every node, what was applied when; the leader proposes
// the floor from it. Only the entry moves the floor, so it is the same on all
// nodes; a new leader starts with its own memory of the last minutes.
func (s *Store) compactor() {
	every := min(compactEvery, s.cfg.Timing.History/4)
	tick := time.NewTicker(every)
	defer tick.Stop()
	var marks []mark
	for {
		select {
		case <-s.ctx.Done():
			return
		case now := <-tick.C:
			state := s.State()
			marks = append(marks, mark{now, state.Applied()})
			floor := state.Floor()
			// The newest mark that is old enough.
			old := 0
			for old < len(marks) && now.Sub(marks[old].at) >= s.cfg.Timing.History {
				floor = max(floor, marks[old].applied)
				old++
			}
			marks = marks[max(0, old-1):]
			if _, bytes := state.History(); bytes > s.cfg.Limits.HistoryBytes && len(marks) > 1 {
				// Too many bytes for the whole window: give up its older half.
				half := len(marks) / 2
				floor = max(floor, marks[half].applied)
				marks = marks[half:]
			}
			if floor <= state.Floor() || !s.leader.ready() {
				continue
			}
			ctx, cancel := context.WithTimeout(s.ctx, every)
			if err := s.Compact(ctx, floor); err != nil {
				s.cfg.Logger.Warn("the history floor did not move", "floor", floor, "error", err)
			}
			cancel()
		}
	}
}
