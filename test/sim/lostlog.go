package sim

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// lostLog takes a voter's log away, or puts an old copy of it back, after it has
// acknowledged writes that one other machine has, and leaves it alone with one that
// lacks them. It must not start: with its vote the other would be elected without the
// writes. Then it is removed, as operators are told to. Once in a run.
func (n *nemesis) lostLog() ([]string, string, func()) {
	ctx, cancel := n.until(10 * time.Second)
	defer cancel()
	l := n.c.leader()
	if n.lost > 0 || l == nil || n.c.voters(l) != 3 {
		return nil, "", nil
	}
	voters := slices.DeleteFunc(without(n.c.members(), l.seat), func(s *seat) bool { return !s.votes() || s.running() == nil })
	if len(voters) != 2 {
		return nil, "", nil
	}
	n.rng.Shuffle(2, func(i, j int) { voters[i], voters[j] = voters[j], voters[i] })
	v, behind := voters[0], voters[1]
	n.lost++
	old := filepath.Join(n.c.dir, v.name+".old")
	kinds := []string{"gone", "all of it gone", "an old copy", "entries gone", "an old copy of the entries"}
	kind := kinds[n.rng.IntN(len(kinds))]
	if err := v.running().disk.save(old); err != nil {
		n.c.fail("%v", err)
	}
	heal := n.cut(between([]*seat{behind}, n.c.members()))
	healed := false
	defer func() {
		if !healed {
			heal()
		}
	}()
	<-n.burst(l.seat, 8)
	// What is in the log and not in state.db yet has no witness.
	r := v.running()
	if r == nil || !await(ctx, func() bool { return r.store.Applied() >= l.store.Applied() }) {
		return []string{v.name}, "not that far", nil
	}
	if _, err := r.store.SaveSnapshot(io.Discard, nil); err != nil {
		return []string{v.name}, err.Error(), nil
	}
	n.kill([]*seat{v, l.seat}, n.rng.IntN(2) == 0)
	v.lose(kind, old)
	heal()
	healed = true
	n.up([]*seat{v})
	_ = sleep(ctx, 500*time.Millisecond+time.Duration(n.rng.Int64N(int64(2*time.Second))))
	n.up([]*seat{l.seat})
	n.c.retire(ctx)
	return []string{v.name, l.name, behind.name}, kind + " on " + v.name, nil
}

// voters is how many there are.
func (c *cluster) voters(l *node) (n int) {
	_, servers := l.store.Members()
	for _, s := range servers {
		if s.Voter {
			n++
		}
	}
	return n
}

// save copies the log of a process that runs into a directory.
func (d *drive) save(to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	return errors.Join(copyFile(filepath.Join(d.dir, "raft.db"), filepath.Join(to, "raft.db")), copyEntries(d.dir, to))
}

// copyEntries copies the log's segments from one directory to another one.
func copyEntries(from, to string) error {
	if err := os.RemoveAll(filepath.Join(to, "raft-log")); err != nil {
		return err
	}
	return copyDir(filepath.Join(from, "raft-log"), filepath.Join(to, "raft-log"))
}

// lose takes the log away that the next start would find.
func (s *seat) lose(kind, old string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		return // it was not killed
	}
	s.lost = true
	var err error
	switch kind {
	case "gone":
		err = os.Remove(filepath.Join(s.dir, "raft.db"))
	case "entries gone":
		err = os.RemoveAll(filepath.Join(s.dir, "raft-log"))
	case "an old copy of the entries":
		err = copyEntries(old, s.dir)
	case "an old copy":
		err = errors.Join(copyFile(filepath.Join(old, "raft.db"), filepath.Join(s.dir, "raft.db")), copyEntries(old, s.dir))
	default:
		err = errors.Join(os.RemoveAll(s.dir), os.Mkdir(s.dir, 0o700))
	}
	if err != nil {
		s.c.fail("%v", err)
	}
}

// retire removes the members that have lost their logs.
func (c *cluster) retire(ctx context.Context) {
	for _, s := range c.members() {
		s.mu.Lock()
		refused := s.refused
		s.mu.Unlock()
		if refused && c.member(ctx, "remove", s.name) == nil {
			s.leave()
		}
	}
}
