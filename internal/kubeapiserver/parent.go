package kubeapiserver

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// started is the process that has started this one.
var started = os.Getppid()

// outlives reports whether this process is to go on when the one that started it is gone: it leads a
// session of its own, as daemons and the first process of a container do (kwokctl starts its components
// so), or is the child of init. Tests start servers in a process group of their own at most. That SIGHUP is ignored
// (nohup) says nothing: whole test runs are started so, and it is inherited.
func outlives() bool {
	sid, err := unix.Getsid(0)
	return err == nil && sid == os.Getpid() || started <= 1
}

// parentLook is how often it is looked whether the parent is gone. The kernel's own signal for that
// (PR_SET_PDEATHSIG) comes when the thread that has started us ends, which in programs of Go is
// any time.
const parentLook = 100 * time.Millisecond

// awaitOrphaned waits until the process that started this one is gone. False: ctx has ended before.
func awaitOrphaned(ctx context.Context) bool {
	t := time.NewTicker(parentLook)
	defer t.Stop()
	for os.Getppid() == started {
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
		}
	}
	return true
}
