//go:build linux

package isolated

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The test binary starts itself again: as keeper in a session of its own, as the first process
// of the namespaces, and there as the process that runs the tests.
const (
	roleVariable = "QUORATE_ISOLATED_ROLE"
	roleKeeper   = "keeper"
	roleInit     = "init"
	roleTests    = "tests"
	// cgroupVariable is the cgroup of the run, below each hierarchy's root.
	cgroupVariable = "QUORATE_ISOLATED_CGROUP"
)

// Run is how the tests of a package run.
type Run struct {
	// Name is in the names of what the run makes: directories and cgroups are called quorate-NAME-….
	Name string
	// Cannot says what the tests miss here, beside root and what namespaces need; or nothing.
	Cannot func() string
	// Tests runs the tests in the namespaces, and returns the exit code.
	Tests func(m *testing.M) int
}

// Main is for TestMain. It returns the exit code. Where there are no namespaces here the tests run without them, and
// Skipped says why.
func (r Run) Main(m *testing.M) (code int) {
	switch os.Getenv(roleVariable) {
	case "":
		if skipped = r.cannot(); skipped != "" {
			return m.Run()
		}
		return r.outside()
	case roleKeeper:
		return r.keep()
	case roleInit:
		return initProcess()
	}
	return r.Tests(m)
}

// skipped is written before the tests begin.
var skipped string

// Skipped is why this machine, or this run, has no namespaces; nothing where it has.
func Skipped() string { return skipped }

// cannot says why the tests cannot be isolated here, or nothing.
func (r Run) cannot() string {
	if why := r.Cannot(); why != "" {
		return why
	}
	if os.Getuid() != 0 {
		return "namespaces need root"
	}
	if b, err := os.ReadFile("/proc/filesystems"); err != nil || !strings.Contains(string(b), "\toverlay\n") {
		return "the kernel has no overlayfs"
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return "needs iproute2 for network devices"
	}
	if err := tryDevices(); err != nil {
		return fmt.Sprintf("the kernel makes no network of machines: %v", err)
	}
	name := r.cgroupName("try")
	if err := MakeCgroup(name); err != nil {
		return fmt.Sprintf("cgroups cannot be made: %v", errors.Join(err, RemoveCgroups(name)))
	}
	if err := RemoveCgroups(name); err != nil {
		return fmt.Sprintf("cgroups cannot be removed: %v", err)
	}
	return ""
}

// outside runs the keeper and ends with its code. When this process ends before it, the keeper
// sees its standard input end.
func (r Run) outside() int {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	keeper, err := again(roleKeeper, cgroupVariable+"="+r.cgroupName(fmt.Sprint(os.Getpid())))
	if err != nil {
		return failure(err)
	}
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	alive, err := keeper.StdinPipe()
	if err != nil {
		return failure(err)
	}
	if err := keeper.Start(); err != nil {
		return failure(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- keeper.Wait() }()
	select {
	case err = <-ended:
	case <-signals:
		alive.Close()
		err = <-ended
	}
	return exitCode(err)
}

// keep runs the namespaces until their tests or the process outside end, and removes what the
// kernel leaves: cgroups and files.
func (r Run) keep() int {
	// The death signal of the first process in the namespaces is that of this thread.
	runtime.LockOSThread()
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	name := os.Getenv(cgroupVariable)
	dir, err := os.MkdirTemp("", "quorate-"+r.Name+"-")
	if err != nil {
		return failure(err)
	}
	if err := MakeCgroup(name); err != nil {
		return failure(errors.Join(err, RemoveCgroups(name), os.RemoveAll(dir)))
	}
	code := func() int {
		first, err := again(roleInit, "TMPDIR="+dir)
		if err != nil {
			return failure(err)
		}
		first.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
			Pdeathsig:  syscall.SIGKILL,
		}
		if err := first.Start(); err != nil {
			return failure(err)
		}
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			_ = first.Process.Kill() // and the kernel all the others
		}()
		return exitCode(first.Wait())
	}()
	if err := RemoveCgroups(name); err != nil {
		code = max(code, failure(err))
	}
	if os.Getenv("KEEP") == "" {
		if err := os.RemoveAll(dir); err != nil {
			code = max(code, failure(err))
		}
	}
	return code
}

// initProcess is the first process of the PID namespace: it runs the tests, waits for processes
// that lost their parents, and ends when the tests do.
func initProcess() int {
	if err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, ""),
	); err != nil {
		return failure(fmt.Errorf("mount the processes of the namespace: %w", err))
	}
	tests, err := again(roleTests)
	if err != nil {
		return failure(err)
	}
	if err := tests.Start(); err != nil {
		return failure(err)
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return failure(err)
		case pid == tests.Process.Pid && status.Exited():
			return status.ExitStatus()
		case pid == tests.Process.Pid && status.Signaled():
			return 128 + int(status.Signal())
		}
	}
}

// again is this program in another role, with the same arguments.
func again(role string, env ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(append(os.Environ(), roleVariable+"="+role), env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd, nil
}

func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode()
	}
	return failure(err)
}

func failure(err error) int {
	fmt.Fprintln(os.Stderr, "isolated:", err)
	return 1
}

func (r Run) cgroupName(of string) string { return "quorate-" + r.Name + "-" + of }
