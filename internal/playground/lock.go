package playground

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// lockFile serializes the commands that change a playground: of several at once
// one starts a node, and the others see it. It is held while processes are started or
// ended, not while they run or become ready, so a `quorate dev` in the foreground does
// not hold it.
const lockFile = "lock"

// lockWithin is how long a command may wait for others: longer than stopping all nodes
// may take.
const lockWithin = 2 * (stopWithin + goneWithin)

// lockPlayground locks a directory that exists. unlock may be called more than once.
func lockPlayground(ctx context.Context, dir string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockWithin)
	defer cancel()
	file := filepath.Join(dir, lockFile)
	for {
		f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock the playground: %w", err)
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && isFile(f, file) {
			// Who has it, for the message below.
			_ = f.Truncate(0)
			_, _ = fmt.Fprintf(f, "%d\n", os.Getpid())
			return func() { f.Close() }, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, fmt.Errorf("lock %s: %w", file, err)
		}
		select {
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, context.Cause(ctx)
			}
			holder, _ := os.ReadFile(file)
			return nil, fmt.Errorf("another 'quorate dev' command (pid %s) has changed %s for more than %s", strings.TrimSpace(string(holder)), dir, lockWithin)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// isFile reports whether an open file is still the one of that name: who deletes a
// playground removes the lock too, while others wait for it.
func isFile(f *os.File, name string) bool {
	a, err1 := f.Stat()
	b, err2 := os.Stat(name)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

// lockCluster locks the playground of a directory and reads it, with the processes that
// run now.
func lockCluster(ctx context.Context, dir string) (c *cluster, unlock func(), err error) {
	// Not before it is known to be a playground: others' directories get no lock file.
	if _, err := readCluster(dir); err != nil {
		return nil, nil, err
	}
	if unlock, err = lockPlayground(ctx, dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) { // deleted just now
			_, err = readCluster(dir)
		}
		return nil, nil, err
	}
	if c, err = readCluster(dir); err != nil {
		unlock()
		return nil, nil, err
	}
	c.refresh()
	return c, unlock, nil
}
