package direct

import (
	"crypto/tls"
	"errors"
	"os"
	"syscall"
	"time"
)

// firstRead is how large the buffer of a connection is at first. Nearly all answers are smaller.
const firstRead = 4 << 10

// conn is a connection with its buffers. For one exchange at a time.
type conn struct {
	*tls.Conn
	raw   syscall.RawConn
	in    []byte // what was read of the answer
	out   []byte
	since time.Time // it is not used since then
	// doubted is the route as long as it is not known whether the webhook speaks HTTP/1.1; else nil.
	doubted *route
}

// newConn returns nil for a connection that cannot be looked at.
func newConn(of *tls.Conn) *conn {
	from, ok := of.NetConn().(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := from.SyscallConn()
	if err != nil {
		return nil
	}
	return &conn{Conn: of, raw: raw, in: make([]byte, 0, firstRead)}
}

// quiet reports whether nothing has come on a connection that nobody uses, also not its end. What
// comes there is no answer.
func (c *conn) quiet() bool {
	var one [1]byte
	// What came with the answer before may be in TLS's buffer. Its time is over, so that nothing is
	// read from the system, whose end TLS would keep to itself as long as there is half a record.
	_ = c.SetReadDeadline(time.Unix(1, 0))
	if n, err := c.Read(one[:]); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	var n int
	var err error
	// By Control, since Read minds the deadline of the exchange before.
	if failed := c.raw.Control(func(fd uintptr) { n, err = syscall.Read(int(fd), one[:]) }); failed != nil {
		return false
	}
	return n <= 0 && (errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR))
}

// end ends a connection without a word to its server, which could make it wait.
func (c *conn) end() { _ = c.NetConn().Close() } // there is nobody to tell
