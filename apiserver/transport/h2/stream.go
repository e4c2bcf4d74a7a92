package h2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// stream is one request and its answer. It is the handler's http.ResponseWriter.
type stream struct {
	c       *conn
	id      uint32
	request *http.Request // until the handler has it
	handler http.Handler
	head    bool // the request's method is HEAD
	ctx     context.Context
	cancel  context.CancelFunc

	// Under the connection's mu.
	changed    sync.Cond // something below, or the connection's room
	closed     bool      // nothing more is sent
	closeErr   error
	remoteDone bool  // the client sends no more
	started    bool  // the handler
	refused    bool  // the handler is one that refuses the request: its answer waits for nothing
	granted    int64 // by WINDOW_UPDATE, less what was sent: see window
	queued     bool  // the handler waits in a queue of the connection
	received   int64 // what is left of the client's window
	kept       int64 // of it that can be given again
	body       []byte
	bodyRead   int   // bytes of body
	bodyErr    error // behind body
	came       int64
	declared   int64 // length of the body; -1: not declared
	continues  bool  // the client waits for a 100 before it sends the body
	writeBy    time.Time
	readBy     time.Time

	response
}

// window is how much may be sent on the stream. It changes with the connection's streamWindow, and may be negative.
// The connection's mu is held.
func (st *stream) window() int64 { return st.c.streamWindow + st.granted }

// handle serves the request. It is a worker's.
func (st *stream) handle() {
	finished := false
	defer func() {
		if !finished {
			st.panicked(recover())
		}
		st.cancel()
		// Before it starts the next handler, which would inherit a label of this one.
		pprof.SetGoroutineLabels(context.Background())
		st.c.mu.Lock()
		st.c.handled()
		st.c.mu.Unlock()
	}()
	// An answer that waits for its client holds nothing of its request, whose headers may be 200 KB.
	r, h := st.request, st.handler
	st.request, st.handler = nil, nil
	h.ServeHTTP(st, r)
	st.finish()
	finished = true
}

// panicked resets the stream: the client must see that the answer is cut.
func (st *stream) panicked(p any) {
	if p != nil && p != http.ErrAbortHandler {
		const most = 64 << 10
		stack := make([]byte, most)
		stack = stack[:runtime.Stack(stack, false)]
		st.c.s.logf("http2: panic serving %s: %v\n%s", st.c.remote, p, stack)
	}
	st.giveBuffer()
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	st.sayGoAway()
	if !st.closed {
		st.c.reset(st.id, http2.ErrCodeInternal)
	}
	st.c.flush()
}

// endBody notes that the client has sent everything. The connection's mu is held.
func (st *stream) endBody() {
	st.remoteDone = true
	if st.bodyErr == nil {
		st.bodyErr = io.EOF
		if st.declared >= 0 && st.came != st.declared {
			st.bodyErr = fmt.Errorf("request declared a Content-Length of %d but only wrote %d bytes", st.declared, st.came)
		}
	}
	st.changed.Broadcast()
}

// addToBody adds what has come. What was read is dropped before the buffer grows beyond twice what was not:
// it may be long before a reader that is always behind has read all there is. The connection's mu is held.
func (st *stream) addToBody(data []byte) {
	if len(st.body)+len(data) > cap(st.body) && st.bodyRead >= len(st.body)/2 {
		st.body = st.body[:copy(st.body, st.body[st.bodyRead:])]
		st.bodyRead = 0
	}
	st.body = append(st.body, data...)
}

// breakBody makes reading the body fail. The connection's mu is held.
func (st *stream) breakBody(err error) {
	st.c.giveBack(int64(len(st.body) - st.bodyRead))
	st.body, st.bodyRead = nil, 0
	if st.bodyErr == nil || st.bodyErr == io.EOF {
		st.bodyErr = err
	}
	st.changed.Broadcast()
}

// giveBack gives n bytes of the stream's window to the client again, sooner or later. The connection's mu
// is held.
func (st *stream) giveBack(n int64) {
	if st.remoteDone || st.closed {
		return
	}
	st.kept += n
	if st.kept >= returnWindow {
		st.c.out = appendWindowUpdate(st.c.out, st.id, uint32(st.kept))
		st.c.control++
		st.received += st.kept
		st.kept = 0
	}
}

// body is a request's.
type body struct{ st *stream }

var errBodyClosed = errors.New("http: invalid Read on closed Body")

// Read implements io.Reader.
func (b body) Read(p []byte) (int, error) {
	st, c := b.st, b.st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.continues {
		st.continues = false
		st.sendContinue()
	}
	if len(p) == 0 {
		return 0, nil
	}
	for st.bodyRead == len(st.body) {
		if st.bodyErr != nil {
			return 0, st.bodyErr
		}
		st.changed.Wait()
	}
	n := copy(p, st.body[st.bodyRead:])
	if st.bodyRead += n; st.bodyRead == len(st.body) {
		st.body, st.bodyRead = st.body[:0], 0
	}
	st.giveBack(int64(n))
	c.giveBack(int64(n))
	c.flushAside() // if a window was given
	return n, nil
}

// Close implements io.Closer: what still comes is dropped.
func (b body) Close() error {
	b.st.c.mu.Lock()
	defer b.st.c.mu.Unlock()
	b.st.breakBody(errBodyClosed)
	return nil
}
