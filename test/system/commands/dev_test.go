package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/test/harness/cluster"
)

// atOnce runs the same command several times at once and returns what each has printed,
// and which have succeeded.
func atOnce(t *testing.T, c *cluster.Cluster, times int, args ...string) (outputs []string, ok int) {
	t.Helper()
	outputs = make([]string, times)
	errs := make([]error, times)
	var wg sync.WaitGroup
	for i := range times {
		wg.Go(func() { outputs[i], errs[i] = c.TryQuorate(t, args...) })
	}
	wg.Wait()
	for i, err := range errs {
		var exit *exec.ExitError
		if err == nil {
			ok++
		} else if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("%v: %v: %s", args, err, outputs[i])
		}
	}
	return outputs, ok
}

// nodeProcesses are the processes of the cluster's nodes.
func nodeProcesses(t *testing.T, c *cluster.Cluster) (pids []int) {
	t.Helper()
	for _, pid := range cluster.ProcessesOf(c.Dir) {
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.Contains(string(line), "\x00--config\x00") {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// noted are the pids of cluster.json.
func noted(t *testing.T, c *cluster.Cluster) (pids []int) {
	t.Helper()
	c.Reread(t)
	for _, n := range c.Nodes() {
		if n.PID != 0 {
			pids = append(pids, n.PID)
		}
	}
	slices.Sort(pids)
	return pids
}

// TestDevTogether: of several commands at once on one playground one starts what is to be
// started, the others say that it runs, and no process is left that cluster.json does
// not know.
func TestDevTogether(t *testing.T) {
	dir, err := os.MkdirTemp(cluster.RunDir(), "together-")
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.At(dir)
	t.Cleanup(func() {
		if t.Failed() {
			showState(t, c)
		}
		if err := c.Destroy(); err != nil {
			t.Error(err)
		}
	})
	port, err := cluster.FreePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	check := func(nodes int) {
		t.Helper()
		if noted, living := noted(t, c), nodeProcesses(t, c); len(living) != nodes || !slices.Equal(noted, living) {
			t.Fatalf("these live: %v, cluster.json has %v, want %d", living, noted, nodes)
		}
	}

	outputs, ok := atOnce(t, c, 3, "dev", "--data-dir", dir, "--api-port", strconv.Itoa(port), "--detach")
	refused := 0
	for _, out := range outputs {
		if strings.Contains(out, dir+" is running already: n1 (pid ") {
			refused++
		}
	}
	if ok != 1 || refused != 2 {
		t.Fatalf("%d have started it, %d have said that it runs:\n%s", ok, refused, strings.Join(outputs, "\n"))
	}
	check(3)

	for range 3 {
		c.Kill(t, c.Node(t, "n1"))
		outputs, ok := atOnce(t, c, 4, "dev", "start", "n1", "--data-dir", dir)
		c.Reread(t)
		pid := strconv.Itoa(c.Node(t, "n1").PID)
		ready, ran := 0, 0
		for _, out := range outputs {
			// The last line: there may be some about a wait before it.
			out = strings.TrimSpace(out)
			switch out[strings.LastIndexByte(out, '\n')+1:] {
			case "n1 is ready (pid " + pid + ")":
				ready++
			case "n1 is running already (pid " + pid + ")":
				ran++
			}
		}
		if ok != 4 || ready != 1 || ran != 3 {
			t.Fatalf("%d have started n1 with pid %s:\n%s", ok, pid, strings.Join(outputs, "\n"))
		}
		check(3)
	}

	// Starts and stops in any order: in the end nothing is left of what one of them started.
	var wg sync.WaitGroup
	for range 3 {
		for _, args := range [][]string{{"stop"}, {"start", "n2"}, {"stop", "n3"}, {"start", "n1", "n3"}} {
			wg.Go(func() { _, _ = c.TryQuorate(t, slices.Concat([]string{"dev"}, args, []string{"--data-dir", dir})...) })
		}
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	for done := false; !done; {
		// A start waits until its node is ready, which alone it never is, or is stopped.
		c.Quorate(t, "dev", "stop", "--data-dir", dir)
		select {
		case <-ended:
			done = true
		default:
		}
	}
	c.Quorate(t, "dev", "stop", "--data-dir", dir)
	check(0)
	if out := c.Quorate(t, "dev", "stop", "--data-dir", dir); out != "nothing runs in "+dir+"\n" {
		t.Errorf("a second stop says %q", out)
	}
	c.Quorate(t, "dev", "delete", "--data-dir", dir)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

// foreground starts a playground that stays in the foreground of a program of bash, which
// has a terminal of its own, and returns when it is ready.
func foreground(t *testing.T, program string) (c *cluster.Cluster, terminal *os.File, done <-chan error) {
	t.Helper()
	dir, err := os.MkdirTemp(cluster.RunDir(), "foreground-")
	if err != nil {
		t.Fatal(err)
	}
	c = cluster.At(dir)
	// It lives as long as the test: bounded like a command, its terminal's leader would be killed
	// in the middle of a test on a slow machine, and the playground would stop.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(func() {
		if t.Failed() {
			showState(t, c)
		}
		cancel()
		if err := c.Destroy(); err != nil {
			t.Error(err)
		}
		os.Remove(dir + ".out")
	})
	port, err := cluster.FreePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	// Under nohup this process ignores SIGHUP, and its children would: a playground then
	// outlives its terminal, as it should. What is caught is not inherited.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangups) })
	master, slave := openTerminal(t)
	cmd := exec.CommandContext(ctx, "bash", "-c", program)
	cmd.Env = cluster.CleanEnv("HOME="+dir, fmt.Sprintf("DEV=%s dev --nodes 1 --data-dir %s --api-port %d", cluster.Binary(), dir, port), "DIR="+dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the program, at the latest with the test
	var shown printed
	go func() { _, _ = io.Copy(&shown, master) }() // ends when the terminal is closed
	// What it says itself counts, on its terminal or in a file: 'dev status' sees readiness
	// earlier than the playground does, and a signal between the two is one before it is ready.
	cluster.Await(t, cluster.CommandWithin, "the playground says that it is ready", func() string {
		out := shown.String()
		if b, err := os.ReadFile(dir + ".out"); err == nil {
			out += string(b)
		}
		if !strings.Contains(out, "Quorate is ready") {
			return "it has said " + strconv.Quote(out)
		}
		return ""
	})
	return c, master, ended
}

// printed collects what a program has printed. It may be used concurrently.
type printed struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write implements io.Writer.
func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.Write(b)
}

// String returns all that was printed until now.
func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.String()
}

// showState shows, of a playground whose test has failed, what its commands print and its nodes
// log, and which processes live.
func showState(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	// The test's own context has ended.
	ctx, cancel := context.WithTimeout(context.Background(), cluster.CommandWithin)
	defer cancel()
	for _, args := range [][]string{{"dev", "status", "--data-dir", c.Dir}, {"status", "--kubeconfig", filepath.Join(c.Dir, "kubeconfig")}} {
		out, err := c.Command(ctx, args...).CombinedOutput()
		t.Logf("quorate %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	for _, pid := range cluster.ProcessesOf(c.Dir) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		t.Logf("process %d: %s\n%s", pid, strings.ReplaceAll(string(line), "\x00", " "), stat)
	}
	if err := c.Read(); err != nil {
		t.Log(err)
	}
	c.ShowLogs(t)
	if b, err := os.ReadFile(c.Dir + ".out"); err == nil {
		t.Logf("what 'quorate dev' has printed:\n%s", b)
	}
}

// openTerminal makes a pseudo-terminal. Closing the master hangs it up.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	// Not blocking, so that closing it ends a read of it.
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// TestDevEndsWithItsTerminal: a playground in the foreground ends when its terminal is
// closed, also below a session's leader that hears of it, waits and passes nothing on, as
// make does.
func TestDevEndsWithItsTerminal(t *testing.T) {
	c, terminal, done := foreground(t, "trap : HUP; $DEV; echo $? >$DIR/code")
	if err := terminal.Close(); err != nil {
		t.Fatal(err)
	}
	cluster.Await(t, 30*time.Second, "the playground has ended", func() string {
		if pids := cluster.ProcessesOf(c.Dir); len(pids) > 0 {
			return fmt.Sprint("these live: ", pids)
		}
		return ""
	})
	<-done
	if code, err := os.ReadFile(filepath.Join(c.Dir, "code")); err != nil || string(code) != "0\n" {
		t.Errorf("it ended with %q (%v)", code, err)
	}
	if pids := noted(t, c); len(pids) != 0 {
		t.Errorf("cluster.json has %v", pids)
	}
}

// TestDevOutlivesItsTerminal: not so under nohup and when it was put aside: those are
// for that.
func TestDevOutlivesItsTerminal(t *testing.T) {
	for name, program := range map[string]string{
		"nohup":  "trap : HUP; nohup $DEV >$DIR.out 2>&1",
		"disown": "set -m; $DEV >$DIR.out 2>&1 & disown; trap : HUP; read line; while [ ! -e $DIR/go ]; do sleep 0.1; done",
	} {
		t.Run(name, func(t *testing.T) {
			c, terminal, done := foreground(t, program)
			if err := terminal.Close(); err != nil {
				t.Fatal(err)
			}
			if name == "disown" {
				if err := os.WriteFile(filepath.Join(c.Dir, "go"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
				<-done // the leader has ended, and with it the session
			}
			// Nothing is to happen: this is some times as long as it takes to see that a
			// terminal is gone.
			//sleep: nothing is to happen meanwhile
			time.Sleep(2 * time.Second)
			if out, err := c.TryQuorate(t, "dev", "status", "--data-dir", c.Dir); err != nil {
				t.Fatalf("it has ended with its terminal: %s", out)
			}
			c.Quorate(t, "dev", "stop", "--data-dir", c.Dir)
			cluster.Await(t, 10*time.Second, "all has ended", func() string {
				if pids := cluster.ProcessesOf(c.Dir); len(pids) > 0 {
					return fmt.Sprint("these live: ", pids)
				}
				return ""
			})
		})
	}
}

// TestDevForeground: a node that was killed and started again, by another command, belongs
// to the playground in the foreground: that says so, and ends with it.
func TestDevForeground(t *testing.T) {
	c, _, done := foreground(t, "$DEV --nodes 3 --set log-level=warn >$DIR.out 2>&1")
	out := c.Dir + ".out"
	says := func(what string) {
		t.Helper()
		cluster.Await(t, 30*time.Second, what, func() string {
			b, _ := os.ReadFile(out)
			if !strings.Contains(string(b), what) {
				return string(b)
			}
			return ""
		})
	}
	c.Reread(t)
	n1 := c.Node(t, "n1")
	c.Kill(t, n1)
	says("n1 has exited.")
	c.Restart(t, n1)
	says(fmt.Sprintf("n1 runs again (pid %d)", n1.PID))
	c.Quorate(t, "dev", "stop", "n2", "n3", "--data-dir", c.Dir)
	says("n3 has exited.")
	c.Quorate(t, "dev", "stop", "--data-dir", c.Dir)
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it does not end with its last node")
	}
	says("all nodes have stopped")
}
