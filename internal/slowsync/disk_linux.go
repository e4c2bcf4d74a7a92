//go:build linux && (amd64 || arm64)

package slowsync

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Disk delays the syncs of the processes that were started on it. Its methods may be called
// by several goroutines.
type Disk struct {
	work     chan func() // for the thread
	ended    chan struct{}
	listener int // the kernel's questions
	wake     int // readable when the Disk is closed
	wg       sync.WaitGroup

	mu      sync.Mutex // guards what follows
	delay   time.Duration
	changed chan struct{} // closed when delay is another one
	delayed int64         // syncs, since Delay was called last
	broken  error         // why questions are not answered any more
}

// New makes a disk, without a delay.
func New() (*Disk, error) {
	d := &Disk{work: make(chan func()), ended: make(chan struct{}), changed: make(chan struct{})}
	ready := make(chan error)
	go d.thread(ready)
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("delay syncs: %w", err)
	}
	var err error
	if d.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		close(d.work)
		<-d.ended
		return nil, errors.Join(fmt.Errorf("delay syncs: %w", err), unix.Close(d.listener))
	}
	d.wg.Go(d.answer)
	// A sync of no file goes all the way, and fails behind it.
	if err := d.do(func() error { return unix.Fsync(-1) }); err != unix.EBADF {
		return nil, errors.Join(fmt.Errorf("delay syncs: the kernel does not go on with a call that it has asked about (Linux 5.5 does): %w", err), d.Close())
	}
	return d, nil
}

// thread is the goroutine that holds the thread with the filter. Its end is the thread's:
// what has the filter must not be used for anything else.
func (d *Disk) thread(ready chan<- error) {
	runtime.LockOSThread()
	defer close(d.ended)
	err := d.filter()
	ready <- err
	if err != nil {
		return
	}
	for f := range d.work {
		f()
	}
}

// do runs f on the thread.
func (d *Disk) do(f func() error) (err error) {
	done := make(chan struct{})
	d.work <- func() { defer close(done); err = f() }
	<-done
	return err
}

// Start starts a command whose syncs, and those of its children, are delayed. Its parent is
// a thread that lasts until Close.
func (d *Disk) Start(cmd *exec.Cmd) error { return d.do(cmd.Start) }

// Delay makes each sync take so much longer from now on; zero ends that, also for those that
// wait. It returns how many syncs were delayed since it was called last.
func (d *Disk) Delay(delay time.Duration) (delayed int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delayed, d.delayed, d.delay = d.delayed, 0, delay
	close(d.changed)
	d.changed = make(chan struct{})
	return delayed, d.broken
}

// Close ends the disk. The processes on it should have ended: their syncs fail from now on.
func (d *Disk) Close() error {
	_, err := d.Delay(0)
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	if _, werr := unix.Write(d.wake, one); werr != nil {
		return errors.Join(err, werr)
	}
	d.wg.Wait()
	close(d.work)
	<-d.ended
	return errors.Join(err, unix.Close(d.listener), unix.Close(d.wake))
}

// syncs are the calls that the kernel asks about.
var syncs = []uint32{unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_MSYNC, unix.SYS_SYNC_FILE_RANGE, unix.SYS_SYNCFS}

// architectures are seccomp's names of those that this file is built for.
var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// program is the filter: it looks at the number of the call, unless that is another
// architecture's. See seccomp(2) for the places of what it loads.
func program() []unix.SockFilter {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		answer = unix.BPF_RET | unix.BPF_K
		number = 0
		arch   = 4
	)
	last := uint8(len(syncs))
	p := []unix.SockFilter{{Code: load, K: arch}, {Code: equal, K: architectures[runtime.GOARCH], Jf: last + 1}, {Code: load, K: number}}
	for i, nr := range syncs {
		p = append(p, unix.SockFilter{Code: equal, K: nr, Jt: last - uint8(i)})
	}
	return append(p, unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW}, unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_USER_NOTIF})
}

// filter installs the filter on the calling thread.
func (d *Disk) filter() error {
	// Who has no privilege may install a filter only where no program gains one.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	p := program()
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	// Speculation stays as it was: the filter is no sandbox, and may cost nothing.
	const always = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW
	// From Linux 5.19 on a signal does not interrupt a call that waits, and begin its delay again.
	for _, flags := range []uintptr{always | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, always} {
		fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
		switch errno {
		case 0:
			d.listener = int(fd)
			return nil
		case unix.EINVAL: // a flag that it does not know
			continue
		case unix.EBUSY:
			return errors.New("this process is under somebody else's seccomp listener already, as in some containers")
		}
		return fmt.Errorf("seccomp: %w", errno)
	}
	return errors.New("the kernel cannot ask about a call (seccomp user notification): Linux 5.5 is needed")
}

// notification is the kernel's question (struct seccomp_notif).
type notification struct {
	id         uint64
	pid, flags uint32
	number     int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

// response is the answer to it (struct seccomp_notif_resp).
type response struct {
	id    uint64
	val   int64
	err   int32
	flags uint32
}

// goOn lets the call be done as it was made.
const goOn = 1 // SECCOMP_USER_NOTIF_FLAG_CONTINUE

// answer is the goroutine that hears the questions, until the Disk is closed.
func (d *Disk) answer() {
	fds := []unix.PollFd{{Fd: int32(d.listener), Events: unix.POLLIN}, {Fd: int32(d.wake), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			d.fail(err)
			return
		}
		if fds[1].Revents != 0 {
			return
		}
		if fds[0].Revents&unix.POLLIN == 0 {
			continue
		}
		var n notification
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(d.listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n)))
		switch errno {
		case 0:
		case unix.ENOENT, unix.EINTR: // who asked is gone
			continue
		default:
			d.fail(errno)
			return
		}
		d.mu.Lock()
		delay, changed := d.delay, d.changed
		if delay > 0 {
			d.delayed++
		}
		d.mu.Unlock()
		if delay == 0 {
			d.send(n.id)
			continue
		}
		// As many as there are threads that sync.
		d.wg.Go(func() {
			t := time.NewTimer(delay)
			defer t.Stop()
			select {
			case <-t.C:
			case <-changed:
			}
			d.send(n.id)
		})
	}
}

// send answers a question.
func (d *Disk) send(id uint64) {
	r := response{id: id, flags: goOn}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(d.listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&r)))
	if errno == 0 || errno == unix.ENOENT { // who asked is gone
		return
	}
	d.fail(errno)
	// Better a call that fails than one that never ends.
	r = response{id: id, err: -int32(unix.EIO)}
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(d.listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&r)))
}

func (d *Disk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken == nil {
		d.broken = fmt.Errorf("delay syncs: answer the kernel: %w", err)
	}
}
