package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quorate/quorate/raftstore/peer"
)

// network is an in-memory network of machines with faults per link. Connections
// are byte streams, as of TCP: what a fault holds back arrives later, in order, or
// the connection breaks; nothing inside a connection is lost, doubled or swapped.
type network struct {
	mu    sync.Mutex
	rng   *rand.Rand
	hosts map[string]*host
	links map[[2]string]*link
	// at is the machine at an address that is not called like its machine.
	at      map[string]string
	moves   int
	found   atomic.Bool   // nodes are dialled where they are, wherever the configuration has them
	changed chan struct{} // closed at the next change of any fault
	// base is the one-way delay of a link without faults: base to 2*base.
	base time.Duration
}

// host is one process's place on the network. A process that is restarted gets a
// new one under the same name.
type host struct {
	net       *network
	name      string
	addr      string // that it had when the process started
	dead      bool   // the process has ended
	silent    bool   // so has the machine: nothing answers
	paused    bool
	listeners map[string]*listener
	conns     map[*conn]struct{}
	ghosts    []*conn // far ends of connections of a machine that went silent
}

// link is one direction between two machines.
type link struct {
	cut        bool
	reject     bool          // a cut that says so: dialling fails at once
	quietUntil time.Time     // retransmission after a cut
	delay      time.Duration // added to each segment
	jitter     time.Duration
	stall      float64 // chance per segment to be lost and sent again
	breaks     float64 // chance per segment to break the connection
	// narrow: only small messages get through, as where a path's MTU has shrunk. Raft's
	// entries are large, its heartbeats small.
	narrow bool
	// undialled is what becomes of a new connection in this direction, as at a firewall:
	// an error, errDropped for silence, or nil. Those that are open go on.
	undialled error
}

// errDropped: a dial that gets no answer.
var errDropped = errors.New("dropped")

func newNetwork(rng *rand.Rand, base time.Duration) *network {
	return &network{
		rng: rng, hosts: map[string]*host{}, links: map[[2]string]*link{}, at: map[string]string{},
		changed: make(chan struct{}), base: base,
	}
}

// boot gives a starting process its place. Connections of the process before it
// are reset.
func (n *network) boot(name string) *host {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := &host{net: n, name: name, addr: n.addressLocked(name), listeners: map[string]*listener{}, conns: map[*conn]struct{}{}}
	if old := n.hosts[name]; old != nil {
		for _, c := range old.ghosts {
			c.in.breakLocked(time.Now().Add(n.delayLocked(name, c.local)), syscall.ECONNRESET)
		}
	}
	n.hosts[name] = h
	n.signalLocked()
	return h
}

func (n *network) linkLocked(from, to string) *link {
	k := [2]string{from, to}
	l := n.links[k]
	if l == nil {
		l = &link{}
		n.links[k] = l
	}
	return l
}

// change applies f to links and wakes everybody who waits for one.
func (n *network) change(f func(link func(from, to string) *link)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n.linkLocked)
	n.signalLocked()
}

func (n *network) signalLocked() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// setCut cuts or heals one direction; with reject a router says that there is no
// way, and connections break, otherwise there is only silence. What was held back by a cut arrives after
// a retransmission, or the connection has been given up meanwhile.
func (n *network) setCut(from, to string, cut, reject bool) {
	n.change(func(at func(string, string) *link) {
		l := at(from, to)
		if l.cut && !cut {
			l.quietUntil = time.Now().Add(time.Duration(n.rng.Int64N(int64(200 * time.Millisecond))))
			if n.rng.IntN(2) == 0 {
				n.breakLocked(from, to)
			}
		}
		l.cut, l.reject = cut, cut && reject
		if l.reject {
			n.breakLocked(from, to)
		}
	})
}

// setUndialled says what becomes of new connections to a machine. Those that are open
// go on, or are broken: each side dials again.
func (n *network) setUndialled(from []string, to string, way error, broken bool) {
	n.change(func(at func(string, string) *link) {
		for _, f := range from {
			at(f, to).undialled = way
			if broken {
				n.breakLocked(f, to)
			}
		}
	})
}

// breakLocked ends the connections between two machines, as TCP gives up.
func (n *network) breakLocked(a, b string) {
	for _, p := range [][2]string{{a, b}, {b, a}} {
		h := n.hosts[p[0]]
		if h == nil {
			continue
		}
		for c := range h.conns {
			if c.remote == p[1] {
				c.in.breakLocked(time.Now(), syscall.ETIMEDOUT)
			}
		}
	}
}

// heal ends all faults of links.
func (n *network) heal() {
	n.change(func(func(string, string) *link) {
		for _, l := range n.links {
			*l = link{}
		}
	})
}

// delayLocked is how long a segment takes now.
func (n *network) delayLocked(from, to string) time.Duration {
	d := n.base + time.Duration(n.rng.Int64N(int64(n.base)))
	if l := n.links[[2]string{from, to}]; l != nil {
		d += l.delay
		if l.jitter > 0 {
			d += time.Duration(n.rng.Int64N(int64(l.jitter)))
		}
	}
	return d
}

