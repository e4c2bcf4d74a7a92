package listener

import (
	"bytes"
	"container/list"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"runtime"
	"sync"
	"time"
)

// handshakes is the gate before the expensive part of a TLS handshake: the key exchange and
// the signature, which anybody can ask for with a packet. Half of the processors do them
// at most, so that requests on open connections do not queue up behind a thousand of them; addresses
// take turns. Safe for concurrent use.
type handshakes struct {
	mu    sync.Mutex
	free  int
	lines map[string]*line
	turns list.List // of *line, whose turn it is first
}

// line are the connections of one address that wait; the newest is served first. Above
// the bound of connections the oldest guest of an address goes: in the order of arrival
// only a client would be served that opens so many that all others end before their turn.
// There is no line without any.
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

// before returns a tls.Config.GetConfigForClient that calls begin, and then next, if there is one.
func (h *handshakes) before(next func(*tls.ClientHelloInfo) (*tls.Config, error)) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	if next == nil {
		return h.begin
	}
	return func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if _, err := h.begin(hello); err != nil {
			return nil, err
		}
		return next(hello)
	}
}

// begin is tls.Config.GetConfigForClient, which is called between the client's hello and
// the answer to it. The place is given back when the answer is written, or when the
// connection ends. An answer that asks for another hello gives it back too, and the
// connection waits once more when that hello has come: the expensive part is behind it.
func (h *handshakes) begin(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	c, ok := hello.Conn.(*connection)
	if !ok {
		return nil, nil
	}
	return nil, h.turn(c)
}

// turn waits for the connection's turn, and refuses it when that comes too late.
func (h *handshakes) turn(c *connection) error {
	if !h.enter(c) || time.Since(c.since) > readHeaderTimeout {
		return errLateHandshake
	}
	return nil
}

// retryRandom is what a HelloRetryRequest has in the place of a ServerHello's random
// (RFC 8446, 4.1.3).
var retryRandom = sha256.Sum256([]byte("HelloRetryRequest"))

// isRetry reports whether what a server writes begins with a HelloRetryRequest: a record
// (type, version, length) with a message (type, length) of a version and a random.
func isRetry(b []byte) bool {
	const recordHandshake, serverHello, random = 22, 2, 5 + 4 + 2
	return len(b) >= random+len(retryRandom) && b[0] == recordHandshake && b[5] == serverHello &&
		bytes.Equal(b[random:random+len(retryRandom)], retryRandom[:])
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
	next := l.conns.Back().Value.(*connection)
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
