//go:build linux

package nodes

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary starts itself again: as keeper in a session of its own, as the first process
// of the namespaces, and there as the process that runs the tests.
const (
	roleVariable = "QUORATE_NODES_ROLE"
	roleKeeper   = "keeper"
	roleInit     = "init"
	roleTests    = "tests"
	// enableVariable names the directory with the programs; `make nodes` sets it.
	enableVariable = "QUORATE_NODES_BIN"
	// cgroupVariable is the cgroup of the run, below each hierarchy's root.
	cgroupVariable = "QUORATE_NODES_CGROUP"
)

const cgroupMount = "/sys/fs/cgroup"

// cannot says why there can be no nodes here, or nothing.
func cannot() string {
	switch {
	case os.Getenv(enableVariable) == "":
		return "needs the programs that 'make nodes' builds and fetches"
	case os.Getuid() != 0:
		return "namespaces and containers need root"
	}
	if _, err := os.Stat("/dev/kmsg"); err != nil {
		return fmt.Sprintf("kubelet reads the kernel's log: %v", err)
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
	name := cgroupName("try")
	if err := makeCgroup(name); err != nil {
		return fmt.Sprintf("cgroups cannot be made: %v", errors.Join(err, removeCgroups(name)))
	}
	if err := removeCgroups(name); err != nil {
		return fmt.Sprintf("cgroups cannot be removed: %v", err)
	}
	return ""
}

// tryDevices makes the two kinds of devices that machines and pods have, in a namespace that
// goes with the command.
func tryDevices() error {
	cmd := exec.Command("sh", "-c", "ip link add b0 type bridge && ip link add v0 type veth peer name v1 && ip link set v1 master b0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// outside runs the keeper and ends with its code. When this process ends before it, the keeper
// sees its standard input end.
func outside() int {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	keeper, err := again(roleKeeper, cgroupVariable+"="+cgroupName(fmt.Sprint(os.Getpid())))
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
func keep() int {
	// The death signal of the first process in the namespaces is that of this thread.
	runtime.LockOSThread()
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	name := os.Getenv(cgroupVariable)
	dir, err := os.MkdirTemp("", "quorate-nodes-")
	if err != nil {
		return failure(err)
	}
	if err := makeCgroup(name); err != nil {
		return failure(errors.Join(err, removeCgroups(name), os.RemoveAll(dir)))
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
	if err := removeCgroups(name); err != nil {
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
	fmt.Fprintln(os.Stderr, "nodes:", err)
	return 1
}

func cgroupName(of string) string { return "quorate-nodes-" + of }

// unified reports whether there is one hierarchy of cgroups (v2) in place of one for each
// controller (v1).
func unified() bool {
	_, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers"))
	return err == nil
}

// hierarchies are the roots of all that can be written.
func hierarchies() ([]string, error) {
	if unified() {
		return []string{cgroupMount}, nil
	}
	all, err := filepath.Glob(filepath.Join(cgroupMount, "*", "cgroup.procs"))
	if err != nil || len(all) == 0 {
		return nil, fmt.Errorf("%s has no hierarchies: %w", cgroupMount, err)
	}
	var roots []string
	for _, procs := range all {
		root := filepath.Dir(procs)
		// cpu and cpuacct may be names of one hierarchy.
		if real, err := filepath.EvalSymlinks(root); err == nil && !slices.Contains(roots, real) {
			roots = append(roots, real)
		}
	}
	return roots, nil
}

// makeCgroup makes a cgroup, which may be below another of ours, in all hierarchies.
func makeCgroup(name string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		// A cgroup of v1 has no processors and no memory nodes until it is given some.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if b, err := os.ReadFile(filepath.Join(dir, "..", file)); err == nil && filepath.Base(root) == "cpuset" {
				if err := os.WriteFile(filepath.Join(dir, file), b, 0o644); err != nil {
					return err
				}
			}
		}
		if unified() {
			control := filepath.Join(dir, "cgroup.subtree_control")
			if err := os.WriteFile(control, []byte("+cpu +cpuset +memory +pids"), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeCgroups removes a cgroup and those below it. The kernel may still be busy with the
// processes that were in them.
func removeCgroups(name string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for _, root := range roots {
		end := time.After(10 * time.Second)
		for {
			err := removeCgroup(filepath.Join(root, name))
			if err == nil {
				break
			}
			select {
			case <-end:
				return err
			case <-look.C:
			}
		}
	}
	return nil
}

func removeCgroup(dir string) error {
	var all []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	slices.Reverse(all)
	for _, d := range all {
		if e := unix.Rmdir(d); e != nil && !errors.Is(e, unix.ENOENT) {
			err = errors.Join(err, fmt.Errorf("remove cgroup %s: %w", d, e))
		}
	}
	return err
}
