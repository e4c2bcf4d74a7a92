package peer

import (
	"container/list"
	"net"
	"net/netip"
	"sync"

	"github.com/quorate/quorate/proto"
)

// admission counts inbound connections. A connection is pending until its
// handshake is complete, then established until it is closed.
//
// Pending connections are never refused: the oldest (of the same address, if
// that one is over its share) is closed instead. A handshake takes a few
// milliseconds, a half-open connection lasts for seconds, so a flood of the
// latter pushes out itself and real peers still get through.
type admission struct {
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

func newAdmission(cfg Config) *admission {
	return &admission{
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
func (a *admission) enter(c net.Conn) *ticket {
	t := &ticket{conn: c, ip: remoteIP(c)}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	n := a.perIP[t.ip]
	if n == nil {
		n = &ipCount{}
		a.perIP[t.ip] = n
	}
	switch {
	case n.pending >= a.maxPendingPerIP:
		a.evictLocked(func(old *ticket) bool { return old.ip == t.ip })
	case a.pending.Len() >= a.maxPending:
		a.evictLocked(func(*ticket) bool { return true })
	}
	// The eviction may have dropped the entry of this address.
	if a.perIP[t.ip] == nil {
		a.perIP[t.ip] = n
	}
	n.pending++
	t.elem = a.pending.PushBack(t)
	return t
}

// evictLocked closes the oldest pending connection that matches.
func (a *admission) evictLocked(match func(*ticket) bool) {
	for e := a.pending.Front(); e != nil; e = e.Next() {
		if t := e.Value.(*ticket); match(t) {
			a.dropPendingLocked(t)
			// Its goroutine sees the error and releases the ticket, which is
			// then no longer counted.
			t.conn.Close()
			return
		}
	}
}

// establish turns a pending connection into an established one, of a node. It fails when
// there are too many of these, or when the connection was pushed out.
func (a *admission) establish(t *ticket, node proto.NodeID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || t.elem == nil {
		return false
	}
	n := a.perIP[t.ip]
	if len(a.established) >= a.maxConns || n.established >= a.maxConnsPerIP {
		return false
	}
	n.established++
	t.node = node
	a.established[t] = struct{}{}
	a.dropPendingLocked(t)
	return true
}

// release forgets a connection; the caller closes it. It may be called twice.
func (a *admission) release(t *ticket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropPendingLocked(t)
	if _, ok := a.established[t]; ok {
		delete(a.established, t)
		a.perIP[t.ip].established--
		a.dropIPLocked(t.ip)
	}
}

func (a *admission) dropPendingLocked(t *ticket) {
	if t.elem == nil {
		return
	}
	a.pending.Remove(t.elem)
	t.elem = nil
	a.perIP[t.ip].pending--
	a.dropIPLocked(t.ip)
}

func (a *admission) dropIPLocked(ip netip.Addr) {
	if n := a.perIP[ip]; n.pending == 0 && n.established == 0 {
		delete(a.perIP, ip)
	}
}

// close closes every admitted connection and admits no more.
func (a *admission) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for e := a.pending.Front(); e != nil; e = e.Next() {
		e.Value.(*ticket).conn.Close()
	}
	for t := range a.established {
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
