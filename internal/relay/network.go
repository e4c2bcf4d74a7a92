package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Network is what lies between nodes. Its methods may be called by several goroutines.
type Network struct {
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	wg      sync.WaitGroup
	carried atomic.Int64 // connections

	mu      sync.Mutex // guards what follows
	doors   map[string]*door
	cut     map[string]ways
	changed chan struct{} // closed when cut is another one
}

// door is where the others reach a node.
type door struct {
	node, addr, target string
	listener           net.Listener // nil: the node does not run, and the address refuses
	pid                int
}

// ways are those of one node, to and from all others.
type ways struct{ in, out bool }

const (
	// maxConnections bounds those that are carried and those that wait: each node has a few to
	// each other one, and tries again now and then while it is cut off.
	maxConnections = 8192
	bufferSize     = 64 << 10
	dialWithin     = 5 * time.Second
	acceptAgain    = 5 * time.Millisecond
	// A node is known as soon as who has started it says so: a little after its beginning.
	knownWithin, knownFirst, knownEvery = 2 * time.Second, time.Millisecond, 100 * time.Millisecond
	// tableTries is how often the kernel's table is read for a socket: while it changes, a reading
	// may miss one.
	tableTries = 3
)

// New makes a network without nodes.
func New() *Network {
	n := &Network{doors: map[string]*door{}, cut: map[string]ways{}, changed: make(chan struct{})}
	n.ctx, n.stop = context.WithCancel(context.Background())
	return n
}

// Listen makes addr the address at which the others reach a node whose own is target.
func (n *Network) Listen(node, addr, target string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := &door{node: node, addr: addr, target: target}
	n.doors[node] = d
	return n.open(d)
}

// open begins to accept connections. The caller has locked mu.
func (n *Network) open(d *door) error {
	if n.ctx.Err() != nil {
		return context.Cause(n.ctx)
	}
	l, err := net.Listen("tcp4", d.addr)
	if err != nil {
		return fmt.Errorf("the way to %s: %w", d.node, err)
	}
	d.listener = l
	n.wg.Go(func() { n.accept(l, d.node, d.target) })
	return nil
}

// Runs names the process of a node that was started.
func (n *Network) Runs(node string, pid int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.doors[node]
	if d.pid = pid; d.listener == nil {
		return n.open(d)
	}
	return nil
}

// Ended says that a node's process is gone: its address refuses connections, as its own does,
// until it runs again.
func (n *Network) Ended(node string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.doors[node]
	if d.listener == nil {
		return nil
	}
	err := d.listener.Close()
	d.listener = nil
	return err
}

// Cut closes the ways to a node, or those from it, or both.
func (n *Network) Cut(node string, in, out bool) { n.set(node, ways{in, out}) }

// Heal opens all ways of a node.
func (n *Network) Heal(node string) { n.set(node, ways{}) }

// HealAll opens all ways.
func (n *Network) HealAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *Network) set(node string, w ways) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[node] = w
	close(n.changed)
	n.changed = make(chan struct{})
}

// Close ends all connections and waits for what serves them.
func (n *Network) Close() error {
	n.stop()
	n.mu.Lock()
	var errs []error
	for _, d := range n.doors {
		if d.listener != nil {
			errs = append(errs, d.listener.Close())
			d.listener = nil
		}
	}
	n.mu.Unlock()
	n.wg.Wait()
	return errors.Join(errs...)
}

// await waits until the way from one node to another is open, or the network is closed.
func (n *Network) await(from, to string) error {
	for {
		n.mu.Lock()
		isCut, changed := from != to && (n.cut[from].out || n.cut[to].in), n.changed
		n.mu.Unlock()
		if !isCut {
			return nil
		}
		select {
		case <-changed:
		case <-n.ctx.Done():
			return context.Cause(n.ctx)
		}
	}
}

func (n *Network) accept(l net.Listener, node, target string) {
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
		case n.ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default: // out of file descriptors, mostly: that passes
			select {
			case <-time.After(acceptAgain):
			case <-n.ctx.Done():
				return
			}
			continue
		}
		if n.carried.Add(1) > maxConnections {
			n.carried.Add(-1)
			conn.Close()
			continue
		}
		n.wg.Go(func() {
			defer n.carried.Add(-1)
			n.carry(conn, node, target)
		})
	}
}

// carry serves one connection to a node until it ends.
func (n *Network) carry(conn net.Conn, node, target string) {
	defer conn.Close()
	caller, ok := n.caller(conn)
	if !ok || n.await(caller, node) != nil {
		return
	}
	dialing, cancel := context.WithTimeout(n.ctx, dialWithin)
	defer cancel()
	to, err := (&net.Dialer{}).DialContext(dialing, "tcp4", target)
	if err != nil {
		// The refusal is news from the node.
		_ = n.await(node, caller)
		return
	}
	defer to.Close()
	defer context.AfterFunc(n.ctx, func() {
		conn.Close()
		to.Close()
	})()
	var wg sync.WaitGroup
	wg.Go(func() { n.pump(conn, to, caller, node) })
	wg.Go(func() { n.pump(to, conn, node, caller) })
	wg.Wait()
}

// caller is the node that has opened a connection.
func (n *Network) caller(conn net.Conn) (string, bool) {
	socket := ""
	for range tableTries {
		var err error
		if socket, err = otherEnd(conn); err != nil {
			return "", false
		}
		if socket != "" {
			break
		}
	}
	// Nodes look whether an address refuses, and close at once: those need no owner.
	if socket == "" || socket == noProcess {
		return "", false
	}
	ctx, cancel := context.WithTimeout(n.ctx, knownWithin)
	defer cancel()
	for pause := knownFirst; ; pause = min(2*pause, knownEvery) {
		n.mu.Lock()
		pids := make(map[string]int, len(n.doors))
		for node, d := range n.doors {
			pids[node] = d.pid
		}
		n.mu.Unlock()
		if node, ok := ownerOf(socket, pids); ok {
			return node, true
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return "", false
		}
	}
}

// pump carries what one node sends to another, until one of them ends that.
func (n *Network) pump(from, to net.Conn, sender, receiver string) {
	buf := make([]byte, bufferSize)
	for {
		got, err := from.Read(buf)
		// What was read while the way was open and is about to be written is on its way.
		if n.await(sender, receiver) != nil {
			return
		}
		if got > 0 {
			if _, err := to.Write(buf[:got]); err != nil {
				// The receiver has ended the connection: that is news for the sender.
				if n.await(receiver, sender) == nil {
					from.Close()
					to.Close()
				}
				return
			}
		}
		if err != nil {
			if half, ok := to.(*net.TCPConn); ok {
				_ = half.CloseWrite()
			}
			return
		}
	}
}
