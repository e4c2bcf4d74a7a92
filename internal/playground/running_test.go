package playground

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// TestRunningFromTheStart looks at processes from the moment they are started, when the kernel
// has no command line to show yet, to the moment after their end, when it has none
// any more.
func TestRunningFromTheStart(t *testing.T) {
	n := &Node{DataDir: t.TempDir()}
	for range 300 {
		cmd := exec.Command("sleep", "60")
		cmd.Args = []string{n.DataDir + ".yaml", "60"} // coreutils' sleep does not ask for its name
		cmd.Path, _ = exec.LookPath("sleep")
		must.OK(t, cmd.Start())
		n.PID = cmd.Process.Pid
		alive := n.Running()
		_ = cmd.Process.Kill()
		deadline := time.Now().Add(10 * time.Second)
		for n.Running() && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		zombie := n.Running()
		_ = cmd.Wait()
		switch {
		case !alive:
			t.Fatal("a process that was just started does not run")
		case zombie:
			t.Fatal("a process that has ended, and waits for its parent, runs")
		case n.Running():
			t.Fatal("a process that is gone runs")
		}
	}
}

// TestRefreshFromTheStart: a node that another command has just started and noted is not
// forgotten because the kernel has no command line of it yet.
func TestRefreshFromTheStart(t *testing.T) {
	n := &Node{DataDir: t.TempDir()}
	c := &cluster{Nodes: []*Node{n}}
	for range 300 {
		cmd := exec.Command("sh", "-c", "kill -STOP $$", "node", "--config", n.DataDir+".yaml")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		must.OK(t, cmd.Start())
		pid := cmd.Process.Pid
		n.PID = pid
		c.refresh()
		kept := n.PID
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		_ = cmd.Wait()
		c.refresh()
		if kept != pid || n.PID != 0 {
			t.Fatalf("process %d was kept as %d, and when it had ended as %d", pid, kept, n.PID)
		}
	}
}

// holdsPort names the variable by which this test's program is told to listen.
const holdsPort = "PLAYGROUND_TEST_HOLDS_PORT"

// TestRunningUntilPortsAreFree: a process that was killed runs until it has let go of its ports,
// though the kernel has no command line of it any more.
func TestRunningUntilPortsAreFree(t *testing.T) {
	if address := os.Getenv(holdsPort); address != "" {
		l, err := net.Listen("tcp", address)
		must.OK(t, err)
		// Memory takes the kernel a while to free, before the sockets.
		memory := make([]byte, 64<<20)
		for i := 0; i < len(memory); i += 4096 {
			memory[i] = 1
		}
		fmt.Println("holds")
		<-t.Context().Done()
		_ = l.Close()
	}
	for range 20 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must.OK(t, err)
		address := l.Addr().String()
		_ = l.Close()
		n := &Node{DataDir: t.TempDir()}
		cmd := exec.Command(os.Args[0], "-test.run=^TestRunningUntilPortsAreFree$", n.DataDir+".yaml")
		cmd.Env = append(os.Environ(), holdsPort+"="+address)
		out, err := cmd.StdoutPipe()
		must.OK(t, err)
		must.OK(t, cmd.Start())
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		n.PID = cmd.Process.Pid
		_ = cmd.Process.Kill()
		deadline := time.Now().Add(10 * time.Second)
		for n.Running() && time.Now().Before(deadline) {
			runtime.Gosched()
		}
		l, err = net.Listen("tcp", address)
		_ = cmd.Wait()
		if err != nil {
			t.Fatalf("a process is gone whose port is taken: %v", err)
		}
		_ = l.Close()
	}
}
