package pipes

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// TestLayer dials what accepts, what does not, what is closed and what never was.
func TestLayer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		a, b := n.Join("a"), n.Join("b")
		if _, err := a.Dial("c", time.Second); err == nil || err.Error() != "no node at c" {
			t.Errorf("nobody there: %v", err)
		}
		began := time.Now()
		if _, err := a.Dial("b", time.Second); err == nil || err.Error() != "dial b: timeout" || time.Since(began) != time.Second {
			t.Errorf("nobody accepts: %v after %s", err, time.Since(began))
		}
		go func() {
			c, err := a.Dial("b", time.Second)
			if err == nil {
				_, err = io.WriteString(c, "hello")
			}
			if err != nil {
				t.Error(err)
			}
		}()
		c, err := b.Accept()
		must.OK(t, err)
		got := make([]byte, 5)
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello" {
			t.Errorf("read %q, %v", got, err)
		}
		if b.Addr().String() != "b" {
			t.Errorf("the address is %s", b.Addr())
		}
		for range 2 {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := b.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept after close: %v", err)
		}
		if _, err := a.Dial("b", time.Second); !errors.Is(err, net.ErrClosed) {
			t.Errorf("dial after close: %v", err)
		}
		n.Join("b")
		if _, err := a.Dial("b", time.Second); err == nil || err.Error() != "dial b: timeout" {
			t.Errorf("dial a host that has joined since: %v", err)
		}
	})
}
