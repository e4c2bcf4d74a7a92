package sim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/quorate/quorate/test/judges/wire"
)

// Clients talk to a node's API handler over links that never fail: what fails is
// the node. A request to a paused node waits in its buffers, an answer too; one
// that was under way when the process ended gets no answer.

// errLost: the process ended, or the client gave up, before an answer.
var errLost = errors.New("no answer")

// clientDelay is the one-way delay between clients and nodes.
const clientDelay = 300 * time.Microsecond

// recorder is an http.ResponseWriter in memory.
type recorder struct {
	code   int
	header http.Header
	buf    bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(code int) {
	if r.code == 0 {
		r.code = code
	}
}

func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.buf.Write(b)
}

func request(ctx context.Context, q wire.Request) *http.Request {
	r := (&http.Request{
		Method: q.Method, URL: &url.URL{Path: q.Path, RawQuery: q.Query.Encode()}, Header: http.Header{},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: "sim",
	}).WithContext(ctx)
	if q.Body != nil {
		r.Header.Set("Content-Type", cmp.Or(q.ContentType, "application/json"))
		r.Body = io.NopCloser(bytes.NewReader(q.Body))
		r.ContentLength = int64(len(q.Body))
	} else {
		r.Body = http.NoBody
	}
	return r
}

// call makes a request and waits for the whole answer. Errors: wire.ErrNotSent (nobody
// listens), errLost.
func (s *seat) call(ctx context.Context, q wire.Request) (wire.Answer, error) {
	w := &recorder{header: http.Header{}}
	if err := s.ask(ctx, func(ctx context.Context, n *node) { n.api.ServeHTTP(w, request(ctx, q)) }); err != nil {
		return wire.Answer{}, err
	}
	return wire.Answer{Code: w.code, Header: w.header, Body: w.buf.Bytes()}, nil
}

// ask has the seat's process do something for a client that waits for it. Errors:
// wire.ErrNotSent (nobody listens), errLost: it may go on without the client.
func (s *seat) ask(ctx context.Context, do func(context.Context, *node)) error {
	time.Sleep(clientDelay)
	n := s.running()
	if n == nil {
		return wire.ErrNotSent
	}
	done := make(chan struct{})
	ctx, cancel := n.until(ctx)
	defer cancel()
	s.c.tasks.Go(func() {
		defer close(done)
		// The client may give up meanwhile: the request is in the buffer all the same.
		n.awake()
		do(ctx, n)
		n.awake()
	})
	select {
	case <-done:
	case <-ctx.Done():
		return errLost
	}
	time.Sleep(clientDelay)
	if n.ended() {
		return errLost
	}
	return nil
}

// until returns a context that ends with ctx, and with the process.
func (n *node) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := make(chan struct{})
	go func() {
		select {
		case <-n.end:
			cancel()
		case <-stop:
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel()
		close(stop)
	}
}

// awake waits while the process is paused.
func (n *node) awake() {
	for {
		n.host.net.mu.Lock()
		paused, changed := n.host.paused, n.host.net.changed
		n.host.net.mu.Unlock()
		if !paused {
			return
		}
		select {
		case <-changed:
		case <-n.end:
			return
		}
	}
}

// stream is the answer to a watch: chunks as they arrive.
type stream struct {
	node   *node
	ctx    context.Context
	header http.Header
	buf    bytes.Buffer
	code   int
	chunks chan chunk
	done   chan struct{} // the handler has returned
}

type chunk struct {
	at   time.Time
	data []byte
}

// streamBuffer is how many flushes a client may be behind before the server waits.
const streamBuffer = 8

// open starts a watch. The stream ends when ctx does. Error: wire.ErrNotSent.
func (s *seat) open(ctx context.Context, path string, q url.Values) (*stream, error) {
	time.Sleep(clientDelay)
	n := s.running()
	if n == nil {
		return nil, wire.ErrNotSent
	}
	ctx, cancel := n.until(ctx)
	w := &stream{node: n, ctx: ctx, header: http.Header{}, chunks: make(chan chunk, streamBuffer), done: make(chan struct{})}
	s.c.tasks.Go(func() {
		defer close(w.done)
		defer cancel()
		n.awake()
		n.api.ServeHTTP(w, request(ctx, wire.Request{Method: http.MethodGet, Path: path, Query: q}))
		w.Flush()
	})
	return w, nil
}

// Header implements http.ResponseWriter.
func (w *stream) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *stream) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
	}
}

// Write implements http.ResponseWriter.
func (w *stream) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.ctx.Err() != nil {
		return 0, errLost
	}
	return w.buf.Write(b)
}

// Flush implements http.Flusher: it waits while the client is far behind.
func (w *stream) Flush() {
	w.node.awake()
	if w.buf.Len() == 0 || w.ctx.Err() != nil {
		return
	}
	c := chunk{time.Now().Add(clientDelay), append([]byte(nil), w.buf.Bytes()...)}
	w.buf.Reset()
	select {
	case w.chunks <- c:
	case <-w.ctx.Done():
	}
}

// next returns what arrives next; io.EOF when the server has ended the stream,
// errLost when the process or the client's context has.
func (w *stream) next() ([]byte, error) {
	select {
	case c := <-w.chunks:
		time.Sleep(time.Until(c.at))
		return c.data, nil
	default:
	}
	select {
	case c := <-w.chunks:
		time.Sleep(time.Until(c.at))
		return c.data, nil
	case <-w.done:
		select {
		case c := <-w.chunks:
			time.Sleep(time.Until(c.at))
			return c.data, nil
		default:
		}
		if w.ctx.Err() != nil && w.node.ended() {
			return nil, errLost
		}
		return nil, io.EOF
	}
}

// The objects that clients use: service accounts, because deleting one answers
// with the object, and so with the revision of its deletion.
const (
	resource   = "serviceaccounts"
	valueOpen  = `"sim":"`
	valueClose = `"`
)

func pathOf(key string) string {
	namespace, name, _ := strings.Cut(key, "/")
	return "/api/v1/namespaces/" + namespace + "/" + resource + "/" + name
}

// collection is where the objects of a namespace are, or of all: "". A key or its prefix
// names its namespace too.
func collection(prefix string) string {
	namespace, _, _ := strings.Cut(prefix, "/")
	if namespace == "" {
		return "/api/v1/" + resource
	}
	return "/api/v1/namespaces/" + namespace + "/" + resource
}
