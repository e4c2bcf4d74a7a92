//go:build linux && amd64

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// damage changes files of a node that does not run, and says what it did; "" if
// there was nothing to change.
type damage struct {
	kind string
	do   func(r *run, n *Node) (string, error)
}

var damages = []damage{
	{"torn raft.db", func(r *run, n *Node) (string, error) { return r.truncate(n, "raft.db") }},
	{"flipped raft.db", func(r *run, n *Node) (string, error) { return r.flip(n, "raft.db") }},
	{"torn raft-log", func(r *run, n *Node) (string, error) { return r.segment(n, r.truncate) }},
	{"flipped raft-log", func(r *run, n *Node) (string, error) { return r.segment(n, r.flip) }},
	{"deleted raft-log", func(r *run, n *Node) (string, error) {
		return r.segment(n, func(n *Node, name string) (string, error) { return name, os.Remove(filepath.Join(n.dir, name)) })
	}},
	{"torn state.db", func(r *run, n *Node) (string, error) { return r.truncate(n, "state.db") }},
	{"flipped state.db", func(r *run, n *Node) (string, error) { return r.flip(n, "state.db") }},
	{"deleted snapshot", func(_ *run, n *Node) (string, error) {
		return "snapshot.meta", os.Remove(filepath.Join(n.dir, "snapshot.meta"))
	}},
	{"flipped snapshot", func(r *run, n *Node) (string, error) { return r.flip(n, "snapshot.meta") }},
	{"deleted state.db", func(_ *run, n *Node) (string, error) {
		return "state.db", os.Remove(filepath.Join(n.dir, "state.db"))
	}},
}

// segment damages one of the log's files.
func (r *run) segment(n *Node, damage func(n *Node, name string) (string, error)) (string, error) {
	files, err := os.ReadDir(filepath.Join(n.dir, "raft-log"))
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", os.ErrNotExist
	}
	return damage(n, filepath.Join("raft-log", files[r.rng.IntN(len(files))].Name()))
}

// truncate cuts up to 1024 bytes off the end.
func (r *run) truncate(n *Node, name string) (string, error) {
	path := filepath.Join(n.dir, name)
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	off := 1 + r.rng.Int64N(1024)
	return fmt.Sprintf("%s without its last %d of %d bytes", name, off, info.Size()), os.Truncate(path, max(0, info.Size()-off))
}

// flip flips each bit with a probability of 1e-5 to 1e-3, at least one.
func (r *run) flip(n *Node, name string) (string, error) {
	path := filepath.Join(n.dir, name)
	b, err := os.ReadFile(path)
	if err != nil || len(b) == 0 {
		return "", err
	}
	p := []float64{1e-5, 1e-4, 1e-3}[r.rng.IntN(3)]
	flips := 1 + int(p*float64(len(b))*8)
	for range flips {
		bit := r.rng.IntN(len(b) * 8)
		b[bit/8] ^= 1 << (bit % 8)
	}
	return fmt.Sprintf("%s with %d bits flipped of %d bytes", name, flips, len(b)), os.WriteFile(path, b, 0o600)
}

// damaged kills one node in mid-write, damages a file and starts it. It must
// refuse, or come back with the state of the cluster; then it is replaced.
func damaged(ctx context.Context, r *run) error {
	for round := 0; ctx.Err() == nil; round++ {
		n, err := r.victim(ctx, round)
		if err != nil {
			return ended(ctx, err)
		}
		if round%len(damages) == 0 && round > 0 {
			err = r.oldCopy(ctx, n)
		} else {
			err = r.damage(ctx, n, damages[round%len(damages)])
		}
		if err != nil {
			return ended(ctx, err)
		}
		rest(ctx, 200*time.Millisecond)
	}
	return nil
}

