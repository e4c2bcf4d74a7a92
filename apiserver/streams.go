package apiserver

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/access/rbac"
	"github.com/quorate/quorate/apiserver/backends/kubelet"
	"github.com/quorate/quorate/apiserver/transport/listener"
	"github.com/quorate/quorate/apiserver/wire/status"
	"k8s.io/streaming/pkg/httpstream"
)

const (
	// retryStream is when a client that was refused a stream tries again, in seconds.
	retryStream = 5
	// goodbye is how long a connection that was taken over stays after the end of its stream, for what the
	// library still has to say.
	goodbye = 500 * time.Millisecond
	// lookEvery is how often the connections of streams are looked at: one whose client has died is
	// found by the second look.
	lookEvery = 400 * time.Millisecond
)

// streamSet are the requests that lead to nodes and Pods, and those like them to aggregated API servers. They
// have no seat and are not among those in flight, for they take as long as they take; so they are bounded by
// their number, of all users and of each.
type streamSet struct {
	shares shares
	mu     sync.Mutex
	all    map[*stream]struct{} // guarded by mu
	over   bool                 // guarded by mu
	ended  sync.WaitGroup
}

// enter lets a request in. Errors: there are too many; the server ends.
func (s *streamSet) enter(c *call, ctx context.Context) (*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil, status.ShuttingDown()
	}
	if !s.shares.enter(c.User) {
		c.cfg.Observer.RequestRefused(false, "streams")
		return nil, status.TooMany(retryStream)
	}
	if s.all == nil {
		s.all = map[*stream]struct{}{}
	}
	n := &stream{call: c, set: s}
	if c.r.ProtoMajor == 1 { // a connection of HTTP/2 is always read
		n.client = listener.Conn(c.r.Context())
	}
	n.ctx, n.cancel = context.WithCancel(ctx)
	s.all[n] = struct{}{}
	s.ended.Add(1)
	return n, nil
}

// leave ends a stream whose handler returns.
func (s *stream) leave() {
	s.mu.Lock()
	s.left = true
	s.mu.Unlock()
	s.end()
	s.mu.Lock()
	if s.taken != nil {
		s.written += s.taken.sent.Load()
	}
	s.mu.Unlock()
	s.set.mu.Lock()
	defer s.set.mu.Unlock()
	delete(s.set.all, s)
	s.set.shares.leave(s.User)
	s.set.ended.Done()
}

// each are all of them.
func (s *streamSet) each() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*stream, 0, len(s.all))
	for n := range s.all {
		all = append(all, n)
	}
	return all
}

// close ends all streams, and lets none in from there on.
func (s *streamSet) close() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	for _, n := range s.each() {
		n.end()
	}
}

// watch ends the streams whose clients have died, until closing. A stream that reads from its client sees that
// by itself. One that waits for a kubelet to take what the client has sent reads nothing, nor does net/http
// when a client has sent more than its request.
func (s *streamSet) watch(closing <-chan struct{}) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-closing:
			return
		case <-tick.C:
			for _, n := range s.each() {
				n.look()
			}
		}
	}
}

// stream is one of a streamSet, and the ResponseWriter of upstream's handlers of what leads to nodes and Pods.
type stream struct {
	*call
	set    *streamSet
	ctx    context.Context
	cancel context.CancelFunc
	client net.Conn // its connection on HTTP/1.1; nil: not known

	mu    sync.Mutex
	taken *taken // the connection, once it was taken over; guarded by mu
	over  bool   // guarded by mu
	left  bool   // the connection may be another request's; guarded by mu
	// gone: the last look has found the client dead. For watch alone.
	gone bool
}

// end ends the stream: its connections close.
func (s *stream) end() {
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.over = true
	switch {
	case s.taken != nil:
		s.taken.end()
	case !s.left:
		leaveClient(s.call.ResponseWriter)
		time.AfterFunc(goodbye+goodbye/10, s.cut)
	}
}

// cut ends what still waits for a client that does not read: net/http closes the connection of a write that has
// failed, and TLS then gives itself five seconds more for a last word.
func (s *stream) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left || s.taken != nil {
		return
	}
	_ = http.NewResponseController(s.call.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
	time.AfterFunc(goodbye/10, s.cut)
}

// leaveClient has a handler wait no longer for a client that does not read, or that does not send: net/http's
// transport returns when nobody reads a body any more.
func leaveClient(w http.ResponseWriter) {
	client := http.NewResponseController(w)
	_ = client.SetWriteDeadline(time.Now().Add(goodbye)) // only connections have deadlines
	_ = client.SetReadDeadline(time.Unix(1, 0))
}

// look ends the stream if its client was dead at the last look already: by then what it had sent last was
// taken, or will not be.
func (s *stream) look() {
	s.mu.Lock()
	conn, left := s.client, s.left
	if s.taken != nil {
		conn = s.taken.Conn
	}
	s.mu.Unlock()
	if conn == nil || left {
		return
	}
	if dead := clientDead(conn); dead && s.gone {
		s.end()
	} else {
		s.gone = dead
	}
}

// begin is called when it is known where the request goes: what follows is no work of this server.
func (s *stream) begin() {
	s.Context = s.ctx
	s.ticket.Release()
	s.allowedBy = rbac.Mark{} // it keeps a state
	s.following = true        // a client that does not read holds nothing of others
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		_ = http.NewResponseController(s.call).SetWriteDeadline(time.Time{}) // the server's is for what ends
	}
}

