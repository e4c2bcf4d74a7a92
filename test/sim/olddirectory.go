package sim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/proto"
)

// oldDirectory puts a voter's whole directory back to what it was some acknowledged writes ago, as a machine's
// snapshot does. Nothing in the directory tells; a node that has heard the acknowledgements can. The voter meets
// one of those, and must take no part from then on. Then it is removed, as operators are told to. Once in a run.
//
// "to its leader": one other machine has the writes, and what the voter hears of it before that machine ends is
// anything but entries. Left alone with the third, which lacks them, it would elect it without them.
// "one of two": all have the writes, and the voter meets any one of the others first.
// "all": all are restarted, with the old directory among them.
func (n *nemesis) oldDirectory() ([]string, string, func()) {
	ctx, cancel := n.until(20 * time.Second)
	defer cancel()
	l := n.c.leader()
	if n.old > 0 || l == nil || n.c.voters(l) != 3 {
		return nil, "", nil
	}
	voters := slices.DeleteFunc(without(n.c.members(), l.seat), func(s *seat) bool { return !s.votes() || s.running() == nil })
	if len(voters) != 2 {
		return nil, "", nil
	}
	n.rng.Shuffle(2, func(i, j int) { voters[i], voters[j] = voters[j], voters[i] })
	v, third := voters[0], voters[1]
	kind := []string{"to its leader", "one of two", "all"}[n.rng.IntN(3)]
	nodes := []string{v.name, l.name, third.name}
	saved := filepath.Join(n.c.dir, v.name+".saved")
	n.kill([]*seat{v}, n.rng.IntN(2) == 0)
	if err := v.saveDirectory(saved); err != nil {
		return nodes, err.Error(), func() { n.up([]*seat{v}) }
	}
	n.up([]*seat{v})
	if !await(ctx, func() bool { return v.running() != nil }) {
		return nodes, "not that far", nil
	}
	copied := v.running().store.Status().LastLogIndex
	heal := func() {}
	if kind == "to its leader" {
		heal = sync.OnceFunc(n.cut(between([]*seat{third}, n.c.members())))
	}
	defer heal()
	leads := l.seat
	if n.rng.IntN(2) == 0 { // a leader acknowledges, too
		if err := l.store.TransferLeadership(ctx, proto.NodeID(v.name)); err == nil && await(ctx, func() bool { r := n.c.leader(); return r != nil && r.seat == v }) {
			leads = v
		}
	}
	<-n.burst(leads, 8)
	lead := leads.running()
	if lead == nil {
		return nodes, "not that far", nil
	}
	had := uint64(lead.store.Applied())
	knows := func(s *seat) bool {
		r := s.running()
		return r != nil && r.store.Acknowledged(proto.NodeID(v.name)) >= had
	}
	if had <= copied || !await(ctx, func() bool {
		r := v.running()
		return r != nil && uint64(r.store.Applied()) >= had && knows(l.seat) && (kind == "to its leader" || knows(third))
	}) {
		return nodes, "not that far", nil
	}
	n.kill([]*seat{v}, n.rng.IntN(2) == 0)
	if !v.putBack(saved) {
		return nodes, "not that far", func() { n.up([]*seat{v}) }
	}
	n.old++
	down := n.meet(ctx, kind, v, l.seat, third, heal)
	_ = sleep(ctx, 500*time.Millisecond+time.Duration(n.rng.Int64N(int64(2*time.Second))))
	n.up(down)
	n.c.retire(ctx)
	return nodes, kind, nil
}

// meet starts a voter with an old directory, and has it meet who knows of that. It returns the machines that were ended for it.
func (n *nemesis) meet(ctx context.Context, kind string, v, leader, third *seat, heal func()) (down []*seat) {
	switch kind {
	case "to its leader":
		n.c.net.setNarrow(leader.name, n.c.members(), true)
		n.up([]*seat{v})
		down = []*seat{leader}
		met := await(ctx, func() bool { return v.isRefused() || v.has(leader.name) })
		n.kill(down, n.rng.IntN(2) == 0)
		n.c.net.setNarrow(leader.name, n.c.members(), false)
		if met {
			heal()
		}
	case "one of two":
		down = []*seat{[]*seat{leader, third}[n.rng.IntN(2)]}
		n.kill(down, n.rng.IntN(2) == 0)
		n.up([]*seat{v})
	default:
		down = []*seat{leader, third}
		n.kill(down, n.rng.IntN(2) == 0)
		n.up([]*seat{v, leader, third})
	}
	return down
}

// saveDirectory copies the directory of a machine whose process was killed.
func (s *seat) saveDirectory(to string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		return errors.New("it was not killed")
	}
	return errors.Join(os.RemoveAll(to), copyDir(s.dir, to))
}

// putBack replaces it by the copy.
func (s *seat) putBack(saved string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		return false
	}
	s.old = true
	if err := errors.Join(os.RemoveAll(s.dir), copyDir(saved, s.dir)); err != nil {
		s.c.fail("%v", err)
	}
	return true
}

func (s *seat) isOld() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.old
}

func (s *seat) isRefused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// has reports whether the seat's process has compared with another one, or would go on without.
func (s *seat) has(other string) bool {
	r := s.running()
	return r != nil && r.store.Compared(proto.NodeID(other))
}

// foundOld waits until machines whose directories were put back have noticed it.
func (c *cluster) foundOld(ctx context.Context) {
	for _, s := range c.members() {
		if s.isOld() && !await(ctx, s.isRefused) {
			c.fail("%s runs on an old copy of its directory, and nobody has noticed", s.name)
		}
	}
}
