package apiserver

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// TestEndOfAStream: who waits for a connection whose stream has ended is told that it is closed, which the library does not
// log. Other deadlines are told as they are.
func TestEndOfAStream(t *testing.T) {
	for _, ended := range []bool{true, false} {
		for name, wait := range map[string]func(net.Conn) error{
			"read":  func(c net.Conn) error { _, err := c.Read(make([]byte, 1)); return err },
			"write": func(c net.Conn) error { _, err := c.Write([]byte("x")); return err },
		} {
			conn, other := net.Pipe()
			c := &taken{Conn: conn, of: &stream{over: true, cancel: func() {}}}
			c.started.Do(func() {}) // the answer has begun
			want := os.ErrDeadlineExceeded
			if ended {
				c.end()
				want = net.ErrClosed
			}
			must.OK(t, conn.SetDeadline(time.Unix(1, 0)))
			if err := wait(c); !errors.Is(err, want) {
				t.Errorf("%s, ended %t: %v", name, ended, err)
			}
			_ = conn.Close()
			_ = other.Close()
		}
	}
}
