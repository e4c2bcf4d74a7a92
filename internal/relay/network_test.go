package relay

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// dialVariable is the address that a process of this test dials; it carries lines there and back.
const dialVariable = "RELAY_DIAL"

func TestMain(m *testing.M) {
	if addr := os.Getenv(dialVariable); addr != "" {
		if err := dialer(addr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// dialer carries standard input to an address, and what comes back to standard output.
func dialer(addr string) error {
	conn, err := net.Dial("tcp4", addr)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(conn, os.Stdin)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(os.Stdout, conn)
	return err
}

// caller is a process of another node that has dialled.
type caller struct {
	in    io.WriteCloser
	lines chan string // closed at the end
}

// freeAddress is one that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	must.OK(t, err)
	defer l.Close()
	return l.Addr().String()
}

// runs names a node's process; a node that only calls gets an address too.
func runs(t *testing.T, n *Network, node string, pid int) {
	t.Helper()
	n.mu.Lock()
	known := n.doors[node] != nil
	n.mu.Unlock()
	if !known {
		must.OK(t, n.Listen(node, freeAddress(t), freeAddress(t)))
	}
	must.OK(t, n.Runs(node, pid))
}

// call starts a node's process that dials an address.
func call(t *testing.T, n *Network, node, addr string) *caller {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), dialVariable+"="+addr)
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	must.OK(t, errors.Join(err1, err2, cmd.Start()))
	runs(t, n, node, cmd.Process.Pid)
	c := &caller{in: in, lines: make(chan string, 16)}
	go func() {
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return c
}

func (c *caller) say(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(c.in, line); err != nil {
		t.Fatal(err)
	}
}

const soon, silence = 20 * time.Second, 150 * time.Millisecond

// hears awaits a line; "" is the end.
func hears(t *testing.T, what string, lines <-chan string, want string) {
	t.Helper()
	select {
	case got := <-lines:
		if got != want {
			t.Fatalf("%s: %q came, want %q", what, got, want)
		}
	case <-time.After(soon):
		t.Fatalf("%s: %q did not come", what, want)
	}
}

func hearsNothing(t *testing.T, what string, lines <-chan string) {
	t.Helper()
	select {
	case got := <-lines:
		t.Fatalf("%s: %q came", what, got)
	case <-time.After(silence):
	}
}

// server is a node in this process: what it hears, and what it says.
type server struct {
	addr  string
	lines chan string
	conns chan net.Conn
}

func serve(t *testing.T, n *Network, node string) *server {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	must.OK(t, err)
	s := &server{lines: make(chan string, 16), conns: make(chan net.Conn, 16)}
	s.addr = freeAddress(t)
	must.OK(t, n.Listen(node, s.addr, l.Addr().String()))
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.conns <- conn
			go func() {
				for in := bufio.NewScanner(conn); in.Scan(); {
					s.lines <- in.Text()
				}
				s.lines <- ""
				conn.Close()
			}()
		}
	}()
	return s
}

func newNetwork(t *testing.T) *Network {
	t.Helper()
	if err := Check(); err != nil {
		if runtime.GOOS == "linux" {
			t.Fatal(err)
		}
		t.Skip(err) // bench faults refuses partitions then
	}
	n := New()
	t.Cleanup(func() { must.Close(t, n) })
	return n
}

