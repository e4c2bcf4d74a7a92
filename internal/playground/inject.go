package playground

import (
	"context"
	"errors"
	"fmt"
	"syscall"
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
	if err := n.signal(s); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	if !n.waitGone(ctx) {
		return fmt.Errorf("%s has not ended after %s", name, s)
	}
	return nil
}

// Pause stops a node's process without its knowing, until Resume.
func (t *Target) Pause(name string) error {
	n, err := t.running(name)
	if err != nil {
		return err
	}
	return n.signal(syscall.SIGSTOP)
}

// Resume lets a process go on that was stopped by Pause.
func (t *Target) Resume(name string) error {
	n, err := t.running(name)
	if err != nil {
		return err
	}
	return n.signal(syscall.SIGCONT)
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

// Mend lets everything go on that Kill, Stop and Pause have ended.
func (t *Target) Mend(ctx context.Context) error {
	var errs []error
	for _, n := range t.Nodes {
		if n.Running() {
			errs = append(errs, n.signal(syscall.SIGCONT))
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
