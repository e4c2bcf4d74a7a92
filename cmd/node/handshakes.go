package main

import (
	"container/list"
	"crypto/tls"
	"errors"
	"runtime"
	"sync"
	"time"
)

// handshakes is the gate before the dear part of a TLS handshake: the key exchange and
// the signature, which anybody can ask for with a packet. Half of the processors do them
// at most, so that requests on open connections do not queue up behind a thousand of them; addresses
// take turns. Safe for concurrent use.
type handshakes struct {
	mu    sync.Mutex
	free  int
	lines map[string]*line
	turns list.List // of *line, whose turn it is first
}

// line are the connections of one address that wait, first come first. There is none
// without any.
type line struct {
	address string
	conns   list.List
	turn    *list.Element
}

// waiter is one connection that waits.
type waiter struct {
	line  *line
	place *list.Element
	ready chan bool // gets true when its turn has come, false when it has ended
}

func newHandshakes() *handshakes {
	return &handshakes{free: max(1, runtime.GOMAXPROCS(0)/2), lines: map[string]*line{}}
}

// errLateHandshake ends a handshake whose turn has come when its client is about to be
// given up.
var errLateHandshake = errors.New("the handshake has waited too long for its turn")

// begin is tls.Config.GetConfigForClient, which is called between the client's hello and
// the answer to it. The place is given back when the answer is written, or when the
// connection ends.
func (h *handshakes) begin(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	c, ok := hello.Conn.(*connection)
	if !ok {
		return nil, nil
	}
	if !h.enter(c) || time.Since(c.since) > readHeaderTimeout {
		return nil, errLateHandshake
	}
	return nil, nil
}

// enter waits for the connection's turn. It reports false when the connection has ended
// meanwhile.
func (h *handshakes) enter(c *connection) bool {
	h.mu.Lock()
	if c.ended {
		h.mu.Unlock()
		return false
	}
	if h.free > 0 {
		h.free--
		c.shaking.Store(true)
		h.mu.Unlock()
		return true
	}
	l := h.lines[c.address]
	if l == nil {
		l = &line{address: c.address}
		l.turn = h.turns.PushBack(l)
		h.lines[c.address] = l
	}
	w := &waiter{line: l, place: l.conns.PushBack(c), ready: make(chan bool, 1)}
	c.waits = w
	h.mu.Unlock()
	return <-w.ready
}

// done gives the connection's place to the next.
func (h *handshakes) done(c *connection) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doneLocked(c)
}

func (h *handshakes) doneLocked(c *connection) {
	if !c.shaking.Swap(false) {
		return
	}
	first := h.turns.Front()
	if first == nil {
		h.free++
		return
	}
	l := first.Value.(*line)
	next := l.conns.Front().Value.(*connection)
	h.turns.MoveToBack(first)
	next.shaking.Store(true)
	h.leaveLocked(next, true)
}

// leaveLocked takes a connection out of its line.
func (h *handshakes) leaveLocked(c *connection, ready bool) {
	w := c.waits
	c.waits = nil
	w.ready <- ready
	w.line.conns.Remove(w.place)
	if w.line.conns.Len() == 0 {
		h.turns.Remove(w.line.turn)
		delete(h.lines, w.line.address)
	}
}

// end is called when the connection ends; it may be called again.
func (h *handshakes) end(c *connection) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.ended = true
	h.doneLocked(c)
	if c.waits != nil {
		h.leaveLocked(c, false)
	}
}
