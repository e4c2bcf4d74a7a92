package commands

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// errHangup is why a playground in the foreground ends with its terminal.
var errHangup = errors.New("the terminal is gone")

// untilHangup returns a context that ends with the terminal: on SIGHUP, or when the
// terminal in whose foreground this process runs is gone. The second is not the first:
// the kernel signals the session's leader alone, and a leader that waits for its
// children, as make does, passes nothing on. Under nohup, in the background and
// without a terminal nothing happens but by SIGHUP. end releases it.
func untilHangup(ctx context.Context) (_ context.Context, end func()) {
	if signal.Ignored(syscall.SIGHUP) {
		return ctx, func() {}
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wake, sleep, err := os.Pipe()
	if err == nil {
		if tty, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
			wg.Go(func() {
				defer unix.Close(tty)
				if hangs(tty, int(wake.Fd())) {
					cancel(errHangup)
				}
			})
		}
	}
	return ctx, func() {
		cancel(nil)
		stop()
		if err == nil {
			sleep.Close() // ends the wait
			wg.Wait()
			wake.Close()
		}
	}
}

// hangupPoll is how often a terminal is looked at, in milliseconds. Not every hang-up
// ends a poll for nothing else.
const hangupPoll = 500

// hangs waits until a terminal is gone and reports whether this process was in its
// foreground, or until there is something to read from wake.
func hangs(tty, wake int) bool {
	foreground := false
	for {
		group, err := unix.IoctlGetInt(tty, unix.TIOCGPGRP)
		switch {
		case err == nil:
			foreground = group == unix.Getpgrp()
		case errors.Is(err, unix.EIO) || errors.Is(err, unix.ENOTTY):
			return foreground
		}
		fds := []unix.PollFd{{Fd: int32(tty)}, {Fd: int32(wake), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, hangupPoll); err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
		if fds[1].Revents != 0 {
			return false
		}
		if fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0 {
			return foreground
		}
	}
}
