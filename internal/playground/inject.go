package playground

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// What programs that measure do to the nodes of a Target. One goroutine does it, one thing after
// the other.

// Kill ends a node's process with SIGKILL and waits until it is gone.
func (t *Target) Kill(ctx context.Context, name string) error {
	return t.end(ctx, name, syscall.SIGKILL)
}

// Stop ends a node's process with SIGTERM and waits until it is gone.
func (t *Target) Stop(ctx context.Context, name string) error {
	return t.end(ctx, name, syscall.SIGTERM)
}

func (t *Target) end(ctx context.Context, name string, s syscall.Signal) error {
	n, err := t.running(name)
	if err != nil {
		return err
	}
	if err := n.processes().signal(s); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	if !n.processes().waitGone(ctx) {
		return fmt.Errorf("%s has not ended after %s", name, s)
	}
	return t.means.ended(n)
}

// Pause stops a node's process without its knowing, until Resume.
func (t *Target) Pause(name string) error {
	n, err := t.running(name)
	if err != nil {
		return err
	}
	return n.processes().signal(syscall.SIGSTOP)
}

// Resume lets a process go on that was stopped by Pause.
func (t *Target) Resume(name string) error {
	n, err := t.running(name)
	if err != nil {
		return err
	}
	return n.processes().signal(syscall.SIGCONT)
}

// Start starts the process of a node that has none. It is not awaited.
func (t *Target) Start(ctx context.Context, name string) error {
	n := t.node(name)
	if n == nil {
		return fmt.Errorf("there is no node %q", name)
	}
	if n.Running() {
		return fmt.Errorf("%s is running already (pid %d)", name, n.PID)
	}
	return t.start(ctx, n)
}

// Cut cuts a node off from the others until Heal: in is what they send to it, out what it sends.
func (t *Target) Cut(name string, in, out bool) error {
	if t.network == nil || t.node(name) == nil {
		return fmt.Errorf("%s is none that can be cut off", name)
	}
	t.network.Cut(name, in, out)
	return nil
}

// Heal ends what Cut began.
func (t *Target) Heal(name string) error {
	if t.network == nil || t.node(name) == nil {
		return fmt.Errorf("%s is none that can be cut off", name)
	}
	t.network.Heal(name)
	return nil
}

// Slow makes each sync of a node take so much longer, until it is called with zero. It returns how
// many did since it was called last.
func (t *Target) Slow(name string, delay time.Duration) (delayed int64, err error) {
	d := t.disks[name]
	if d == nil {
		return 0, fmt.Errorf("%s is none whose disk can be slow", name)
	}
	return d.Delay(delay)
}

// Mend lets everything go on that Kill, Stop and Pause have ended, and ends what Cut and Slow began.
func (t *Target) Mend(ctx context.Context) error {
	errs := []error{t.means.mend()}
	for _, n := range t.Nodes {
		if n.Running() {
			errs = append(errs, n.processes().signal(syscall.SIGCONT))
		} else {
			errs = append(errs, t.start(ctx, n))
		}
	}
	return errors.Join(errs...)
}

func (t *Target) node(name string) *Node {
	for _, n := range t.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

func (t *Target) running(name string) (*Node, error) {
	n := t.node(name)
	if n == nil {
		return nil, fmt.Errorf("there is no node %q", name)
	}
	if !n.Running() {
		return nil, fmt.Errorf("%s does not run", name)
	}
	return n, nil
}
