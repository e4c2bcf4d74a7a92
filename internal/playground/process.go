package playground

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// program returns the path of quorate: this program, or the quorate beside it if this is quorate-bench.
func program() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find quorate: %w", err)
	}
	if name, ok := strings.CutSuffix(filepath.Base(self), "-bench"); ok {
		self = filepath.Join(filepath.Dir(self), name)
		if _, err := os.Stat(self); err != nil {
			return "", fmt.Errorf("quorate-bench runs the quorate beside it: %w", err)
		}
	}
	return self, nil
}

// background is quorate with arguments, in a session of its own, so that it outlives this process. It
// appends to a log, which is to be closed once it has started.
func (c *cluster) background(logFile string, args ...string) (*exec.Cmd, *os.File, error) {
	self, err := program()
	if err != nil {
		return nil, nil, err
	}
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = c.environment(os.Environ(), runtime.NumCPU())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, log, nil
}

// start starts a node's process, and notes its pid.
func (c *cluster) start(n *Node) error {
	child, log, err := c.background(n.Log, "node", "--config", n.settingsFile())
	if err != nil {
		return err
	}
	defer log.Close()
	if info, err := log.Stat(); err == nil {
		n.logStart = info.Size()
	}
	n.child = child
	if c.tied {
		dieWithParent(n.child.SysProcAttr)
	}
	if err := c.means.start(n); err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	return c.write()
}

// envPrefix is that of the variables that are settings of a node.
const envPrefix = "QUORATE_"

// environment is that of a playground's node: without our own variables, since
// the nodes have files, and with a fair share of the processors. Nodes that may
// each use all of them wake and spin them for each other. But never one alone:
// then everything waits while a sync of the disk blocks it, and writes cost an
// eighth more. GOMAXPROCS of the caller goes before it.
func (c *cluster) environment(env []string, processors int) []string {
	share := "GOMAXPROCS=" + strconv.Itoa(max(2, (processors+len(c.Nodes)-1)/len(c.Nodes)))
	var out []string
	for _, e := range env {
		if strings.HasPrefix(e, "GOMAXPROCS=") {
			share = e
		}
		if !strings.HasPrefix(e, envPrefix) {
			out = append(out, e)
		}
	}
	return append(out, share)
}

// kernelThread is the flag in /proc/PID/stat of a thread of the kernel (PF_KTHREAD).
const kernelThread = 0x00200000

// Running reports whether the noted process is alive and a node of this
// directory, not another program that got its pid. One that ends runs until it is gone.
func (n *Node) Running() bool { return n.state() != absent }

// What the noted process of a node is.
const (
	absent = iota // there is none, or it is another program's
	alive
	ending // it has ports and threads still
)

func (n *Node) state() int { return stateOf(n.PID, n.settingsFile()) }

// stateOf is that of a process with a marker in its command line.
func stateOf(pid int, marker string) int {
	if pid == 0 {
		return absent
	}
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	line, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	switch {
	case err != nil:
		return absent
	case len(line) > 0 && bytes.Contains(line, []byte(marker)):
		return alive
	case len(line) > 0:
		return absent
	}
	// Without a command line is one that has ended and waits for its parent, and a thread of
	// the kernel; but also one that is being started, and one that ends and has its ports still,
	// until the last of its threads is gone.
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // from the third on, in proc(5)'s words
	if err != nil || len(fields) < 18 {
		return absent
	}
	state, threads := fields[0], fields[17]
	flags, err := strconv.ParseUint(fields[6], 10, 64)
	if err != nil || flags&kernelThread != 0 || (state == "Z" || state == "X") && (threads == "0" || threads == "1") {
		return absent
	}
	// Only one that is being started has a program.
	if _, err := os.Readlink(filepath.Join(proc, "exe")); err != nil {
		return ending
	}
	return alive
}

// living are the nodes' processes that live, whatever cluster.json says: a command
// that was killed may have started one and not noted it. components are those that keep
// components running, by their kubeconfigs.
func (c *cluster) living() (nodes map[*Node][]int, components map[string][]int) {
	nodes, components = map[*Node][]int{}, map[string][]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		args := arguments(pid)
		if file := nodeFile(args); file != "" {
			for _, n := range c.Nodes {
				if file == n.settingsFile() {
					nodes[n] = append(nodes[n], pid)
				}
			}
		} else if file := componentFile(args); file != "" {
			components[file] = append(components[file], pid)
		}
	}
	return nodes, components
}