func (r *run) damage(ctx context.Context, n *Node, d damage) error {
	if err := n.Kill(); err != nil {
		return err
	}
	what, err := d.do(r, n)
	if errors.Is(err, os.ErrNotExist) {
		return r.startAll(context.WithoutCancel(ctx), n) // nothing to damage yet
	}
	if err != nil {
		return err
	}
	defer r.fault("damage", what, true, n)()
	return r.refusesOrReturns(ctx, n, d.kind)
}

// refusesOrReturns starts a node on data that are not what it left. One that
// refuses is replaced.
func (r *run) refusesOrReturns(ctx context.Context, n *Node, kind string) error {
	ctx = context.WithoutCancel(ctx)
	from := len(n.Log(0))
	if err := n.StartDoubtful(); err != nil {
		return err
	}
	err := n.AwaitReady(ctx, 30*time.Second)
	if err == nil {
		n.Trust()
		r.count(kind+": came back", 1)
		return nil
	}
	if n.Alive() {
		return fmt.Errorf("%s neither refuses nor comes back: %w: %s", n.Name, err, n.lastWords())
	}
	exit, _ := n.Gone(time.Second)
	if exit == nil || exit.ExitCode() < 1 {
		return fmt.Errorf("%s, %s: ended with %v: %s", n.Name, kind, exit, n.Log(from))
	}
	r.count(kind+": refused", 1)
	return r.replace(ctx, n)
}

// replace removes a node, wipes it and lets it join again under its name.
func (r *run) replace(ctx context.Context, n *Node) error {
	if err := r.member(ctx, r.others(n), "remove", n.Name); err != nil {
		return err
	}
	if err := n.Wipe(); err != nil {
		return err
	}
	if err := n.Start(); err != nil {
		return err
	}
	r.count("nodes replaced", 1)
	return r.awaitVoter(ctx, n)
}

// member runs a command of `quorate member` on any of some nodes until it has
// worked: an answer can get lost, and what is done cannot be done again.
func (r *run) member(ctx context.Context, through []*Node, command, name string) error {
	return await(ctx, 40*time.Second, "member "+command+" "+name, func() error {
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		n := through[r.rng.IntN(len(through))]
		_, err := n.command(short, "member", command, name)
		if err == nil {
			return nil
		}
		there, voter, e := n.place(short, name)
		if e == nil && (command == "remove" && !there || command == "demote" && there && !voter || command == "promote" && voter) {
			return nil
		}
		return err
	})
}

// place is a member's place in the configuration, as a node knows it.
func (n *Node) place(ctx context.Context, name string) (there, voter bool, err error) {
	s, err := n.Status(ctx)
	for _, m := range s.Members {
		if m.Name == name {
			there, voter = true, m.Voter
		}
	}
	return there, voter, err
}

// awaitVoter waits until a node is ready and has a vote.
func (r *run) awaitVoter(ctx context.Context, n *Node) error {
	if err := n.AwaitReady(ctx, time.Minute); err != nil {
		return err
	}
	return await(ctx, time.Minute, n.Name+" has a vote", func() error {
		_, voter, err := n.place(ctx, n.Name)
		if err == nil && !voter {
			err = errors.New("not yet")
		}
		return err
	})
}

// oldCopy puts an old copy of a node's data back, while the others have gone on.
// No node can tell that from an absence, and while the others are a majority
// nothing is lost: it must catch up or refuse.
func (r *run) oldCopy(ctx context.Context, n *Node) error {
	if err := n.Kill(); err != nil {
		return err
	}
	defer r.fault("old copy", "", true, n)()
	copied := n.dir + ".copy"
	if out, err := exec.Command("cp", "-a", n.dir, copied).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if err := r.startAll(context.WithoutCancel(ctx), n); err != nil {
		return err
	}
	if err := r.awaitAcks(ctx, 200, time.Minute); err != nil {
		return err
	}
	if err := n.Kill(); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(n.dir), os.Rename(copied, n.dir)); err != nil {
		return err
	}
	return r.refusesOrReturns(ctx, n, "old copy")
}
