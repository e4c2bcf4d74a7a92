//go:build linux && amd64

package chaos

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// powerCuts takes the current from the leader, from any node, or from all at
// once: at some moment, or before or after a sync.
func powerCuts(ctx context.Context, r *run) error {
	for round := 0; ctx.Err() == nil; round++ {
		victims := r.targets()
		if round%3 != 2 {
			v, err := r.victim(ctx, round)
			if err != nil {
				return ended(ctx, err)
			}
			victims = []*Node{v}
		}
		if err := r.powerCut(ctx, victims...); err != nil {
			return ended(ctx, err)
		}
		rest(ctx, between(r.rng, 300*time.Millisecond, 2*time.Second))
	}
	return nil
}

func (r *run) powerCut(ctx context.Context, victims ...*Node) error {
	how := []string{"at once", "before a sync", "after a sync"}[r.rng.IntN(3)]
	// How much of what was not synced reaches the disk all the same.
	kept := []float64{0, 0, 0.5, 0.9}[r.rng.IntN(4)]
	defer r.fault("power", fmt.Sprintf("%s, %.0f%% of the unsynced sectors survive", how, kept*100), true, victims...)()
	for _, n := range victims {
		n.ExpectExit()
		if how != "at once" {
			cut := n.disk.CutAtSync(1+r.rng.IntN(30), how == "after a sync")
			select {
			case <-cut:
			case <-time.After(3 * time.Second): // it writes too little
			}
		}
		n.disk.Off()
		if err := n.Signal(syscall.SIGKILL); err != nil {
			return err
		}
	}
	for _, n := range victims {
		if err := n.Kill(); err != nil {
			return err
		}
		if err := n.Unplug(); err != nil {
			return err
		}
		r.count("unsynced sectors lost", n.disk.PowerCut(kept, r.rng))
	}
	rest(ctx, between(r.rng, 0, time.Second))
	return r.startAll(context.WithoutCancel(ctx), victims...)
}

// slowDisks makes syncs slow, on the leader and then on a follower.
func slowDisks(ctx context.Context, r *run) error {
	for round := 0; ctx.Err() == nil; round++ {
		n, err := r.leader(ctx)
		if err != nil {
			return ended(ctx, err)
		}
		if round%2 == 1 {
			n = r.followers(n)[0]
		}
		by := between(r.rng, 200*time.Millisecond, 5*time.Second)
		over := r.fault("slow disk", by.Round(time.Millisecond).String()+" per sync", false, n)
		n.disk.SlowSync(by)
		rest(ctx, max(3*time.Second, 2*by))
		n.disk.SlowSync(0)
		over()
		rest(ctx, 2*time.Second)
	}
	return nil
}

// brokenDisks lets a disk hang, fail and be full: the node must end by itself,
// say why, and the others go on. A full one must not end it.
func brokenDisks(ctx context.Context, r *run) error {
	for round := 0; ctx.Err() == nil; round++ {
		n, err := r.victim(ctx, round/3)
		if err != nil {
			return ended(ctx, err)
		}
		switch round % 3 {
		case 0:
			err = r.hungDisk(ctx, n)
		case 1:
			err = r.failingDisk(ctx, n)
		case 2:
			err = r.fullDisk(ctx, n)
		}
		if err != nil {
			return ended(ctx, err)
		}
		rest(ctx, time.Second)
	}
	return nil
}

// diskWatchdog is --hung-disk-timeout in the scenario.
const diskWatchdog = 5 * time.Second

func (r *run) hungDisk(ctx context.Context, n *Node) error {
	defer r.fault("hung disk", "", true, n)()
	from := len(n.Log(0))
	n.ExpectExit()
	n.disk.HangSync()
	defer n.disk.Release()
	// The process says so and ends, but the kernel keeps what is left of it until
	// its sync returns. Its sockets stay open and mute.
	if err := await(context.WithoutCancel(ctx), diskWatchdog+10*time.Second, n.Name+" gives up on its disk", func() error {
		if !strings.Contains(n.Log(from), "hung disk") {
			return fmt.Errorf("it says %q", n.Log(from))
		}
		return nil
	}); err != nil {
		return err
	}
	if _, err := r.leader(ctx, r.others(n)...); err != nil {
		return err
	}
	if err := r.awaitAcks(ctx, 20, 20*time.Second); err != nil {
		return err
	}
	n.disk.Release()
	if _, err := n.Gone(10 * time.Second); err != nil {
		return err
	}
	return r.startAll(context.WithoutCancel(ctx), n)
}

func (r *run) failingDisk(ctx context.Context, n *Node) error {
	defer r.fault("failing disk", "EIO", true, n)()
	n.ExpectExit()
	n.disk.FailSync(true)
	if err := r.endsItself(ctx, n, "input/output error"); err != nil {
		return err
	}
	if err := r.awaitAcks(ctx, 20, 20*time.Second); err != nil {
		return err
	}
	// What was not synced is not on the disk: the cache cannot be trusted.
	if err := n.Unplug(); err != nil {
		return err
	}
	n.disk.Off()
	r.count("unsynced sectors lost", n.disk.PowerCut(0.5, r.rng))
	return r.startAll(context.WithoutCancel(ctx), n)
}

// fullDisk fills the disks of some nodes, up to 64 KiB. They go on: what makes nothing larger is written, whoever leads.
func (r *run) fullDisk(ctx context.Context, nodes ...*Node) error {
	defer r.fault("full disk", "", false, nodes...)()
	for _, n := range nodes {
		n.disk.SetQuota(n.disk.Used() + 64<<10)
	}
	err := r.awaitAcks(ctx, 20, 20*time.Second)
	rest(ctx, 3*time.Second)
	if err == nil {
		err = r.awaitAcks(ctx, 20, 20*time.Second)
	}
	for _, n := range nodes {
		n.disk.SetQuota(0)
	}
	r.count("disks that were filled", len(nodes))
	if err != nil {
		return err
	}
	return r.awaitAcks(ctx, 20, 20*time.Second)
}

// fullDisks fills one, two, and all disks.
func fullDisks(ctx context.Context, r *run) error {
	for round := 0; ctx.Err() == nil; round++ {
		nodes := slices.Clone(r.targets())
		r.rng.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		if err := r.fullDisk(ctx, nodes[:round%len(nodes)+1]...); err != nil {
			return ended(ctx, err)
		}
		rest(ctx, time.Second)
	}
	return nil
}

// endsItself waits until a node's process has ended with code 2 and has said why.
func (r *run) endsItself(ctx context.Context, n *Node, why string) error {
	from := len(n.Log(0))
	exit, err := n.Gone(20 * time.Second)
	if err != nil {
		return err
	}
	return r.hasEndedItself(n, exit, from, why)
}

// hasEndedItself returns an error unless a process has said why it has ended.
func (r *run) hasEndedItself(n *Node, exit *exec.ExitError, from int, why string) error {
	if exit == nil || exit.ExitCode() != 2 || !strings.Contains(n.Log(max(0, from-4000)), why) {
		return fmt.Errorf("%s ended with %v and without saying %q: %s", n.Name, exit, why, n.lastWords())
	}
	r.count("processes that ended themselves", 1)
	return nil
}
