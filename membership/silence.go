package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/proto"
)

// silenceEvery is how often a leader asks at most whether members without a vote answer.
const silenceEvery = 30 * time.Second

// silenceWatch removes, while this node leads, members without a vote that have not answered for
// Options.RemoveNonvoterAfter. They cost the quorum nothing, but no feature version rises while they are members. A
// voter is never removed so: a cluster that takes votes away by itself loses its majority step by step.
type silenceWatch struct {
	*changes
	callers *callers // since the leader has last asked who is alive
}

func (w silenceWatch) run(ctx context.Context) {
	after := w.opt.RemoveNonvoterAfter
	if after <= 0 {
		return
	}
	every := max(min(after/10, silenceEvery), w.opt.Tick)
	var s silences
	var asked time.Time
	for sleep(ctx, every, nil) == nil {
		conf := w.raft.Members()
		if !w.raft.IsLeader() || !slices.ContainsFunc(conf.Servers, func(s Server) bool { return !s.Voter }) {
			s = silences{}
			continue
		}
		now := time.Now()
		// While this process was stopped, nobody could answer it.
		since := min(now.Sub(asked), 2*every)
		asked = now
		s.note(w.whoAnswers(ctx, conf), since)
		for _, id := range s.dead(conf, after) {
			if err := w.removeDead(ctx, id, after); err != nil && ctx.Err() == nil {
				w.log.Warn("a non-voter that does not answer is not removed, retrying", "node", id, "silentFor", s.of[id], "err", err)
			}
		}
	}
}

// look is whom the leader of a term has heard of when it asked all members.
type look struct {
	term  uint64
	self  proto.NodeID
	conf  Configuration
	heard map[proto.NodeID]bool
}

// whoAnswers asks all members. One that has an answer of any kind, or has called this node since the look before, is alive.
func (w silenceWatch) whoAnswers(ctx context.Context, conf Configuration) look {
	l := look{term: w.raft.Status(ctx).Term, self: w.id.ID(), conf: conf, heard: w.callers.take()}
	for id, a := range w.askAll(ctx, conf.Servers) {
		if !errors.Is(a.err, errNotReached) {
			l.heard[id] = true
		}
	}
	return l
}

// isCutOff says whether it may be this leader that nobody reaches.
func (l look) isCutOff() bool {
	voters, heard, others := 0, 0, 0
	for _, s := range l.conf.Servers {
		if s.Voter {
			voters++
		}
		if s.Voter && l.heard[s.ID] {
			heard++
		}
		if s.ID != l.self && l.heard[s.ID] {
			others++
		}
	}
	return heard < voters/2+1 || others == 0
}

// silences are for how long members without a vote have not been heard of by one leader in one term.
type silences struct {
	term uint64
	of   map[proto.NodeID]time.Duration
}

// note adds a look, and the time since the one before. Who is new, or has just lost its vote, begins with nothing, and so do
// all when the term is another one or the leader may be cut off.
func (s *silences) note(l look, since time.Duration) {
	next := map[proto.NodeID]time.Duration{}
	begin := l.term != s.term || l.isCutOff()
	for _, m := range l.conf.Servers {
		if m.Voter {
			continue
		}
		silent, known := s.of[m.ID]
		if begin || !known || l.heard[m.ID] {
			next[m.ID] = 0
		} else {
			next[m.ID] = silent + since
		}
	}
	s.term, s.of = l.term, next
}

// dead are those that have been silent for long enough.
func (s *silences) dead(conf Configuration, after time.Duration) (ids []proto.NodeID) {
	for _, m := range conf.Servers {
		if !m.Voter && s.of[m.ID] >= after {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// removeDead removes a member without a vote if it still does not answer.
func (w silenceWatch) removeDead(ctx context.Context, id proto.NodeID, after time.Duration) error {
	if err := w.lockChanges(ctx); err != nil {
		return err
	}
	defer w.unlockChanges()
	f := w.survey(ctx)
	target, member := f.conf.Find(id)
	if !member || target.Voter || f.health[id].alive {
		return nil
	}
	if why := f.liveMajority(f.voters("")); why != "" {
		return fmt.Errorf("%w: %s", ErrRefused, why)
	}
	w.log.Warn("a non-voter has not answered for too long and is removed", "node", id, "name", f.names[id], "after", after, "said", f.health[id].err)
	return w.remove(ctx, f, target, f.names[id], false, 0)
}

// noteCaller notes that a member is alive.
func (m *Manager) noteCaller(id proto.NodeID) {
	if _, member := m.raft.Members().Find(id); member {
		m.callers.note(id)
	}
}

// callers are members that have called this node.
type callers struct {
	mu  sync.Mutex
	ids map[proto.NodeID]bool // guarded by mu
}

func (c *callers) note(id proto.NodeID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids == nil {
		c.ids = map[proto.NodeID]bool{}
	}
	c.ids[id] = true
}

// take returns those since it was called last.
func (c *callers) take() map[proto.NodeID]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := c.ids
	c.ids = nil
	if ids == nil {
		ids = map[proto.NodeID]bool{}
	}
	return ids
}
