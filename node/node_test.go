package node

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// alone are the settings of a cluster of one, on ports that the kernel has chosen.
func alone(t *testing.T) Config {
	t.Helper()
	c := Defaults()
	c.Name, c.DataDir, c.BootstrapExpect, c.ShutdownGrace = "n1", t.TempDir(), 1, 0
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaseTimeout = 25*time.Millisecond, 25*time.Millisecond, 25*time.Millisecond
	for _, l := range []*net.Listener{&c.APIListener, &c.PeerListener} {
		var err error
		if *l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func open(t *testing.T, c Config) *Node {
	t.Helper()
	n, err := Open(t.Context(), c)
	must.OK(t, err)
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// TestCloseWithoutRun gives ports and directory back, so that another node can have them.
func TestCloseWithoutRun(t *testing.T) {
	c := alone(t)
	n := open(t, c)
	other := alone(t)
	other.DataDir = c.DataDir
	if _, err := Open(t.Context(), other); err == nil || !strings.Contains(err.Error(), "is in use by another process") {
		t.Errorf("two nodes have a directory: %v", err)
	}
	if err := errors.Join(n.Close(), n.Close()); err != nil {
		t.Error(err)
	}
	if err := n.Run(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Run after Close: %v", err)
	}
	if err := n.Ready(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Ready after Close: %v", err)
	}
	c.APIListener, c.PeerListener = nil, nil
	c.APIListen, c.PeerListen = strings.TrimPrefix(n.URL(), "https://"), n.cfg.PeerListen
	open(t, c)
}

// TestCloseEndsRun: Close, of several at once each, ends Run and waits for it, and who waits until
// the node is ready is told.
func TestCloseEndsRun(t *testing.T) {
	n := open(t, alone(t))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := n.Run(t.Context()); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	must.OK(t, n.Ready(t.Context()))
	if err := n.Run(t.Context()); err == nil || errors.Is(err, ErrClosed) {
		t.Errorf("a second Run: %v", err)
	}
	for range 3 {
		wg.Go(func() {
			if err := n.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	wg.Wait()
	if err := n.Ready(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Ready after Close: %v", err)
	}
}

// TestRunEndsWithItsContext is no failure, also when the context's time is over.
func TestRunEndsWithItsContext(t *testing.T) {
	n := open(t, alone(t))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := n.Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := n.Ready(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Ready after Run: %v", err)
	}
}

// TestNotReady says for what.
func TestNotReady(t *testing.T) {
	n := open(t, alone(t)) // it does not run
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := n.Ready(ctx); err == nil || !strings.Contains(err.Error(), "node n1 is not ready: membership: not part of a cluster yet") {
		t.Errorf("%v", err)
	}
}

// TestFatal: a node that cannot go on ends the process by Fatal, or by a panic if that is missing or returns.
func TestFatal(t *testing.T) {
	cause := errors.New("the disk")
	var told error
	for _, fatal := range []func(error){nil, func(err error) { told = err }} {
		n := &Node{cfg: &Config{Name: "n1", Fatal: fatal}, log: slog.New(slog.DiscardHandler)}
		func() {
			defer func() {
				if err, ok := recover().(error); !ok || !errors.Is(err, cause) || !strings.Contains(err.Error(), "node n1 cannot go on") {
					t.Errorf("panic: %v", err)
				}
			}()
			n.die(cause)
		}()
	}
	if !errors.Is(told, cause) {
		t.Errorf("told %v", told)
	}
}