// arguments are the command line of a process.
func arguments(pid int) []string {
	line, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return strings.Split(string(line), "\x00")
}

// nodeFile is the configuration file of the process that runs a node with one, or "". An
// editor of the file is none.
func nodeFile(args []string) string {
	for i := 0; i+2 < len(args); i++ {
		if args[i] == "node" && args[i+1] == "--config" {
			return args[i+2]
		}
	}
	return ""
}

// refresh corrects the pids: those of processes that live, 0 for the nodes without one. One
// that another command has just started and noted lives, too, though it cannot be found by
// its command line yet. One that is ending is waited for, for at most goneWithin, so that a
// node that was killed can be started at once.
func (c *cluster) refresh() {
	for end := time.Now().Add(goneWithin); slices.ContainsFunc(c.Nodes, func(n *Node) bool { return n.state() == ending }); {
		if time.Now().After(end) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	living, components := c.living()
	c.Components.refresh(components)
	for _, n := range c.Nodes {
		pids := living[n]
		if len(pids) == 0 {
			n.more = nil
			if !n.Running() {
				n.PID = 0
			}
			continue
		}
		if !slices.Contains(pids, n.PID) {
			n.PID = pids[0]
		}
		n.more = slices.DeleteFunc(pids, func(pid int) bool { return pid == n.PID })
	}
}

// runningNodes are those of which a process lives.
func (c *cluster) runningNodes() []*Node { return c.those((*Node).Running) }

// stopWithin is how long the nodes may take to shut down before they are killed,
// goneWithin how long a killed one may take to be gone.
const (
	stopWithin = 30 * time.Second
	goneWithin = 5 * time.Second
)

// stop ends nodes, and before them the components beside them, gently first, waits until they are gone,
// and says which were stopped. Without nodes it is all.
func (c *cluster) stop(ctx context.Context, out io.Writer, nodes ...*Node) error {
	if len(nodes) == 0 {
		nodes = c.Nodes
	}
	first := c.Components.beside(nodes).stop(ctx, out)
	var running []processes
	for _, n := range nodes {
		if n.Running() {
			running = append(running, n.processes())
		}
	}
	return errors.Join(first, stopAll(ctx, out, running))
}

// processes are those of a node, or of a component.
type processes struct {
	name   string
	marker string // in their command lines, and in no other
	pids   []int  // of one, and of others that should not be
}

func (n *Node) processes() processes {
	return processes{n.Name, n.settingsFile(), append([]int{n.PID}, n.more...)}
}

// stopAll ends processes, gently first, and waits until they are gone.
func stopAll(ctx context.Context, out io.Writer, running []processes) error {
	gently, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	var errs []error
	for _, p := range running {
		// One that is paused takes no signal before it goes on.
		errs = append(errs, p.signal(syscall.SIGTERM), p.signal(syscall.SIGCONT))
	}
	for _, p := range running {
		if p.waitGone(gently) {
			fmt.Fprintf(out, "%s has stopped\n", p.name)
			continue
		}
		errs = append(errs, fmt.Errorf("%s did not stop within %s and was killed", p.name, stopWithin), p.signal(syscall.SIGKILL))
		killed, cancel := context.WithTimeout(context.WithoutCancel(ctx), goneWithin)
		if !p.waitGone(killed) {
			errs = append(errs, fmt.Errorf("%s is still there (pid %d)", p.name, p.pids[0]))
		}
		cancel()
	}
	return errors.Join(errs...)
}

// signal sends a signal; a process that has gone meanwhile needs none.
func (p processes) signal(s syscall.Signal) error {
	for _, pid := range p.pids {
		if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("%s to %s: %w", s, p.name, err)
		}
	}
	return nil
}

// waitGone waits until they are gone, at most until ctx ends.
func (p processes) waitGone(ctx context.Context) bool {
	for _, pid := range p.pids {
		for stateOf(pid, p.marker) != absent {
			select {
			case <-ctx.Done():
				return false
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	return true
}
