package sim

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// conn is one end of a connection.
type conn struct {
	host          *host
	local, remote string
	in, out       *half
	peer          *conn
	once          sync.Once
}

// half is one direction of a connection: the segments that were written and not
// read yet. Writing never waits: buffers are as large as they need to be. The
// network's lock guards everything.
type half struct {
	net      *network
	from, to *host

	segments []segment
	last     time.Time // when the newest segment arrives
	deadline time.Time // of the reader
	notify   chan struct{}
	// err is what the reader gets when everything before it was read and its time
	// has come; a broken half delivers nothing more.
	err    error
	errAt  time.Time
	broken bool
	known  bool // that it is broken, to the reader's side: for good
	closed bool // by the reader
}

type segment struct {
	data []byte
	at   time.Time
	// held: it was written while the sender was paused; a paused process writes
	// nothing, so it leaves when the process goes on.
	held bool
}

func newHalf(n *network, from, to *host) *half {
	return &half{net: n, from: from, to: to, notify: make(chan struct{}, 1)}
}

func (f *half) wake() {
	select {
	case f.notify <- struct{}{}:
	default:
	}
}

// dueLocked reports whether the reader sees that the direction is broken: what
// another machine has to say about it must get through first.
func (f *half) dueLocked() bool {
	if f.known || !f.broken || time.Now().Before(f.errAt) {
		return f.known
	}
	ok, quiet := f.passesLocked(false)
	if f.err != syscall.ECONNRESET || ok && !time.Now().Before(quiet) {
		f.known = true
		f.wake()
	}
	return f.known
}

// breakLocked ends the direction: what has not been read is lost.
func (f *half) breakLocked(at time.Time, err error) {
	if !f.broken {
		f.broken, f.err, f.errAt = true, err, at
	}
	f.wake()
}

// writeLocked queues a segment.
func (f *half) writeLocked(b []byte) {
	n := f.net
	at := time.Now().Add(n.delayLocked(f.from.name, f.to.name))
	if l := n.links[[2]string{f.from.name, f.to.name}]; l != nil && (l.stall > 0 || l.breaks > 0) {
		switch dice := n.rng.Float64(); {
		case dice < l.breaks:
			n.breakLocked(f.from.name, f.to.name)
		case dice < l.breaks+l.stall:
			// Lost and sent again: once after 200 ms, or twice.
			at = at.Add(200 * time.Millisecond << n.rng.IntN(2))
		}
	}
	if f.broken || f.closed || f.from.dead {
		return // nobody reads it; the writer learns of that when it reads
	}
	if at.Before(f.last) {
		at = f.last
	}
	f.last = at
	f.segments = append(f.segments, segment{append([]byte(nil), b...), at, f.from.paused})
	f.wake()
}

// endLocked marks that the writer has closed: the reader gets EOF behind the rest.
func (f *half) endLocked() {
	if !f.broken && f.err == nil {
		f.err, f.errAt = io.EOF, time.Now().Add(f.net.delayLocked(f.from.name, f.to.name))
		if f.errAt.Before(f.last) {
			f.errAt = f.last
		}
	}
	f.wake()
}

// passesLocked reports whether a segment gets through, and from when on.
func (f *half) passesLocked(held bool) (ok bool, at time.Time) {
	if f.to.paused || held && f.from.paused && !f.from.dead {
		return false, at
	}
	if l := f.net.links[[2]string{f.from.name, f.to.name}]; l != nil {
		return !l.cut, l.quietUntil
	}
	return true, at
}

// read takes what has arrived.
func (f *half) read(b []byte) (int, error) {
	for {
		n, wait, changed, err := f.take(b)
		if n > 0 || err != nil {
			return n, err
		}
		if wait.IsZero() {
			select {
			case <-f.notify:
			case <-changed:
			}
			continue
		}
		timer := time.NewTimer(time.Until(wait))
		select {
		case <-f.notify:
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// take is one look: bytes, an error, or until when and for which change to wait.
func (f *half) take(b []byte) (n int, wait time.Time, changed <-chan struct{}, err error) {
	f.net.mu.Lock()
	defer f.net.mu.Unlock()
	now := time.Now()
	switch {
	case f.closed:
		return 0, wait, nil, net.ErrClosed
	case !f.deadline.IsZero() && !now.Before(f.deadline):
		return 0, wait, nil, os.ErrDeadlineExceeded
	case f.dueLocked():
		return 0, wait, nil, f.err
	}
	wait = f.deadline
	held, at := false, f.errAt
	switch {
	case f.broken:
	case len(f.segments) > 0:
		held, at = f.segments[0].held, f.segments[0].at
	case f.err == nil:
		return 0, wait, nil, nil
	}
	changed = f.net.changed
	ok, quiet := f.passesLocked(held)
	if !ok {
		return 0, wait, changed, nil
	}
	if quiet.After(at) {
		at = quiet
	}
	if now.Before(at) {
		if wait.IsZero() || at.Before(wait) {
			wait = at
		}
		return 0, wait, changed, nil
	}
	if len(f.segments) == 0 {
		return 0, wait, nil, f.err
	}
	s := &f.segments[0]
	n = copy(b, s.data)
	if s.data = s.data[n:]; len(s.data) == 0 {
		f.segments = f.segments[1:]
	}
	return n, wait, nil, nil
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) { return c.in.read(b) }

// Write implements net.Conn. It does not wait.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.write(b); err != nil {
		return 0, &net.OpError{Op: "write", Net: "sim", Err: err}
	}
	return len(b), nil
}

// write only fails on a connection that this side has closed: what becomes of the
// bytes shows when reading. A connection that cannot be written to and shows
// nothing to its reader yet would make gRPC try again and again while no time
// passes.
func (c *conn) write(b []byte) error {
	c.host.net.mu.Lock()
	defer c.host.net.mu.Unlock()
	if c.in.closed {
		return net.ErrClosed
	}
	c.out.writeLocked(b)
	return nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.host.net.mu.Lock()
		defer c.host.net.mu.Unlock()
		c.out.endLocked()
		c.in.closed = true
		c.in.wake()
		delete(c.host.conns, c)
	})
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return simAddr(c.local) }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return simAddr(c.remote) }

// SetDeadline implements net.Conn. Writes never wait.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.host.net.mu.Lock()
	c.in.deadline = t
	c.host.net.mu.Unlock()
	c.in.wake()
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// layer is the raft.StreamLayer of a node.
type layer struct{ *listener }

var _ raft.StreamLayer = layer{}

// Dial implements raft.StreamLayer.
func (l layer) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return l.host.dial(ctx, string(to), "raft")
}
