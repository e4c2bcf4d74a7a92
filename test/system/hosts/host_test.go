//go:build linux

package hosts

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
	"github.com/quorate/quorate/test/harness/isolated"
)

// Host is a machine with a systemd of its own.
type Host struct {
	name, ip string
	dir      string // its disk, and what its systemd prints
	first    *exec.Cmd
	ended    chan error
}

// newHost makes a host, which is off.
func newHost(t *testing.T, name, ip string) *Host {
	t.Helper()
	h := &Host{name: name, ip: ip, dir: filepath.Join(cluster.RunDir(), "hosts", name)}
	must.OK(t, os.MkdirAll(h.disk(), 0o755))
	// Of its own: a file system cannot lie over a directory that it lies in.
	if err := unix.Mount("tmpfs", h.disk(), "tmpfs", 0, ""); err != nil {
		t.Fatalf("%s: mount a disk: %v", name, err)
	}
	t.Cleanup(func() {
		h.powerOff(t)
		if err := unix.Unmount(h.disk(), unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	h.powerOn(t)
	return h
}

func (h *Host) disk() string { return filepath.Join(h.dir, "disk") }

// powerOn boots the host, and returns when its systemd has started what it is to start.
func (h *Host) powerOn(t *testing.T) {
	t.Helper()
	console, err := os.OpenFile(filepath.Join(h.dir, "console"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must.OK(t, err)
	defer console.Close()
	script, err := filepath.Abs("boot.sh")
	must.OK(t, err)
	cmd := exec.Command("sh", script, h.name, h.disk(), isolated.Cgroup())
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC}
	plugged, err := cmd.StdinPipe()
	must.OK(t, err)
	must.OK(t, cmd.Start())
	h.first, h.ended = cmd, make(chan error, 1)
	go func() { h.ended <- cmd.Wait() }()
	must.OK(t, isolated.Plug(h.name, cmd.Process.Pid))
	// Before it has a root directory of its own: its network is all that is entered.
	must.OK(t, isolated.Shell("nsenter", "--net", "--target", strconv.Itoa(cmd.Process.Pid), "sh", "-c", "'"+isolated.ConfigureLine(h.ip)+"'"))
	if _, err := io.WriteString(plugged, "yes\n"); err != nil {
		t.Fatal(err)
	}
	cluster.Await(t, time.Minute, h.name+" has booted", func() string {
		// Before that the command would ask this machine's systemd.
		if is, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid)); err != nil || strings.TrimSpace(string(is)) != "systemd" {
			return fmt.Sprintf("it is %s %v; %s", is, err, h.console())
		}
		out, err := h.try(t.Context(), "systemctl", "is-system-running")
		if err == nil || strings.TrimSpace(out) == "degraded" {
			return ""
		}
		return fmt.Sprintf("%v: %s; %s", err, out, h.console())
	})
}

// powerOff takes the power away: nothing is told, and nothing is written any more.
func (h *Host) powerOff(t *testing.T) {
	t.Helper()
	if h.first == nil {
		return
	}
	_ = h.first.Process.Kill() // it may have ended
	select {
	case <-h.ended:
	case <-time.After(time.Minute):
		t.Errorf("%s does not end", h.name)
	}
	h.first = nil
	if err := isolated.Unplug(h.name); err != nil {
		t.Error(err)
	}
}

// console is the end of what the host's systemd has printed.
func (h *Host) console() string {
	b, err := os.ReadFile(filepath.Join(h.dir, "console"))
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-2000):])
}

// path is where a file of the host is for this process.
func (h *Host) path(file string) string {
	return filepath.Join("/proc", strconv.Itoa(h.first.Process.Pid), "root", file)
}

// install puts files of this machine into a directory of the host.
func (h *Host) install(t *testing.T, to string, mode os.FileMode, pattern string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		must.OK(t, err)
		h.write(t, filepath.Join(to, filepath.Base(file)), string(b), mode)
	}
}

// write makes a file on the host.
func (h *Host) write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	path = h.path(path)
	must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.OK(t, os.WriteFile(path, []byte(text), mode))
}

// run runs a command on the host as root, and returns what it prints.
func (h *Host) run(t *testing.T, words ...string) string {
	t.Helper()
	out, err := h.try(t.Context(), words...)
	if err != nil {
		t.Fatalf("%s: %s: %v\n%s%s", h.name, strings.Join(words, " "), err, out, h.logs(t))
	}
	return strings.TrimSpace(out)
}

func (h *Host) try(ctx context.Context, words ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--all", "--target", strconv.Itoa(h.first.Process.Pid), "--"}, words...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// as runs a command on the host as another user.
func (h *Host) as(ctx context.Context, user string, words ...string) (string, error) {
	return h.try(ctx, append([]string{"setpriv", "--reuid=" + user, "--regid=" + user, "--init-groups", "--"}, words...)...)
}

// property is what systemd says of a unit.
func (h *Host) property(t *testing.T, unit, name string) string {
	t.Helper()
	return h.run(t, "systemctl", "show", "--property="+name, "--value", unit)
}

// logs are the last lines of all units, and of systemd.
func (h *Host) logs(t *testing.T) string {
	t.Helper()
	out, err := h.try(context.WithoutCancel(t.Context()), "journalctl", "--no-pager", "--lines=60", "--output=cat")
	if err != nil {
		out = fmt.Sprintf("no journal: %v: %s", err, out)
	}
	return out + h.console()
}
