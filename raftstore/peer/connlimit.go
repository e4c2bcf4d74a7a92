package peer

import (
	"container/list"
	"net"
	"net/netip"
	"sync"

	"github.com/quorate/quorate/proto"
)

// connLimiter counts inbound connections. A connection is pending until its
// handshake is complete, then established until it is closed.
//
// Pending connections are never refused: the oldest (of the same address, if
// that one is over its share) is closed instead. A handshake takes a few
// milliseconds, a half-open connection lasts for seconds, so a flood of the
// latter pushes out itself and real peers still get through.
type connLimiter struct {
	maxPending, maxPendingPerIP int
	maxConns, maxConnsPerIP     int

	mu          sync.Mutex
	closed      bool
	pending     *list.List // of *ticket, oldest first
	established map[*ticket]struct{}
	perIP       map[netip.Addr]*ipCount
}

type ipCount struct{ pending, established int }

// ticket is one admitted connection.
type ticket struct {
	conn net.Conn
	ip   netip.Addr
	node proto.NodeID  // set by establish
	elem *list.Element // in pending; nil once established or released
}

func newConnLimiter(cfg Config) *connLimiter {
	return &connLimiter{
		maxPending:      cfg.MaxPendingHandshakes,
		maxPendingPerIP: max(cfg.MaxPendingHandshakes/2, 1),
		maxConns:        cfg.MaxConns,
		maxConnsPerIP:   cfg.MaxConnsPerIP,
		pending:         list.New(),
		established:     map[*ticket]struct{}{},
		perIP:           map[netip.Addr]*ipCount{},
	}
}

// enter admits a new connection as pending. It returns nil when closed.
func (l *connLimiter) enter(c net.Conn) *ticket {
	t := &ticket{conn: c, ip: remoteIP(c)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	n := l.perIP[t.ip]
	if n == nil {
		n = &ipCount{}
		l.perIP[t.ip] = n
	}
	switch {
	case n.pending >= l.maxPendingPerIP:
		l.evictLocked(func(old *ticket) bool { return old.ip == t.ip })
	case l.pending.Len() >= l.maxPending:
		l.evictLocked(func(*ticket) bool { return true })
	}
	// The eviction may have dropped the entry of this address.
	if l.perIP[t.ip] == nil {
		l.perIP[t.ip] = n
	}
	n.pending++
	t.elem = l.pending.PushBack(t)
	return t
}

// evictLocked closes the oldest pending connection that matches.
func (l *connLimiter) evictLocked(match func(*ticket) bool) {
	for e := l.pending.Front(); e != nil; e = e.Next() {
		if t := e.Value.(*ticket); match(t) {
			l.dropPendingLocked(t)
			// Its goroutine sees the error and releases the ticket, which is
			// then no longer counted.
			t.conn.Close()
			return
		}
	}
}

// establish turns a pending connection into an established one, of a node. It fails when
// there are too many of these, or when the connection was pushed out.
func (l *connLimiter) establish(t *ticket, node proto.NodeID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || t.elem == nil {
		return false
	}
	n := l.perIP[t.ip]
	if len(l.established) >= l.maxConns || n.established >= l.maxConnsPerIP {
		return false
	}
	n.established++
	t.node = node
	l.established[t] = struct{}{}
	l.dropPendingLocked(t)
	return true
}

// release forgets a connection; the caller closes it. It may be called twice.
func (l *connLimiter) release(t *ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropPendingLocked(t)
	if _, ok := l.established[t]; ok {
		delete(l.established, t)
		l.perIP[t.ip].established--
		l.dropIPLocked(t.ip)
	}
}

func (l *connLimiter) dropPendingLocked(t *ticket) {
	if t.elem == nil {
		return
	}
	l.pending.Remove(t.elem)
	t.elem = nil
	l.perIP[t.ip].pending--
	l.dropIPLocked(t.ip)
}

func (l *connLimiter) dropIPLocked(ip netip.Addr) {
	if n := l.perIP[ip]; n.pending == 0 && n.established == 0 {
		delete(l.perIP, ip)
	}
}

// close closes every admitted connection and admits no more.
func (l *connLimiter) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for e := l.pending.Front(); e != nil; e = e.Next() {
		e.Value.(*ticket).conn.Close()
	}
	for t := range l.established {
		t.conn.Close()
	}
}

// remoteIP returns the address that connections are counted by. IPv6 users
// own whole networks, so these count as one.
func remoteIP(c net.Conn) netip.Addr {
	ap, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	ip := ap.Addr().Unmap().WithZone("")
	if ip.Is6() && !ip.IsLoopback() {
		if p, err := ip.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return ip
}
