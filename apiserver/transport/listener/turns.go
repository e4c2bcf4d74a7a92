package listener

import (
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	// bulkWrite is from how many bytes on a write to a connection waits for a turn: a full TLS record. An answer,
	// or a watch event, that is shorter never waits.
	bulkWrite = 16 << 10
	// turnBytes are what a connection writes in a turn while others wait. Each byte costs more time the less it is: with
	// 64 KiB, 256 informers took half as much CPU time again for a byte as with 1 MiB.
	turnBytes = 1 << 20
)

// turns bound how many goroutines write bulk to connections at a time. Go's scheduler runs what is ready in the order
// in which it became ready, and looks at the network when nothing is left: if 256 goroutines write large answers as fast
// as they can, each step of any other request, and of Raft, waits until all of them have run, up to 10 ms each.
// Here they wait for each other instead: there are as many turns as processors.
//
// A turn is never held by who waits for a client: not for room in the kernel's buffers (see attempt), and not for
// windows (package h2 calls Release). Users take turns, and the connections of one. Safe for concurrent use.
type turns struct {
	mu    sync.Mutex
	procs int                 // how many turns there are
	free  int                 // of them; below zero: there were more
	lines map[string]*writers // by user, or guests' address; there is none that is empty
	first *writers            // whose turn it is next
	last  *writers
	// waited is told how long each has waited that had to; nil: nobody asks.
	waited func(time.Duration)
}

// writers are the connections of one user that wait, the longest waiting first.
type writers struct {
	name        string
	first, last *connection
	next        *writers
}

// turn is what a connection knows of its turns.
type turn struct {
	ready chan struct{} // gets a value when the turn has come

	// Guarded by turns.mu.
	held  bool
	keep  bool        // between writes
	using bool        // a write is under way, or waits for the turn
	left  int         // bytes
	after *connection // waits behind it
}

func newTurns() *turns {
	n := runtime.GOMAXPROCS(0)
	return &turns{procs: n, free: n, lines: map[string]*writers{}}
}

// ObserveTurns has waited told of each write of bulk that had to wait for its turn. It is called before the first one.
func (l *Listener) ObserveTurns(waited func(time.Duration)) { l.turns.waited = waited }

// take waits for a turn to write n bytes, unless the connection has one. A connection has one writer at a time.
func (t *turns) take(c *connection, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.turn.using = true // from before it has the turn: until its writer wakes, Release must not take that away
	if c.turn.held && (c.turn.left > 0 || t.first == nil) {
		c.turn.left -= n
		return
	}
	if c.turn.held {
		t.give(c) // and queue again
		t.wait(c)
	} else if t.adapt(); t.free > 0 {
		t.free--
		t.grant(c)
	} else {
		t.wait(c)
	}
	c.turn.left -= n
}

// adapt has as many turns as there are processors by now, if none is free. mu is held.
func (t *turns) adapt() {
	if t.free > 0 {
		return
	}
	n := runtime.GOMAXPROCS(0)
	t.free += n - t.procs
	t.procs = n
	for t.free > 0 && t.first != nil {
		t.free--
		t.pass()
	}
}

// grant gives the connection a turn. mu is held.
func (t *turns) grant(c *connection) { c.turn.held, c.turn.left = true, turnBytes }

// wait queues for a turn. mu is held, and is released meanwhile.
func (t *turns) wait(c *connection) {
	if c.turn.ready == nil {
		c.turn.ready = make(chan struct{}, 1)
	}
	name := c.address
	if user := c.name.Load(); user != nil {
		name = *user
	}
	w := t.lines[name]
	if w == nil {
		w = &writers{name: name}
		t.lines[name] = w
		t.queue(w)
	}
	if w.last == nil {
		w.first = c
	} else {
		w.last.turn.after = c
	}
	w.last = c
	t.mu.Unlock()
	began := time.Now()
	<-c.turn.ready
	if t.waited != nil {
		t.waited(time.Since(began))
	}
	t.mu.Lock()
}

// queue puts a user's line behind those of the others. mu is held.
func (t *turns) queue(w *writers) {
	if t.last == nil {
		t.first = w
	} else {
		t.last.next = w
	}
	t.last = w
}

// give takes the turn from a connection, and gives it to the one that is next. mu is held.
func (t *turns) give(c *connection) {
	c.turn.held = false
	if t.first == nil || t.free < 0 {
		t.free++
		return
	}
	t.pass()
}

// pass gives a turn to who is next. Somebody must wait. mu is held.
func (t *turns) pass() {
	w := t.first
	if t.first = w.next; t.first == nil {
		t.last = nil
	}
	w.next = nil
	next := w.first
	if w.first = next.turn.after; w.first == nil {
		delete(t.lines, w.name)
	} else {
		t.queue(w)
	}
	next.turn.after = nil
	t.grant(next)
	next.turn.ready <- struct{}{} // has room: it waits once
}

// done ends a write. waits: the connection is about to wait for its client.
func (t *turns) done(c *connection, waits bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.turn.using = false
	if c.turn.held && (waits || !c.turn.keep) {
		t.give(c)
	}
}

// Hold has the connection keep its turn after the next bulk write, until Release: what follows comes at once.
func (c *connection) Hold() {
	c.keeps.Store(true)
	c.in.turns.mu.Lock()
	c.turn.keep = true
	c.in.turns.mu.Unlock()
}

// Release gives the turn back when no write is under way.
func (c *connection) Release() {
	t := c.in.turns
	c.keeps.Store(false)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.release(c)
}

// release is Release with mu held.
func (t *turns) release(c *connection) {
	c.turn.keep = false
	if c.turn.held && !c.turn.using {
		t.give(c)
	}
}

// writeInTurns writes b, and holds a turn while it does not wait for the client.
func (c *connection) writeInTurns(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		c.in.turns.take(c, len(b)-n)
		n, err = c.attempt(b, n)
	}
	return n, err
}

// attempt writes what the kernel takes of b[n:]. Unless that was all, it gives the turn back and waits until the kernel
// takes more.
func (c *connection) attempt(b []byte, n int) (int, error) {
	tried := false
	var failed error
	err := c.raw.Write(func(fd uintptr) bool {
		if tried {
			return true // it takes more
		}
		tried = true
		var full bool
		if n, full, failed = writeTo(fd, b, n); full {
			c.in.turns.done(c, true)
		}
		return !full
	})
	c.in.turns.done(c, false)
	if err == nil {
		err = c.writeError(failed)
	}
	return n, err
}

// writeTo writes what the kernel takes of b[n:], and returns how much of b is written. full: it took not all.
func writeTo(fd uintptr, b []byte, n int) (written int, full bool, err error) {
	for n < len(b) {
		m, err := syscall.Write(int(fd), b[n:])
		switch {
		case m > 0:
			n += m
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return n, true, nil
		default:
			return n, false, err
		}
	}
	return n, false, nil
}

// writeError is an error of a write as package net has it.
func (c *connection) writeError(err error) error {
	if err == nil {
		return nil
	}
	return &net.OpError{Op: "write", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError("write", err)}
}

// rawOf is the connection's descriptor, or nil if it has none.
func rawOf(conn net.Conn) syscall.RawConn {
	if s, ok := conn.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}
