//go:build linux

package host

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

func needRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("namespaces need root")
	}
}

// TestSwitch sends bytes between two hosts over the switch, keeps new connections out,
// cuts one direction and heals it.
func TestSwitch(t *testing.T) {
	needRoot(t)
	s := NewSwitch()
	a, b := netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("10.77.0.2")
	hosts := map[netip.Addr]*Host{}
	for _, addr := range []netip.Addr{a, b} {
		h, err := New(Options{Network: true})
		must.OK(t, err)
		defer h.Close()
		must.OK(t, s.Plug(h, addr))
		hosts[addr] = h
	}
	defer s.Close()
	var l net.Listener
	must.OK(t, hosts[b].Do(func() (err error) {
		l, err = net.Listen("tcp4", b.String()+":1000")
		return err
	}))
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	conn, err := hosts[a].Dial(t.Context(), "tcp4", b.String()+":1000")
	must.OK(t, err)
	defer conn.Close()
	echo := func() error {
		_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
		if _, err := conn.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err
	}
	must.OK(t, echo())
	s.Set(a, b, Link{NoDial: true})
	if err := echo(); err != nil {
		t.Fatalf("on an open connection where none is opened: %v", err)
	}
	impatient, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if c, err := hosts[a].Dial(impatient, "tcp4", b.String()+":1000"); err == nil {
		c.Close()
		t.Fatal("a connection was opened where none is")
	}
	s.Heal()
	s.Set(b, a, Link{Cut: true})
	_ = conn.SetDeadline(time.Now().Add(200 * time.Millisecond))
	_, _ = conn.Write([]byte("y"))
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Fatalf("%d bytes came over a link that is cut", n)
	}
	s.Heal()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatalf("after healing: %v", err)
	}
	s.Set(a, b, Link{Delay: 40 * time.Millisecond, Jitter: 10 * time.Millisecond, Loss: 0.2, Duplicate: 0.2, Reorder: 0.2})
	// Each is drawn for each packet, and how many packets an echo takes is TCP's
	// business: as many echoes as it takes until all have happened.
	var c Counts
	for range 500 {
		must.OK(t, echo())
		if c = s.Counts(); c.Lost > 0 && c.Duplicated > 0 && c.Reordered > 0 && c.Delayed > 0 {
			break
		}
	}
	if c.Cut == 0 || c.Lost == 0 || c.Duplicated == 0 || c.Reordered == 0 || c.Delayed == 0 {
		t.Errorf("%+v", c)
	}
}

// TestProcessesDie shows that a process does not outlive its host, stopped or
// not, and that it sees only the host's network.
func TestProcessesDie(t *testing.T) {
	needRoot(t)
	h, err := New(Options{Network: true, Mounts: true})
	must.OK(t, err)
	var out strings.Builder
	list := exec.Command("cat", "/proc/net/dev")
	list.Stdout = &out
	must.OK(t, h.Start(list))
	must.OK(t, list.Wait())
	if lines := strings.Count(out.String(), ":"); lines != 1 {
		t.Errorf("a host without a switch has only lo, not\n%s", out.String())
	}
	sleep := exec.Command("sleep", "1000")
	must.OK(t, h.Start(sleep))
	must.OK(t, sleep.Process.Signal(syscall.SIGSTOP))
	h.Close()
	ended := make(chan error, 1)
	go func() { ended <- sleep.Wait() }()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("it lives")
	}
}