// TestCut closes the ways of one node of three, in both directions and in each, on connections that
// are open; what was sent meanwhile comes when they are opened, and others notice nothing.
func TestCut(t *testing.T) {
	n := newNetwork(t)
	s := serve(t, n, "server")
	a := call(t, n, "a", s.addr)
	fromA := <-s.conns
	b := call(t, n, "b", s.addr)
	fromB := <-s.conns
	for i, c := range []struct {
		node              string
		in, out           bool
		toServer, toNodes bool // what A and the server say to each other still arrives
		others            bool // and B and the server
	}{
		{"a", true, true, false, false, true},
		{"a", true, false, true, false, true},
		{"a", false, true, false, true, true},
		{"server", true, true, false, false, false},
		{"server", true, false, false, true, false},
		{"nobody", true, true, true, true, true},
	} {
		n.Cut(c.node, c.in, c.out)
		name := fmt.Sprintf("%s in %v out %v", c.node, c.in, c.out)
		up, down := fmt.Sprintf("up %d", i), fmt.Sprintf("down %d", i)
		a.say(t, up)
		if c.toServer {
			hears(t, name, s.lines, up)
		} else {
			hearsNothing(t, name, s.lines)
		}
		fmt.Fprintln(fromA, down)
		if c.toNodes {
			hears(t, name, a.lines, down)
		} else {
			hearsNothing(t, name, a.lines)
		}
		if c.others {
			b.say(t, "other")
			hears(t, name, s.lines, "other")
			fmt.Fprintln(fromB, "same")
			hears(t, name, b.lines, "same")
		}
		n.Heal(c.node)
		if !c.toServer {
			hears(t, "healed: "+name, s.lines, up)
		}
		if !c.toNodes {
			hears(t, "healed: "+name, a.lines, down)
		}
	}
}

// TestEnds: the end of a connection is told to the other side, but not while the way is cut; and a
// connection that is opened meanwhile arrives later.
func TestEnds(t *testing.T) {
	n := newNetwork(t)
	s := serve(t, n, "server")
	a := call(t, n, "a", s.addr)
	fromA := <-s.conns
	a.say(t, "1")
	hears(t, "open", s.lines, "1")
	n.Cut("a", true, true)
	must.OK(t, fromA.Close())
	hears(t, "the server's own end", s.lines, "")
	second := call(t, n, "a", s.addr)
	second.say(t, "2")
	hearsNothing(t, "the end of a connection that is cut", a.lines)
	hearsNothing(t, "a connection to a node that is cut off", s.lines)
	n.Heal("a")
	hears(t, "the end", a.lines, "")
	hears(t, "the second connection", s.lines, "2")
	must.OK(t, second.in.Close())
	hears(t, "the caller's end", s.lines, "")
	hears(t, "and back", second.lines, "")
}

// TestStranger: who is no node is not carried, and Close ends what waits.
func TestStranger(t *testing.T) {
	n := newNetwork(t)
	s := serve(t, n, "server")
	c := call(t, newNetwork(t), "a", s.addr)
	hears(t, "a stranger", c.lines, "")
	select {
	case <-s.conns:
		t.Error("it was let through")
	default:
	}
	n.Cut("a", true, true)
	waits := call(t, n, "a", s.addr)
	hearsNothing(t, "cut off", waits.lines)
	must.OK(t, n.Close())
	hears(t, "closed", waits.lines, "")
}

// TestEnded: the address of a node whose process is gone refuses connections until it runs again.
func TestEnded(t *testing.T) {
	n := newNetwork(t)
	s := serve(t, n, "server")
	for range 2 {
		must.OK(t, n.Ended("server"))
		if conn, err := net.Dial("tcp4", s.addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("connected to %v (%v)", conn, err)
		}
	}
	must.OK(t, n.Runs("server", os.Getpid()))
	a := call(t, n, "a", s.addr)
	a.say(t, "again")
	hears(t, "it runs again", s.lines, "again")
}

func TestSocketOf(t *testing.T) {
	const line = "   5: 0100007F:A3F2 0500007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 123456 1 0000000000000000 20 4 30 10 -1"
	from, to := netip.MustParseAddrPort("127.0.0.1:41970"), netip.MustParseAddrPort("127.0.0.5:8080")
	if s := socketOf(line, from, to); s != "socket:[123456]" {
		t.Errorf("it is %q", s)
	}
	for _, other := range []string{"", "sl local_address rem_address st", line[:40]} {
		if s := socketOf(other, from, to); s != "" {
			t.Errorf("%q: %q", other, s)
		}
	}
	if s := socketOf(line, to, from); s != "" {
		t.Errorf("the other end: %q", s)
	}
}