// kill ends a process: its connections end, its ports refuse. If the machine goes
// with it there is only silence, until the next boot. It reports whether the
// process was alive.
func (h *host) kill(machine bool) bool {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.dead {
		return false
	}
	h.dead, h.silent = true, machine
	for c := range h.conns {
		c.in.breakLocked(time.Now(), net.ErrClosed)
		if machine {
			h.ghosts = append(h.ghosts, c.peer)
		} else {
			c.out.breakLocked(time.Now().Add(n.delayLocked(h.name, c.remote)), syscall.ECONNRESET)
		}
	}
	for _, l := range h.listeners {
		l.closeLocked()
	}
	n.signalLocked()
	return true
}

// pause freezes what the process sends and receives; the kernel still accepts
// connections and bytes for it.
func (h *host) pause(paused bool) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.paused = paused
	h.net.signalLocked()
}

// dial connects to a service at an address, <node>@<address> or the address alone, as
// TCP does: refused where the machine is up and nobody listens, silent where a link is
// cut or the machine off. And as TLS does: the wrong node is refused.
func (h *host) dial(ctx context.Context, to, service string) (net.Conn, error) {
	want, addr, named := strings.Cut(to, "@")
	if !named {
		addr = to
	}
	machine := h.net.machine(addr)
	if named && h.net.found.Load() {
		machine = want
	}
	c, err := h.connect(ctx, machine, service)
	if err == nil && named && machine != want {
		c.Close()
		err = fmt.Errorf("%w: %s", peer.ErrWrongNode, machine)
	}
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "sim", Addr: simAddr(to), Err: err}
	}
	return c, nil
}

// machine is who has an address.
func (n *network) machine(addr string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if m := n.at[addr]; m != "" {
		return m
	}
	return addr
}

// address is the one of a machine.
func (n *network) address(machine string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addressLocked(machine)
}

func (n *network) addressLocked(machine string) string {
	for addr, m := range n.at {
		if m == machine {
			return addr
		}
	}
	return machine
}

// inherit has a machine that is down come back with the address of another one, which
// comes back with a new one.
func (n *network) inherit(heir, from string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.at, n.addressLocked(heir))
	n.moves++
	n.at[n.addressLocked(from)] = heir
	n.at[fmt.Sprintf("a%d", n.moves)] = from
	n.signalLocked()
}

func (h *host) connect(ctx context.Context, to, service string) (net.Conn, error) {
	n := h.net
	for {
		n.mu.Lock()
		far, changed := n.hosts[to], n.changed
		there, back := n.linkLocked(h.name, to), n.linkLocked(to, h.name)
		wait := n.delayLocked(h.name, to) + n.delayLocked(to, h.name)
		blocked := h.paused || there.cut || back.cut || far == nil || far.silent || there.undialled == errDropped
		dead, rejected, refused := h.dead, there.reject || back.reject, there.undialled
		n.mu.Unlock()
		if dead {
			return nil, net.ErrClosed
		}
		if rejected {
			if err := sleep(ctx, wait); err != nil {
				return nil, err
			}
			return nil, os.NewSyscallError("connect", syscall.EHOSTUNREACH)
		}
		if refused != nil && !blocked {
			return nil, errors.Join(sleep(ctx, wait), refused)
		}
		if blocked {
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			continue
		}
		if err := sleep(ctx, wait); err != nil {
			return nil, err
		}
		return h.handshake(to, service)
	}
}

func (h *host) handshake(to, service string) (net.Conn, error) {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.dead {
		return nil, net.ErrClosed
	}
	far := n.hosts[to]
	l := far.listeners[service]
	if far.silent {
		return nil, syscall.ETIMEDOUT
	}
	if far.dead || l == nil || l.closed {
		return nil, os.NewSyscallError("connect", syscall.ECONNREFUSED)
	}
	ours, theirs := n.pairLocked(h, far)
	select {
	case l.backlog <- theirs:
		return ours, nil
	default:
		delete(h.conns, ours)
		delete(far.conns, theirs)
		return nil, os.NewSyscallError("connect", syscall.ECONNREFUSED)
	}
}

func (n *network) pairLocked(a, b *host) (ours, theirs *conn) {
	ab, ba := newHalf(n, a, b), newHalf(n, b, a)
	ours = &conn{host: a, local: a.name, remote: b.name, in: ba, out: ab}
	theirs = &conn{host: b, local: b.name, remote: a.name, in: ab, out: ba}
	ours.peer, theirs.peer = theirs, ours
	a.conns[ours], b.conns[theirs] = struct{}{}, struct{}{}
	return ours, theirs
}

// listen opens a service.
func (h *host) listen(service string) *listener {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	l := &listener{host: h, backlog: make(chan net.Conn, 128), done: make(chan struct{})}
	h.listeners[service] = l
	return l
}

// listener is a net.Listener, and the raft.StreamLayer of a node.
type listener struct {
	host    *host
	backlog chan net.Conn
	done    chan struct{}
	closed  bool
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.host.net.mu.Lock()
	defer l.host.net.mu.Unlock()
	l.closeLocked()
	return nil
}

func (l *listener) closeLocked() {
	if !l.closed {
		l.closed = true
		close(l.done)
	}
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return simAddr(l.host.addr) }

type simAddr string

func (simAddr) Network() string  { return "sim" }
func (a simAddr) String() string { return string(a) }

// refused reports what peer.Host.Refused does: a fresh dial says that nobody
// listens.
func (h *host) refused(ctx context.Context, to string) bool {
	c, err := h.dial(ctx, to, "grpc")
	if err != nil {
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	c.Close()
	return false
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("sleep: %w", context.Cause(ctx))
	}
}
