package kubeapiserver

import (
	"context"
	"os"
	"time"

	"github.com/quorate/quorate/internal/parent"
	"golang.org/x/sys/unix"
)

// An ending says whose end ends this process.
type ending int

const (
	// withParent: it ends when the process that has started it is gone.
	withParent ending = iota
	// alone: it is a daemon, and outlives who has started it.
	alone
	// orphan: who has started it is gone already.
	orphan
)

// relation is what the kernel says of this process and of its parent.
type relation struct {
	pid, session int
	// first is the parent at the first moment, parent the one now, and parentSession the session that one is in.
	first, parent, parentSession int
}

// ending decides by sessions, which nobody changes for another process: a child is in the session of its parent
// until it leads its own. So a process that leads none, and whose parent is in another one, was adopted, by init or by
// a subreaper: who has started it is gone, however early that was.
func (r relation) ending() ending {
	switch {
	case r.session == r.pid, r.pid == 1, r.parent == 0:
		// It leads a session, as kwokctl, systemd, kubelets and setsid(1) start daemons, or it or its parent is in another
		// PID namespace, where nobody can be watched.
		return alone
	case r.parent != r.first, r.parentSession != r.session:
		return orphan
	case r.parent == 1:
		// The first process of a container, such as tini, has started it.
		return alone
	default:
		return withParent
	}
}

// look is the relation now.
func look() relation {
	r := relation{pid: os.Getpid(), first: parent.First, session: -1, parentSession: -2}
	r.session, _ = unix.Getsid(0) // it cannot fail
	for {
		r.parent = os.Getppid()
		session, err := unix.Getsid(r.parent)
		if r.parent != os.Getppid() {
			continue // it has ended meanwhile, and its number may be another's
		}
		if err == nil {
			r.parentSession = session
		} else {
			r.parentSession = r.session // not allowed to ask: nothing against it
		}
		return r
	}
}

// outlives reports whether this process is to go on when the one that started it is gone. That SIGHUP is ignored
// (nohup) says nothing: whole test runs are started so, and it is inherited.
func outlives() bool { return look().ending() == alone }

// parentLook is how often it is looked whether the parent is gone. The kernel's own signal for that
// (PR_SET_PDEATHSIG) comes when the thread that has started us ends, which in programs of Go is
// any time.
const parentLook = 100 * time.Millisecond

// parentGone is logged when it is.
const parentGone = "the process that started this one is gone; one that is to outlive it leads a session of its own: setsid(1)"

// awaitOrphaned waits until the process that started this one is gone. False: ctx has ended before.
func awaitOrphaned(ctx context.Context) bool {
	t := time.NewTicker(parentLook)
	defer t.Stop()
	for look().ending() != orphan {
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
		}
	}
	return true
}
