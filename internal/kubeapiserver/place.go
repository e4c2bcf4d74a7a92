package kubeapiserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// place is where the data is.
type place struct {
	dir       string
	temporary bool     // it ends with the server
	keptBy    string   // the URL of the stub that keeps it, or ""
	lock      *os.File // held as long as the server runs
	left      sync.Once
	err       error
}

// place makes the directory, and locks it.
func (o *Options) place(ctx context.Context) (*place, error) {
	if o.DataDir != "" {
		return take(&place{dir: o.DataDir})
	}
	kept, err := o.askStubs(ctx)
	if err != nil || kept != nil {
		return kept, err
	}
	if outlives() {
		return nil, errors.New(`where is the data to be? This process does not end with the one that started it (it leads a session, or is the child of a container's first process), so it may be started again, and must find its data then
  name a directory:                  --quorate-data-dir DIR
  or have a stub of etcd keep it:    quorate etcd-stub --data-dir DIR, at the address in --etcd-servers`)
	}
	sweep()
	dir, err := os.MkdirTemp("", temporaryPrefix)
	if err != nil {
		return nil, err
	}
	p, err := take(&place{dir: dir, temporary: true})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return p, nil
}

// take locks the directory of a place.
func take(p *place) (_ *place, err error) {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, err
	}
	if p.lock, err = os.OpenFile(filepath.Join(p.dir, lockName), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(p.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is in use by another server", p.dir), p.lock.Close())
	}
	return p, nil
}

// temporaryPrefix is that of the names of directories that end with their server, and lockName a file in each place
// that is locked as long as the server runs.
const (
	temporaryPrefix = "quorate-kube-apiserver-"
	lockName        = "lock"
)

// leave removes what ends with the server. It may be called again.
func (p *place) leave() error {
	p.left.Do(func() {
		if p.temporary {
			p.err = removeLocked(p.dir)
		}
		p.err = errors.Join(p.err, p.lock.Close())
	})
	return p.err
}

// removeLocked removes a directory whose lock is held, the lock last: a process that is killed meanwhile leaves
// what the next one knows as its own.
func removeLocked(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != lockName {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// sweepAfter is how old a directory is that is swept: one that is younger may not be locked yet. One without a
// lock is waited for longer: between the directory and its lock a server may have been stopped.
const (
	sweepAfter         = time.Minute
	sweepUnlockedAfter = time.Hour
)

// sweep removes what servers have left that were killed themselves (SIGKILL): nobody else would.
// Directories of other users, and of servers that run, stay.
func sweep() {
	all, _ := filepath.Glob(filepath.Join(os.TempDir(), temporaryPrefix+"*"))
	for _, dir := range all {
		st, err := os.Lstat(dir)
		if err != nil || !st.IsDir() || time.Since(st.ModTime()) < sweepAfter {
			continue
		}
		if sys, ok := st.Sys().(*syscall.Stat_t); !ok || int(sys.Uid) != os.Geteuid() {
			continue
		}
		mode := os.O_RDWR | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
		if time.Since(st.ModTime()) >= sweepUnlockedAfter {
			mode |= os.O_CREATE // what older versions left has lost it; who is late finds it locked
		}
		lock, err := os.OpenFile(filepath.Join(dir, lockName), mode, 0o600)
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = removeLocked(dir)
		}
		lock.Close()
	}
}
