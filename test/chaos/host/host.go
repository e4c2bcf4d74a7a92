//go:build linux

package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Options say what a host has of its own.
type Options struct {
	Network bool // a network namespace: only lo and what a Switch adds
	Mounts  bool // a mount namespace: what is mounted here nobody else sees
}

// Host is a thread with namespaces of its own. Its methods may be called by
// several goroutines; what they run on the thread runs one after the other.
type Host struct {
	work  chan func()
	done  chan struct{}
	netns int // file descriptor, -1 without a network of its own
}

// New makes a host.
func New(o Options) (*Host, error) {
	h := &Host{work: make(chan func()), done: make(chan struct{}), netns: -1}
	ready := make(chan error)
	go h.thread(o, ready)
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	return h, nil
}

func (h *Host) thread(o Options, ready chan<- error) {
	// Never unlocked: the thread ends with this goroutine, and with it the
	// namespaces and, by their death signal, the processes.
	runtime.LockOSThread()
	defer close(h.done)
	err := h.unshare(o)
	ready <- err
	if err != nil {
		return
	}
	for f := range h.work {
		f()
	}
}

func (h *Host) unshare(o Options) error {
	flags := 0
	if o.Network {
		flags |= unix.CLONE_NEWNET
	}
	if o.Mounts {
		flags |= unix.CLONE_NEWNS | unix.CLONE_FS
	}
	if flags == 0 {
		return nil
	}
	if err := unix.Unshare(flags); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if o.Mounts {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("make mounts private: %w", err)
		}
	}
	if !o.Network {
		return nil
	}
	var err error
	if h.netns, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open the network namespace: %w", err)
	}
	return up("lo")
}

// Do runs f on the host's thread, inside its namespaces.
func (h *Host) Do(f func() error) error {
	var err error
	finished := make(chan struct{})
	select {
	case h.work <- func() { defer close(finished); err = f() }:
		<-finished
		return err
	case <-h.done:
		return errors.New("host: closed")
	}
}

// Start starts a command inside the namespaces. It is killed when the host is
// closed and when the test process ends. The caller waits for it.
func (h *Host) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return h.Do(cmd.Start)
}

// dialWithin bounds a connection's beginning: the other end is on this machine,
// and a stopped process does not refuse.
const dialWithin = 3 * time.Second

// Dial connects to an IP address and port from inside the network namespace.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialWithin, KeepAlive: -1}
	if h.netns < 0 {
		return d.DialContext(ctx, network, address)
	}
	type result struct {
		conn net.Conn
		err  error
	}
	got := make(chan result, 1)
	go func() {
		// A thread that has changed its namespace is not given back. The address
		// is one IP address, so the socket is made on this thread.
		runtime.LockOSThread()
		if err := unix.Setns(h.netns, unix.CLONE_NEWNET); err != nil {
			got <- result{err: fmt.Errorf("enter the network namespace: %w", err)}
			return
		}
		conn, err := d.DialContext(ctx, network, address)
		got <- result{conn, err}
	}()
	r := <-got
	return r.conn, r.err
}

// Close ends the host's thread and kills what was started on it.
func (h *Host) Close() {
	close(h.work)
	<-h.done
	if h.netns >= 0 {
		_ = unix.Close(h.netns)
	}
}
