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
			_, bytes := state.History()
			var floor proto.Revision
			marks, floor = trimMarks(append(marks, mark{now, state.Applied()}), s.cfg.Timing.History, bytes > s.cfg.Limits.HistoryBytes)
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

// trimMarks returns the floor for a history as long as window, or for half of
// what there is if that holds too many bytes, and the marks that are still
// needed. The last mark is now's. The floor is never newer than the one before:
// request ids are forgotten with the history, and a proposal that is sent again
// must find its own.
func trimMarks(marks []mark, window time.Duration, tooMany bool) ([]mark, proto.Revision) {
	now := marks[len(marks)-1].at
	var floor proto.Revision
	// The newest mark that is old enough.
	old := 0
	for old < len(marks) && now.Sub(marks[old].at) >= window {
		floor = marks[old].applied
		old++
	}
	marks = marks[max(0, old-1):]
	if tooMany && len(marks) > 1 {
		half := (len(marks) - 1) / 2
		floor = max(floor, marks[half].applied)
		marks = marks[half:]
	}
	return marks, floor
}
