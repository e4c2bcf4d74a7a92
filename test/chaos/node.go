//go:build linux && amd64

package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quorate/quorate/test/chaos/clock"
	"github.com/quorate/quorate/test/chaos/host"
	"github.com/quorate/quorate/test/chaos/lazyfs"
)

// Node is a node of a cluster: a machine, its disk, and at most one process.
type Node struct {
	Name     string
	API      string // host:port
	Peer     string // host:port
	nonvoter bool

	c     *Cluster
	dir   string
	host  *host.Host
	addr  netip.Addr   // in the switch, if there is one
	disk  *lazyfs.Disk // nil: an ordinary directory
	clock *clock.Clock // nil: the machine's

	mu      sync.Mutex
	process *process // nil before the first start
	unmount func() error
}

// process is one run of a node's program.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process is gone
	err   error         // of Wait, then
	// expected: its end is no surprise.
	expected atomic.Bool
}

// Start starts the node's process. It is not awaited.
func (n *Node) Start() error { return n.start(false) }

// StartDoubtful is Start of a process that may end at once: it may refuse its data.
func (n *Node) StartDoubtful() error { return n.start(true) }

func (n *Node) start(doubtful bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process != nil && n.process.alive() {
		return fmt.Errorf("start %s: it runs", n.Name)
	}
	if n.disk != nil && n.unmount == nil {
		unmount, err := n.disk.Mount(n.dir, n.host.Do)
		if err != nil {
			return fmt.Errorf("start %s: %w", n.Name, err)
		}
		n.unmount = unmount
	}
	log, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(n.c.binary, n.arguments()...)
	cmd.Env = append(environment(), "GOMAXPROCS=2", "GOTRACEBACK=all")
	if n.clock != nil {
		cmd.Env = append(cmd.Env, clock.Variable+"="+n.clock.Path())
	}
	cmd.Env = append(cmd.Env, n.c.env...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := n.host.Start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	p.expected.Store(doubtful)
	go func() { // ends with the process, which ends with the host
		p.err = cmd.Wait()
		close(p.ended)
		if !p.expected.Load() {
			n.c.surprise(n, p.err)
		}
	}()
	n.process = p
	return nil
}

func (n *Node) arguments() []string {
	args := []string{"node", "--name", n.Name, "--data-dir", n.dir, "--api-address", n.API, "--peer-address", n.Peer,
		"--token-file", n.c.tokenFile(), "--join", strings.Join(n.c.peers(), ","), "--log-format", "text",
		"--controllers=-root-ca-certificate-publisher-controller"} // histories have no writes but those of their clients
	if n.nonvoter {
		args = append(args, "--nonvoter")
	} else if slices.Contains(n.c.founders, n) {
		args = append(args, fmt.Sprintf("--bootstrap-expect=%d", len(n.c.founders)))
	}
	return append(args, n.c.settings...)
}

// environment is ours without what would steer a node.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "QUORATE_") || strings.HasPrefix(e, "GOMAXPROCS=") || strings.HasPrefix(e, "GOTRACEBACK=")
	})
}

func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Alive reports whether the node's process runs, stopped ones included.
func (n *Node) Alive() bool {
	p := n.current()
	return p != nil && p.alive()
}

func (n *Node) current() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process
}

// Signal sends a signal to the node's process; one that is gone is no error.
func (n *Node) Signal(s syscall.Signal) error {
	p := n.current()
	if p == nil || !p.alive() {
		return nil
	}
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s to %s: %w", s, n.Name, err)
	}
	return nil
}

// Gone waits until the node's process is gone and returns how it ended.
func (n *Node) Gone(within time.Duration) (*exec.ExitError, error) {
	p := n.current()
	if p == nil {
		return nil, nil
	}
	select {
	case <-p.ended:
		var exit *exec.ExitError
		errors.As(p.err, &exit)
		return exit, nil
	case <-time.After(within):
		return nil, fmt.Errorf("the process of %s is not gone after %s", n.Name, within)
	}
}

// ExpectExit says that the node's present process may end: a fault is about to
// make it.
func (n *Node) ExpectExit() {
	if p := n.current(); p != nil {
		p.expected.Store(true)
	}
}

// Trust takes ExpectExit back.
func (n *Node) Trust() {
	if p := n.current(); p != nil {
		p.expected.Store(false)
	}
}

// Kill ends the node's process with SIGKILL and waits until it is gone.
func (n *Node) Kill() error {
	n.ExpectExit()
	if err := n.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	_, err := n.Gone(20 * time.Second)
	return err
}

// Unplug takes the node's disk out, so that PowerCut may change it. The process
// is gone.
func (n *Node) Unplug() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.unmount == nil {
		return nil
	}
	unmount := n.unmount
	n.unmount = nil
	return unmount()
}

// Wipe gives the node an empty data directory. The process is gone.
func (n *Node) Wipe() error {
	if n.disk != nil {
		if err := n.Unplug(); err != nil {
			return err
		}
		n.disk = lazyfs.New()
		return nil
	}
	return errors.Join(os.RemoveAll(n.dir), os.Mkdir(n.dir, 0o700))
}

func (n *Node) logFile() string { return filepath.Join(n.c.dir, n.Name+".log") }

// Log returns what the node's processes have printed, from an offset on.
func (n *Node) Log(from int) string {
	b, err := os.ReadFile(n.logFile())
	if err != nil {
		return err.Error()
	}
	return string(b[min(from, len(b)):])
}

// dataFile reads a file of the node's data directory.
func (n *Node) dataFile(name string) (b []byte, err error) {
	if n.disk != nil {
		return n.disk.ReadFile(name)
	}
	return os.ReadFile(filepath.Join(n.dir, name))
}

// command runs the binary's own commands on the node's machine, with the
// administrator's rights, against this node.
func (n *Node) command(ctx context.Context, args ...string) (string, error) {
	kubeconfig := filepath.Join(n.c.dir, n.Name+".kubeconfig")
	b, err := n.dataFile("admin.kubeconfig")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(kubeconfig, b, 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, n.c.binary, append(args, "--kubeconfig", kubeconfig)...)
	cmd.Env = environment()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := n.host.Start(cmd); err != nil {
		return "", err
	}
	if err := cmd.Wait(); err != nil {
		return out.String(), fmt.Errorf("%s: quorate %s: %w: %s", n.Name, strings.Join(args, " "), err, strings.TrimSpace(out.String()))
	}
	return out.String(), nil
}
