//go:build linux

package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/chaos/host"
	"github.com/quorate/quorate/test/harness/cluster"
	"github.com/quorate/quorate/test/harness/isolated"
)

const withinEnd = 20 * time.Second

// machine is a host with an address on the bridge, and a directory of its own.
type machine struct {
	name, ip, dir string
	host          *host.Host
	bin           string // where the programs are
}

// newMachine makes a machine.
func newMachine(t *testing.T, name, ip, bin string) *machine {
	t.Helper()
	m := &machine{name: name, ip: ip, dir: filepath.Join(cluster.RunDir(), name), bin: bin}
	must.OK(t, os.MkdirAll(m.dir, 0o755))
	var err error
	if m.host, err = host.New(host.Options{Network: true, Mounts: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.host.Close)
	var tid int
	m.do(t, func() error {
		tid = unix.Gettid()
		// Who holds a lease of a leader is known by the name of its machine.
		return errors.Join(unix.Unshare(unix.CLONE_NEWUTS), unix.Sethostname([]byte(name)))
	})
	must.OK(t, isolated.Plug(name, tid))
	m.do(t, func() error { return isolated.Configure(ip) })
	return m
}

// do runs f on the machine.
func (m *machine) do(t *testing.T, f func() error) {
	t.Helper()
	if err := m.host.Do(f); err != nil {
		t.Fatalf("%s: %v", m.name, err)
	}
}

// route sends what is for a network to another machine.
func (m *machine) route(t *testing.T, network, via string) {
	t.Helper()
	m.do(t, func() error { return isolated.Shell("ip", "route", "replace", network, "via", via) })
}

// cutOff takes the machine's cable out: nobody is told.
func (m *machine) cutOff(t *testing.T) { t.Helper(); m.link(t, "down") }

// plugIn puts it in again.
func (m *machine) plugIn(t *testing.T) { t.Helper(); m.link(t, "up") }

func (m *machine) link(t *testing.T, state string) {
	t.Helper()
	must.OK(t, isolated.Cable(m.name, state))
}

// path is a file in the machine's directory.
func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

// write makes a file in the machine's directory.
func (m *machine) write(t *testing.T, name, text string) string {
	t.Helper()
	path := m.path(name)
	must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// command is a program of ours, or of Debian's packages, or of this machine, to be run by m.run or m.start.
func (m *machine) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	debian := filepath.Join(m.bin, "debian")
	path := name
	for _, dir := range []string{m.bin, filepath.Join(debian, "usr/bin"), filepath.Join(debian, "usr/sbin"), filepath.Join(debian, "bin")} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			path = filepath.Join(dir, name)
			break
		}
	}
	cmd := exec.CommandContext(ctx, path, args...)
	libraries, _ := filepath.Glob(filepath.Join(debian, "usr/lib/*-linux-gnu"))
	cmd.Env = cluster.CleanEnv(
		"HOME="+m.dir,
		"PATH="+strings.Join([]string{filepath.Join(debian, "usr/bin"), filepath.Join(debian, "usr/sbin"), "/usr/sbin", "/usr/bin", "/sbin", "/bin"}, ":"),
		"LD_LIBRARY_PATH="+strings.Join(libraries, ":"),
	)
	cmd.Dir = m.dir
	cmd.WaitDelay = time.Second
	return cmd
}

// run runs a program to its end, and returns what it prints.
func (m *machine) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := m.try(t.Context(), name, args...)
	if err != nil {
		t.Fatalf("%s: %s %s: %v\n%s", m.name, name, strings.Join(args, " "), err, out)
	}
	return out
}

func (m *machine) try(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, cluster.CommandWithin)
	defer cancel()
	cmd := m.command(ctx, name, args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := m.host.Start(cmd); err != nil {
		return "", err
	}
	err := cmd.Wait()
	return out.String(), err
}

// service is a program that is started again when it ends, until end.
type service struct {
	m    *machine
	name string
	args []string

	stop    context.CancelFunc
	done    chan struct{}
	ended   atomic.Bool
	started atomic.Int32

	mu  sync.Mutex
	pid int
}

// restartAfter is how long a service that has ended is not started, as systemd's RestartSec.
const restartAfter = time.Second

// serve starts a service; its output is NAME.log in the machine's directory.
func (m *machine) serve(t *testing.T, name string, args ...string) *service {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	s := &service{m: m, name: name, args: args, stop: stop, done: make(chan struct{})}
	log, err := os.OpenFile(m.path(filepath.Base(name)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must.OK(t, err)
	first := make(chan error, 1)
	go func() {
		defer close(s.done)
		defer log.Close()
		s.loop(ctx, log, first)
	}()
	t.Cleanup(func() { s.end(t) })
	if err := <-first; err != nil {
		t.Fatalf("%s: start %s: %v", m.name, name, err)
	}
	return s
}

func (s *service) loop(ctx context.Context, log io.Writer, first chan<- error) {
	for ctx.Err() == nil {
		cmd := s.m.command(context.Background(), s.name, s.args...)
		cmd.Stdout, cmd.Stderr = log, log
		err := s.m.host.Start(cmd)
		if s.started.Add(1) == 1 {
			first <- err
		}
		if err == nil {
			s.mu.Lock()
			s.pid = cmd.Process.Pid
			s.mu.Unlock()
			// The process that is being ended waits here as well: end signals it.
			err = cmd.Wait()
			s.mu.Lock()
			s.pid = 0
			s.mu.Unlock()
		}
		fmt.Fprintf(log, "--- %s has ended: %v\n", s.name, err)
		select {
		case <-ctx.Done():
		case <-time.After(restartAfter):
		}
	}
}

// signal sends a signal to the process, if there is one.
func (s *service) signal(signal syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pid != 0 {
		_ = syscall.Kill(s.pid, signal)
	}
}

// end ends the service for good.
func (s *service) end(t *testing.T) {
	t.Helper()
	if s.ended.Swap(true) {
		return
	}
	s.stop()
	s.signal(syscall.SIGCONT)
	s.signal(syscall.SIGTERM)
	select {
	case <-s.done:
	case <-time.After(withinEnd):
		t.Errorf("%s on %s does not end within %s of SIGTERM", s.name, s.m.name, withinEnd)
		s.signal(syscall.SIGKILL)
		<-s.done
	}
}

// log is the end of what the service has printed.
func (s *service) log() string {
	b, err := os.ReadFile(s.m.path(filepath.Base(s.name) + ".log"))
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-3000):])
}
