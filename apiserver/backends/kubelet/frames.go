package kubelet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
)

const (
	// maxUnsent is how much of a command's output may be here: read from its kubelet, and not yet sent to its client.
	maxUnsent = 64 << 10
	// maxPiece is the most of a frame that upstream's library is given as one.
	maxPiece = 16 << 10
	// maxErrorStream bounds the stream that says how the command has ended, which the library keeps as a whole.
	maxErrorStream = 64 << 10
	// maxControl bounds a frame that is not data. Those that a kubelet sends have some 20 bytes.
	maxControl = 1 << 10
	// maxReplies is how many streams a kubelet may accept. The library opens five at most.
	maxReplies = 8
)

// Frames of SPDY 3.1, as far as they are looked at.
const (
	frameHeader = 8
	synStream   = 1
	synReply    = 2
	headers     = 8
	errorStream = 1 // the id of the first stream that a client opens
)

// translation is what is on its way from a kubelet, in frames of SPDY, to a client, in those of WebSocket. Upstream's
// library keeps 50 frames of each stream for a client that does not read, of 16 MiB each if the kubelet likes.
type translation struct {
	ctx    context.Context // of the request
	mu     sync.Mutex
	unsent int           // bytes of output; guarded by mu
	moved  chan struct{} // has a token when unsent has become less
}

// translating is a handler that translates by a transport of upgrading, with the bounds of this file.
func translating(transport *http.Transport, by func(http.RoundTripper) http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := &translation{ctx: r.Context(), moved: make(chan struct{}, 1)}
		bounded := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := transport.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &spdyConn{answered: conn.(*answered), of: t}, nil
		}}
		by(bounded).ServeHTTP(&countingWriter{w, t}, r)
	})
}

// read counts a piece of output that is to be read from the kubelet, when there is room for it.
func (t *translation) read(n int) error {
	for {
		t.mu.Lock()
		if t.unsent == 0 || t.unsent+n <= maxUnsent {
			t.unsent += n
			t.mu.Unlock()
			return nil
		}
		t.mu.Unlock()
		select {
		case <-t.moved:
		case <-t.ctx.Done():
			return context.Cause(t.ctx)
		}
	}
}

// sent counts output that the client's connection has taken.
func (t *translation) sent(n int) {
	t.mu.Lock()
	t.unsent -= n
	t.mu.Unlock()
	select {
	case t.moved <- struct{}{}:
	default:
	}
}

// spdyConn is the connection to a kubelet. What is read there behind the upgrade is frames: large ones come in pieces, and none while
// the client has not taken enough of what came before. For one goroutine that reads.
type spdyConn struct {
	*answered
	of *translation

	head    [frameHeader]byte
	pending []byte // of head: what is not read yet
	left    int    // of the payload that follows
	rest    int    // of a data frame's payload behind that, which comes as frames of its own
	last    byte   // the flags of the data frame, for the last of these
	replies int
	errors  int // bytes of the error stream
}

// Errors of kubelets that send what they have no reason to.
var (
	errControlFrame = errors.New("the kubelet has sent a frame that is no answer to the streams of a command")
	errErrorStream  = errors.New("the kubelet says more than 64 KiB of how the command has ended")
)

// Read implements net.Conn.
func (c *spdyConn) Read(b []byte) (int, error) {
	if !c.upgraded {
		return c.answered.Read(b)
	}
	if len(c.pending) == 0 && c.left == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	if len(c.pending) > 0 {
		n := copy(b, c.pending)
		c.pending = c.pending[n:]
		return n, nil
	}
	n, err := c.answered.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

// next makes the header of what is read next.
func (c *spdyConn) next() error {
	if c.rest == 0 {
		if _, err := io.ReadFull(c.answered, c.head[:]); err != nil {
			return err
		}
		size := int(binary.BigEndian.Uint32(c.head[4:]) & 0xffffff)
		id := binary.BigEndian.Uint32(c.head[:])
		switch {
		case id>>31 == 1:
			c.pending, c.left = c.head[:], size
			return c.control(int(id&0xffff), size)
		case id == errorStream:
			c.pending, c.left = c.head[:], size
			if c.errors += size; c.errors > maxErrorStream {
				return errErrorStream
			}
			return nil
		}
		c.rest, c.last = size, c.head[4]
	}
	c.left = min(c.rest, maxPiece)
	c.rest -= c.left
	binary.BigEndian.PutUint32(c.head[4:], uint32(c.left))
	if c.rest == 0 {
		c.head[4] = c.last
	}
	c.pending = c.head[:]
	return c.of.read(c.left)
}

// control refuses frames that make the library keep what they have, or unpack it.
func (c *spdyConn) control(kind, size int) error {
	if kind == synReply {
		c.replies++
	}
	if size > maxControl || kind == synStream || kind == headers || c.replies > maxReplies {
		return errControlFrame
	}
	return nil
}

// countingWriter is the ResponseWriter of a request for a WebSocket.
type countingWriter struct {
	http.ResponseWriter
	of *translation
}

// Hijack implements http.Hijacker.
func (w *countingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := w.ResponseWriter.(http.Hijacker).Hijack()
	if err != nil {
		return nil, nil, err
	}
	counted := &webSocketConn{Conn: conn, of: w.of}
	return counted, bufio.NewReadWriter(buffered.Reader, bufio.NewWriterSize(counted, bufferBytes)), nil
}

// webSocketConn is the connection to the client. What is written there is the answer to the upgrade, then frames. For one
// goroutine that writes at a time.
type webSocketConn struct {
	net.Conn
	of *translation

	begun   bool   // the answer is over
	seen    []byte // the end of the answer, or a frame's header so far
	left    uint64 // of the frame's payload
	first   bool   // the next byte of the payload is its first, which says the stream
	message bool   // the frame is no control frame
	output  bool   // the payload is the command's output
}

// Write implements net.Conn.
func (c *webSocketConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if sent := c.outputIn(b[:n]); sent > 0 {
		c.of.sent(sent)
	}
	return n, err
}

// outputIn counts the bytes of the command's output in what is written.
func (c *webSocketConn) outputIn(b []byte) (output int) {
	for len(b) > 0 {
		switch {
		case !c.begun:
			c.seen = append(c.seen, b[0])
			b = b[1:]
			if c.begun = bytes.HasSuffix(c.seen, []byte("\r\n\r\n")); c.begun {
				c.seen = nil
			}
		case c.left == 0:
			c.seen = append(c.seen, b[0])
			b = b[1:]
			c.header()
		case c.first:
			c.first, c.output = false, c.message && (b[0] == 1 || b[0] == 2)
			c.left--
			b = b[1:]
		default:
			n := int(min(uint64(len(b)), c.left))
			if c.output {
				output += n
			}
			c.left -= uint64(n)
			b = b[n:]
		}
	}
	return output
}

// header takes a frame's header once it is complete. A server's frames have no mask.
func (c *webSocketConn) header() {
	if len(c.seen) < 2 {
		return
	}
	size := uint64(c.seen[1] & 0x7f)
	switch {
	case size == 126 && len(c.seen) == 4:
		size = uint64(binary.BigEndian.Uint16(c.seen[2:]))
	case size == 127 && len(c.seen) == 10:
		size = binary.BigEndian.Uint64(c.seen[2:])
	case size >= 126:
		return
	}
	c.left, c.first, c.message = size, true, c.seen[0]&0x08 == 0
	c.seen = c.seen[:0]
}
