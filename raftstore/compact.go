package raftstore

import (
	"context"
	"math"
	"time"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

const (
	// compactEvery is how often the floor is moved by age: often and a little,
	// because the work is done in Apply.
	compactEvery = 10 * time.Second
	// markEvery is how often the compactor looks.
	markEvery = time.Second
	// retryWindow stays above the floor as long as it is within HistoryBytes: request
	// ids are forgotten with the history, and a proposal that is sent again must find
	// its own. Proposals are sent again for Timing.NoLeader.
	retryWindow = 5 * time.Second
	// leastWindow stays above the floor whatever its bytes. A proposal that is on its
	// way for longer than that may be refused, and its caller does not learn whether
	// it took effect.
	leastWindow = time.Second
	// leastHistory and mostHistory bound the history where nobody says how much it may take.
	leastHistory, mostHistory = 64 << 20, 1 << 30
)

// HistoryLimit is what the history may take, in bytes, if this node leads: Limits.HistoryBytes, or half of what the live keys
// may take. The history is in memory too, and the storage limit is the only thing that the leader knows of the other nodes' memory.
func (s *Store) HistoryLimit() int64 {
	_, storage := s.Storage()
	return s.cfg.Limits.historyBytes(storage)
}

func (l *Limits) historyBytes(storage int64) int64 {
	switch {
	case l.HistoryBytes > 0:
		return l.HistoryBytes
	case storage == 0:
		return mostHistory
	}
	return max(leastHistory, min(mostHistory, storage/2))
}

// mark says what a state had at a time.
type mark struct {
	at      time.Time
	applied proto.Revision
	written int64 // bytes added to the history until then
}

// marks are what the floor is chosen from, oldest first.
type marks struct {
	state *mvcc.State
	list  []mark
	noted int // marks in the file
}

// add notes what the state has now. A state that a snapshot has replaced counts
// its bytes from the start: the marks of the one before stand for its beginning.
func (m *marks) add(now time.Time, state *mvcc.State) {
	written := state.HistoryWritten()
	switch {
	case m.state == nil: // of the file, with what was written behind them as a negative number
		for i := range m.list {
			m.list[i].written += written
		}
	case m.state != state:
		for i := range m.list {
			m.list[i].written = written
		}
	}
	m.state = state
	m.list = append(m.list, mark{now, state.Applied(), written})
}

// compactor remembers, on every node, what was applied when; the leader proposes
// the floor from it. Only the entry moves the floor, so it is the same on all
// nodes; a new leader starts with its own memory of the last minutes, which is kept in a file.
func (s *Store) compactor() {
	tick := time.NewTicker(min(markEvery, s.cfg.Timing.History/4))
	defer tick.Stop()
	seen := readMarks(s.notes, s.cfg.Timing.History, time.Now())
	var moved, written time.Time
	defer func() {
		now := time.Now()
		seen.add(now, s.State())
		seen.write(s.notes, now)
	}()
	for {
		select {
		case <-s.node.Context().Done():
			return
		case <-tick.C:
			// Not the tick's time: it may have waited here while Compact did.
			now, state := time.Now(), s.State()
			seen.add(now, state)
			if now.Sub(written) >= compactEvery {
				seen.write(s.notes, now)
				written = now
			}
			floor := seen.byAge(s.cfg.Timing.History)
			full := false
			limit, step := s.HistoryLimit(), int64(math.MaxInt64)
			if s.disks.tight.Load() {
				limit, step = min(limit, lowHistory), s.cfg.Limits.ReserveBytes/16
			}
			if _, bytes := state.History(); bytes > limit {
				least := seen.byBytes(limit, state.Floor(), s.cfg.Timing.History)
				if least > 0 {
					least = seen.stepTo(state.Floor(), least, bytes, step)
				}
				full = least > floor
				floor = max(floor, least)
			}
			if floor <= state.Floor() || !s.node.Ready() || !full && now.Sub(moved) < min(compactEvery, s.cfg.Timing.History/4) {
				continue
			}
			ctx, cancel := context.WithTimeout(s.node.Context(), compactEvery)
			if err := s.Compact(ctx, floor); err != nil {
				s.cfg.Logger.Warn("the history floor did not move", "floor", floor, "err", err)
			}
			cancel()
			moved = now
		}
	}
}

// copiedBytes is about what state.db copies at most around a version that goes: three pages.
const copiedBytes = 3 * 4096

// stepTo is a part of the way of the floor from one revision to another: some bytes of a history, or as many revisions as may have as many copied. On a
// full disk each step has to find room: state.db copies what is around the versions that go, and has their pages for the next step only.
func (m *marks) stepTo(from, to proto.Revision, history, step int64) proto.Revision {
	begin := m.list[len(m.list)-1].written - history
	at := mark{applied: from, written: begin}
	for _, k := range m.list {
		switch {
		case k.applied <= from:
			continue
		case k.written-begin >= step:
			part := float64(begin+step-at.written) / float64(k.written-at.written)
			by := at.applied - from + proto.Revision(part*float64(k.applied-at.applied))
			return min(to, from+max(by, proto.Revision(step/copiedBytes), 1))
		}
		at = k
	}
	return to
}

// marksFile is beside the log.
const marksFile = "history-marks"

// readMarks returns what the process before this one has noted. How long no process has run is not known, and clocks
// jump: the history is as long as it is to be, or longer.
func readMarks(notes *notes, history time.Duration, now time.Time) (m marks) {
	var f proto.HistoryMarksFile
	notes.read(marksFile, &f)
	for _, k := range f.Marks {
		age := time.Duration(min(k.AgeMs, uint64(2*history/time.Millisecond))) * time.Millisecond
		m.list = append(m.list, mark{at: now.Add(-age), applied: proto.Revision(k.Applied), written: -int64(k.Bytes)})
	}
	return m
}

// write writes the marks that say something new: of those that have applied the same, the oldest.
func (m *marks) write(notes *notes, now time.Time) {
	f := &proto.HistoryMarksFile{Format: noteFormat, ClusterId: notes.cluster()}
	for i, k := range m.list {
		if i == 0 || k.applied != m.list[i-1].applied {
			f.Marks = append(f.Marks, &proto.HistoryMark{
				AgeMs: uint64(now.Sub(k.at) / time.Millisecond), Applied: uint64(k.applied), Bytes: uint64(m.list[len(m.list)-1].written - k.written),
			})
		}
	}
	if len(f.Marks) == 0 || len(f.Marks) == 1 && m.noted == 1 {
		return
	}
	m.noted = len(f.Marks)
	notes.write(marksFile, "how old the history is", f)
}

// byAge returns the floor of a history as long as window, and forgets the marks
// that no longer count. Zero: nothing is old enough.
func (m *marks) byAge(window time.Duration) (floor proto.Revision) {
	now := m.list[len(m.list)-1].at
	old := 0
	for old < len(m.list) && now.Sub(m.list[old].at) >= window {
		floor = m.list[old].applied
		old++
	}
	m.list = m.list[max(0, old-1):]
	return floor
}

// byBytes returns the floor of a history of window that may have most bytes. It is the lowest one above the present
// floor that leaves three quarters of them, so that not every second makes an entry, but none within the
// retryWindow if what that leaves is within the bound, and none within the leastWindow. Zero: none.
func (m *marks) byBytes(most int64, present proto.Revision, window time.Duration) (floor proto.Revision) {
	last := m.list[len(m.list)-1]
	left := int64(math.MaxInt64)
	for _, k := range m.list {
		age := last.at.Sub(k.at)
		if left <= most*3/4 || left <= most && age < min(retryWindow, window/2) || age < min(leastWindow, window/4) {
			break
		}
		if k.applied > present {
			floor, left = k.applied, last.written-k.written
		}
	}
	return floor
}