// run has a handler serve the request.
func (s *stream) run(h http.Handler) error {
	s.begin()
	r := s.r.WithContext(s.ctx)
	upgrade := httpstream.IsUpgradeRequest(r)
	auth.Forward(r.Header, upgrade)
	if upgrade {
		switch {
		case r.ProtoMajor != 1:
			return status.BadRequest("only HTTP/1.1 connections can be upgraded")
		case r.ContentLength != 0:
			return errUpgradeBody
		}
	} else if r.ContentLength != 0 {
		body := proxyBody(s.call, r.Body)
		defer body.Close()
		r = r.WithContext(kubelet.WithBody(s.ctx, body))
		r.Body = body
	}
	h.ServeHTTP(s, r)
	return nil
}

// errUpgradeBody: the bytes of the body would be the first of the stream, or those of another request.
var errUpgradeBody = status.BadRequest("a request for an upgrade has no body")

// Error implements kubelet.Refuse.
func (s *stream) Error(_ http.ResponseWriter, _ *http.Request, err error) {
	if s.code == 0 {
		s.fail(asUpstream(err))
	}
}

var _ kubelet.Refuse = (*stream)(nil)

// WriteHeader keeps to itself what comes before the answer: it is between the server and the Pod.
func (s *stream) WriteHeader(code int) {
	if code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		s.call.WriteHeader(code)
	}
}

// Hijack implements http.Hijacker. It does not fail: one of the libraries panics then, in a goroutine of its own.
func (s *stream) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(s.call.ResponseWriter).Hijack()
	if err != nil {
		s.cfg.Log.Error("a connection cannot be taken over: its stream ends", "err", err)
		dead, _ := net.Pipe()
		_ = dead.Close() // nobody has it
		conn, buffered = dead, bufio.NewReadWriter(bufio.NewReaderSize(dead, 16), nil)
	}
	t := &taken{Conn: conn, of: s, early: buffered.Reader}
	s.code = http.StatusSwitchingProtocols
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken = t; s.over {
		t.end()
	}
	// Nothing is in these buffers: what the client has sent already, t returns first.
	return t, bufio.NewReadWriter(bufio.NewReaderSize(t, takenBuffer), bufio.NewWriterSize(t, takenBuffer)), nil
}

// takenBuffer is that of each direction of a connection that was taken over, in bytes.
const takenBuffer = 4 << 10

// taken is the connection of a client that was taken over. When it breaks, the stream ends.
type taken struct {
	net.Conn
	of      *stream
	early   *bufio.Reader // what came with the request; nil: read
	started sync.Once
	sent    atomic.Int64
	ended   atomic.Bool // end was called
}

// Read implements net.Conn.
func (t *taken) Read(b []byte) (int, error) {
	if t.early != nil {
		if n := t.early.Buffered(); n > 0 {
			return t.early.Read(b[:min(n, len(b))])
		}
		t.early = nil
	}
	n, err := t.Conn.Read(b)
	if err != nil {
		err = t.ownEnd(err)
		t.of.end()
	}
	return n, err
}

// ownEnd is an error of the connection. Where end has woken who waited, it says that the connection is closed:
// the library logs every other error of a stream, also of one that has ended as it should.
func (t *taken) ownEnd(err error) error {
	if t.ended.Load() && errors.Is(err, os.ErrDeadlineExceeded) {
		return net.ErrClosed
	}
	return err
}

// Write implements net.Conn.
func (t *taken) Write(b []byte) (int, error) {
	t.started.Do(func() { t.answered(b) })
	n, err := t.Conn.Write(b)
	t.sent.Add(int64(n))
	if err != nil {
		err = t.ownEnd(err)
		t.of.end()
	}
	return n, err
}

// answered notes the code of the answer, whose first bytes are b: a kubelet's refusal goes this way, too.
func (t *taken) answered(b []byte) {
	s := t.of
	if _, rest, ok := strings.Cut(string(b[:min(len(b), 16)]), " "); ok && len(rest) >= 3 {
		code := 0
		for _, digit := range []byte(rest[:3]) {
			code = code*10 + int(digit-'0')
		}
		if code >= 100 && code <= 599 {
			s.code = code
		}
	}
	s.audit.Started(s.code)
}

// Close implements net.Conn.
func (t *taken) Close() error {
	t.of.end()
	return t.Conn.Close()
}

// end wakes those who read, and closes the connection when there was time for a last word. Below TLS, which
// would wait for a client that does not read.
func (t *taken) end() {
	t.ended.Store(true)
	_ = t.Conn.SetReadDeadline(time.Unix(1, 0)) // it is a network connection
	_ = t.Conn.SetWriteDeadline(time.Now().Add(goodbye))
	time.AfterFunc(goodbye, func() { _ = inner(t.Conn).Close() })
}

// inner is the connection that is below all others.
func inner(conn net.Conn) net.Conn {
	for {
		outer, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		conn = outer.NetConn()
	}
}

// clientDead reports whether the client has closed its side of the connection, also behind what was not read yet.
func clientDead(client net.Conn) bool {
	conn, ok := inner(client).(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	dead := false
	err = raw.Control(func(fd uintptr) { dead = peerClosed(fd) })
	return dead || errors.Is(err, net.ErrClosed)
}
