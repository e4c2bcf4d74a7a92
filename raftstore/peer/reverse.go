package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/quorate/quorate/proto"
)

// Reverse connections. A firewall may let a node dial others and not be dialled
// by them. As a leader it sends heartbeats, so no follower campaigns, but calls to
// it go over connections that the callers dial. So a leader keeps one connection
// open to each member, dialled by itself, on which it waits: Offer. The member
// parks it. Only if its own dial fails, or takes long, does it take the parked one:
// it sends one byte, and from there on the connection is like one that it has
// dialled: it is the client of gRPC, and the node that has dialled the server.
// Both ends are authenticated by the handshake, no matter who has dialled.
//
// Bounds: a member keeps one parked connection per node, and it is counted among
// the inbound ones; a leader has at most maxReverse in use by one node.

const (
	alpnReverse = "quorate-reverse/1"
	// taken is what the member sends when it takes a parked connection.
	takenByte = 1
	// maxReverse bounds the reverse connections that one node uses at once: it needs
	// one, and another one while that ends.
	maxReverse = 4
	// reverseAfter is how long an own dial may take before a parked connection is
	// taken instead.
	reverseAfter = 300 * time.Millisecond
	// offerAgain is the pause after an offer that failed; it doubles up to
	// offerRarely.
	offerAgain, offerRarely = 500 * time.Millisecond, 10 * time.Second
)

// Offer keeps a connection to a node open on which that node can ask this one,
// should it be unable to dial. It returns when ctx ends; connections that are in
// use then stay.
func (h *Host) Offer(ctx context.Context, id proto.NodeID, addr string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	room := make(chan struct{}, maxReverse)
	pause := offerAgain
	for ctx.Err() == nil {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return
		}
		var once sync.Once
		release := func() { once.Do(func() { <-room }) }
		began := time.Now()
		if err := h.offerOnce(ctx, id, h.whereabouts(id, addr), release); err == nil {
			pause = offerAgain
			continue
		}
		release()
		if time.Since(began) > offerRarely {
			pause = offerAgain // it was parked for a while
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
		pause = min(2*pause, offerRarely)
	}
}

// offerOnce dials, waits until the node takes the connection, and serves it.
func (h *Host) offerOnce(ctx context.Context, id proto.NodeID, addr string, release func()) error {
	conn, err := h.dialTLS(ctx, alpnReverse, id, addr)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	preface, err := appendPreface(nil, h.cfg.Cluster())
	if err == nil {
		_, err = conn.Write(preface)
	}
	var b [1]byte
	if err == nil {
		_, err = conn.Read(b[:])
	}
	if err == nil && b[0] != takenByte {
		err = fmt.Errorf("offer to %s: byte %d", id, b[0])
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return err
	}
	in := &inbound{Conn: conn, node: id, protocol: alpnGRPC}
	in.release = func() {
		h.mu.Lock()
		delete(h.offered, in)
		h.mu.Unlock()
		release()
	}
	h.mu.Lock()
	h.offered[in] = struct{}{}
	h.mu.Unlock()
	if err := h.checkRemoved(id); err != nil { // now that Expel would find it
		in.Close()
		return err
	}
	if !h.calls.put(in, h.cfg.HandshakeTimeout) {
		in.Close()
		return errNotServed
	}
	return nil
}

// dialTLS connects to a node, or to any peer if want is empty.
func (h *Host) dialTLS(ctx context.Context, alpn string, want proto.NodeID, addr string) (*tls.Conn, error) {
	raw, err := dialTCP(ctx, addr)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, h.clientTLS(alpn, want))
	hello, cancel := context.WithTimeout(ctx, h.cfg.HandshakeTimeout)
	defer cancel()
	if err := conn.HandshakeContext(hello); err != nil {
		raw.Close()
		return nil, err
	}
	if node, err := nodeIDOf(conn.ConnectionState().PeerCertificates[0]); err == nil {
		h.meter(raw, node)
	}
	return conn, nil
}

// parked is a connection that another node has dialled for this one to ask on.
type parked struct {
	conn  *inbound
	taken bool      // guarded by Host.mu
	alive chan bool // after it was taken: whether it can be used
}

// park keeps a connection until it is taken, replaced or over. The newest one of
// a node counts: the older one may be of a process that has ended.
func (h *Host) park(c *inbound) {
	p := &parked{conn: c, alive: make(chan bool, 1)}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		c.Close()
		return
	}
	old := h.parked[c.node]
	h.parked[c.node] = p
	h.mu.Unlock()
	if old != nil {
		old.conn.Close()
	}
	// Nothing comes while it is parked. So the read ends with the connection, or
	// with the deadline that take sets.
	var b [1]byte
	_, err := c.Conn.Read(b[:])
	h.mu.Lock()
	taken := p.taken
	if h.parked[c.node] == p {
		delete(h.parked, c.node)
	}
	h.mu.Unlock()
	alive := taken && errors.Is(err, os.ErrDeadlineExceeded)
	if !alive {
		c.Close()
	}
	p.alive <- alive
}

// take returns the connection that a node has offered, or nil.
func (h *Host) take(id proto.NodeID) *tlsConn {
	h.mu.Lock()
	p := h.parked[id]
	if p != nil {
		p.taken = true
		delete(h.parked, id)
	}
	h.mu.Unlock()
	if p == nil {
		return nil
	}
	_ = p.conn.SetReadDeadline(time.Unix(1, 0))
	if !<-p.alive {
		return nil
	}
	_ = p.conn.SetDeadline(time.Now().Add(h.cfg.HandshakeTimeout))
	if _, err := p.conn.Write([]byte{takenByte}); err != nil {
		p.conn.Close()
		return nil
	}
	_ = p.conn.SetDeadline(time.Time{})
	return &tlsConn{Conn: p.conn, node: id}
}

// tlsConn is a connection for gRPC's client side whose other end is known.
type tlsConn struct {
	net.Conn
	node proto.NodeID
}

// dialCalls connects to a node for calls: by its own dial, or, if that fails or
// takes long, over what the node has offered.
func (h *Host) dialCalls(ctx context.Context, want proto.NodeID, addr string) (net.Conn, error) {
	type result struct {
		conn *tls.Conn
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	direct := make(chan result, 1)
	go func() { // ends with ctx; awaited below
		conn, err := h.dialTLS(ctx, alpnGRPC, want, addr)
		direct <- result{conn, err}
	}()
	late := time.NewTicker(reverseAfter)
	defer late.Stop()
	for {
		select {
		case r := <-direct:
			if r.err == nil {
				node, err := nodeIDOf(r.conn.ConnectionState().PeerCertificates[0])
				if err != nil {
					r.conn.Close()
					return nil, err
				}
				return &tlsConn{Conn: r.conn, node: node}, nil
			}
			if c := h.take(want); c != nil {
				return c, nil
			}
			return nil, r.err
		case <-late.C:
			if c := h.take(want); c != nil {
				cancel()
				if r := <-direct; r.err == nil {
					r.conn.Close()
				}
				return c, nil
			}
		}
	}
}
