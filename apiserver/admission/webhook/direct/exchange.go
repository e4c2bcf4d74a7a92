package direct

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/admission/answers"
)

const (
	// MaxPrompt is the length of a review that is sent without waiting for its webhook to read:
	// the system takes as much for a connection that nothing is under way on.
	MaxPrompt = 16 << 10
	// maxUsual is the length of a usual answer. Longer ones are read by upstream's client.
	maxUsual = 64 << 10
	// maxKept is how large the buffers of a connection may be that is kept.
	maxKept = 64 << 10
	// maxInterim is how many answers a server may send before the answer, as net/http has it.
	maxInterim = 5
)

// Review is what is sent.
type Review struct {
	Body []byte
	// Timeout is the parameter that the webhook is told, zero for none; until Deadline it may take.
	Timeout  time.Duration
	Deadline time.Time
}

// Exchange is a review that was sent, and what has come. For one goroutine at a time.
type Exchange struct {
	client   *Client
	conn     *conn // nil if it has failed
	ctx      context.Context
	deadline time.Time
	stop     func() bool // that the end of the request ends it
	err      error

	scanned  int // bytes of the head that were looked at
	head     int // its length, zero as long as it is not there
	length   int // of the body
	done     bool
	unusual  bool
	cut      error // why the body of a usual answer has not come
	unread   bool  // what has come says that the webhook does not speak HTTP/1.1: it has not read the review
	replayed bool
	held     int64
}

type exchangeKey struct{}

// Send sends a review on a connection that is there. False: there is none, or the review is too
// large; Connect does it then.
func (c *Client) Send(ctx context.Context, r *Review) (*Exchange, bool) {
	way := c.route.Load()
	if way == nil || len(r.Body) > MaxPrompt || ctx.Err() != nil || !c.limits.MaySend(ctx, int64(len(r.Body))) {
		return nil, false
	}
	taken := c.take()
	if taken == nil {
		return nil, false
	}
	return c.send(ctx, way, taken, r)
}

// Connect sends a review on any connection. False: upstream's client is to send it.
func (c *Client) Connect(ctx context.Context, r *Review) (*Exchange, bool) {
	way := c.route.Load()
	if way == nil || ctx.Err() != nil || !c.limits.MaySend(ctx, int64(len(r.Body))) {
		return nil, false
	}
	used := c.take()
	if used == nil {
		limited, cancel := ctx, context.CancelFunc(func() {})
		if !r.Deadline.IsZero() {
			limited, cancel = context.WithDeadline(ctx, r.Deadline)
		}
		var err error
		used, err = c.connect(limited, way)
		cancel()
		if err != nil {
			return &Exchange{client: c, ctx: ctx, deadline: r.Deadline, err: err, done: true}, true
		}
		if used == nil {
			return nil, false
		}
	}
	return c.send(ctx, way, used, r)
}

// send is false if the connection has ended before the whole review was sent: no server can have
// taken it.
func (c *Client) send(ctx context.Context, way *route, on *conn, r *Review) (*Exchange, bool) {
	b := append(on.out[:0], "POST "...)
	b = append(b, way.path...)
	if r.Timeout > 0 {
		b = append(b, "?timeout="...)
		b = append(b, r.Timeout.String()...)
	}
	b = append(b, " HTTP/1.1\r\n"...)
	b = append(b, way.host...)
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(len(r.Body)), 10)
	b = append(b, "\r\n"...)
	b = append(b, way.rest...)
	b = append(b, "\r\n"...)
	b = append(b, r.Body...)
	if on.in = on.in[:0]; len(b) <= maxKept {
		on.out = b
	}
	x := &Exchange{client: c, conn: on, ctx: ctx, deadline: r.Deadline}
	_ = on.SetDeadline(r.Deadline) // a connection that has ended tells it at the next step
	x.stop = context.AfterFunc(ctx, func() { _ = on.SetDeadline(time.Unix(1, 0)) })
	if _, err := on.Write(b); err != nil {
		x.fail(err)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, false
		}
	}
	return x, true
}

// fail ends an exchange.
func (x *Exchange) fail(err error) {
	x.err, x.done = x.timely(err), true
	x.release(false)
}

// timely is an error as the context of the exchange has it.
func (x *Exchange) timely(err error) error {
	switch {
	case x.ctx.Err() != nil:
		return context.Cause(x.ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return context.DeadlineExceeded
	}
	return err
}

// release gives the connection up.
func (x *Exchange) release(reusable bool) {
	on := x.conn
	if on == nil {
		return
	}
	x.conn = nil
	if !x.stop() || !reusable {
		on.end()
		return
	}
	if cap(on.in) > maxKept {
		on.in = make([]byte, 0, firstRead)
	}
	x.client.put(on)
}

// Await waits until there is an answer, or none will come. It is false if neither is so at a time;
// without one it waits to the end.
func (x *Exchange) Await(until time.Time) bool {
	if x.done {
		return true
	}
	if until.IsZero() || !x.deadline.IsZero() && x.deadline.Before(until) {
		until = x.deadline
	}
	_ = x.conn.SetReadDeadline(until)
	if x.ctx.Err() != nil { // what it has set is set no more
		x.fail(nil)
		return true
	}
	for {
		in := x.conn.in
		if len(in) == cap(in) {
			in = append(in, 0)[:len(in)] // grows
		}
		n, err := x.conn.Read(in[len(in):cap(in)])
		x.conn.in = in[:len(in)+n]
		if n > 0 && x.parse() {
			x.done = true
			return true
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && x.ctx.Err() == nil && until != x.deadline:
			return false
		case errors.Is(err, io.EOF) && len(x.conn.in) > 0:
			x.done, x.unusual = true, true // net/http says what is missing
			return true
		case x.head > 0:
			x.done, x.unusual, x.cut = true, true, x.timely(err)
			return true
		default:
			x.unread = x.conn.doubted != nil && x.ctx.Err() == nil && !errors.Is(err, os.ErrDeadlineExceeded)
			x.fail(err)
			return true
		}
	}
}

var http1 = []byte("HTTP/1.")

// doubts reports whether what has come is no answer in HTTP/1.1, of a webhook that may not speak that. One that speaks HTTP/2
// alone begins with a frame.
func (x *Exchange) doubts() bool {
	r := x.conn.doubted
	if r == nil {
		return false
	}
	n := min(len(x.conn.in), len(http1))
	if !bytes.Equal(x.conn.in[:n], http1[:n]) {
		x.unread, x.unusual = true, true
		return true
	}
	if n == len(http1) {
		r.doubted.Store(false)
		x.conn.doubted = nil
	}
	return false
}

var end = []byte("\r\n\r\n")

// parse looks at what has come. It is true when nothing more is to be read here: the answer is
// there, or it is not a usual one.
func (x *Exchange) parse() bool {
	if x.doubts() {
		return true
	}
	in := x.conn.in
	if x.head == 0 {
		at := bytes.Index(in[x.scanned:], end)
		to := len(in)
		if at >= 0 {
			to = x.scanned + at
		}
		// net/http takes it for the end of a line, and of the head.
		if x.unusual = bareNewline(in, x.scanned, to); x.unusual {
			return true
		}
		if at < 0 {
			x.scanned = max(0, len(in)-len(end)+1)
			x.unusual = len(in) > maxUsual
			return x.unusual
		}
		x.head = x.scanned + at + len(end)
		if !x.parseHead(in[:x.head-len("\r\n")]) {
			x.unusual = true
			return true
		}
	}
	return len(in) >= x.head+x.length
}

// bareNewline reports whether a line in a part of a head ends without a CR.
func bareNewline(in []byte, from, to int) bool {
	for i := from; i < to; i++ {
		if in[i] == '\n' && (i == 0 || in[i-1] != '\r') {
			return true
		}
	}
	return false
}

var (
	statusOK  = []byte("HTTP/1.1 200 ")
	mediaJSON = []byte("application/json")
	mediaText = []byte("text/plain") // what net/http's server takes JSON for
	utf8      = []byte("; charset=utf-8")
)

// parseHead is false for the head of an answer that is not a usual one.
func (x *Exchange) parseHead(head []byte) bool {
	line, head, _ := bytes.Cut(head, end[:2])
	if !bytes.HasPrefix(line, statusOK) {
		return false
	}
	x.length = -1
	for len(head) > 0 {
		line, head, _ = bytes.Cut(head, end[:2])
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 {
			return false
		}
		name, value := line[:colon], bytes.Trim(line[colon+1:], " \t")
		switch {
		case is(name, "Date"), is(name, "Server"), is(name, "Audit-Id"), is(name, "X-Content-Type-Options"), is(name, "Cache-Control"), is(name, "Vary"):
		case is(name, "Connection"):
			if !is(value, "keep-alive") {
				return false
			}
		case is(name, "Keep-Alive"):
		case is(name, "Content-Type"):
			if t := bytes.TrimSuffix(value, utf8); !bytes.Equal(t, mediaJSON) && !bytes.Equal(t, mediaText) {
				return false
			}
		case is(name, "Content-Length"):
			if x.length >= 0 || len(value) == 0 || len(value) > 5 {
				return false
			}
			x.length = 0
			for _, d := range value {
				if d < '0' || d > '9' {
					return false
				}
				x.length = x.length*10 + int(d-'0')
			}
			if x.length > maxUsual {
				return false
			}
		default:
			return false
		}
	}
	return x.length >= 0
}

// is reports whether a name is another one but for the case of its letters.
func is(name []byte, other string) bool {
	return len(name) == len(other) && strings.EqualFold(string(name), other)
}

// Answer is the body of a usual answer, until Close. False: upstream's client is to be asked for
// the answer, or the error (Replay).
func (x *Exchange) Answer() ([]byte, bool) {
	if x.err != nil || x.unusual || !x.done {
		return nil, false
	}
	if x.held = int64(x.length); !x.client.limits.Hold(x.ctx, x.held) {
		x.held = 0
		return nil, false
	}
	return x.conn.in[x.head : x.head+x.length], true
}

// Forget takes an answer back that Answer has returned, which Replay is then asked for.
func (x *Exchange) Forget() {
	x.client.limits.Release(x.ctx, x.held, true)
	x.held = 0
}

// Replay is the context in which upstream's client gets what has come, or the error, for the same
// review, and nothing is sent, but to a webhook that does not speak HTTP/1.1.
func (x *Exchange) Replay() (context.Context, context.CancelFunc) {
	ctx := context.WithValue(x.ctx, exchangeKey{}, x)
	if (x.err != nil || x.cut != nil) && !x.unread {
		// It looks at its context first: what it is to say is the error.
		return context.WithoutCancel(ctx), func() {}
	}
	if x.deadline.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, x.deadline)
}

// Close gives back what the exchange has.
func (x *Exchange) Close() {
	x.client.limits.Release(x.ctx, x.held, false)
	x.held = 0
	x.release(x.done && x.err == nil && !x.unusual && x.conn != nil && len(x.conn.in) == x.head+x.length)
}

// response is the answer as net/http has it.
func (x *Exchange) response(r *http.Request) (*http.Response, error) {
	if x.err != nil {
		return nil, x.err
	}
	if !x.unusual {
		w, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(x.conn.in[:x.head+x.length])), r)
		return w, err
	}
	_ = x.conn.SetReadDeadline(x.deadline)
	from := &rest{x: x, had: x.conn.in, left: answers.MaxHead}
	if x.ctx.Err() != nil && x.cut == nil {
		x.fail(nil)
		return nil, x.err
	}
	buffered := bufio.NewReader(from)
	var w *http.Response
	var err error
	for range maxInterim + 1 {
		if w, err = http.ReadResponse(buffered, r); err != nil || w.StatusCode >= 200 || w.StatusCode == http.StatusSwitchingProtocols {
			break
		}
	}
	switch {
	case err != nil:
	case w.StatusCode < 200:
		err = fmt.Errorf("net/http: more than %d interim answers", maxInterim)
	}
	if err != nil {
		if x.ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("net/http: HTTP/1.x transport connection broken: %w", err)
		}
		x.fail(err)
		return nil, x.err
	}
	from.left = -1
	w.Body = &body{x: x, from: w.Body, rest: from, buffered: buffered, close: w.Close}
	if strings.EqualFold(w.Header.Get("Content-Encoding"), "gzip") { // it was not asked for, but net/http reads it
		w.Header.Del("Content-Encoding")
		w.Header.Del("Content-Length")
		w.ContentLength, w.Uncompressed = -1, true
		w.Body = &unzipped{ReadCloser: w.Body}
	}
	return w, nil
}

// rest reads what has come, and then what comes, of a head at most left bytes. Negative: there is
// no bound.
type rest struct {
	x    *Exchange
	had  []byte
	left int
}

// Read implements io.Reader.
func (r *rest) Read(p []byte) (n int, err error) {
	if r.left == 0 {
		return 0, fmt.Errorf("net/http: server response headers exceeded %d bytes; aborted", answers.MaxHead)
	}
	if r.left > 0 {
		p = p[:min(len(p), r.left)]
	}
	switch {
	case len(r.had) > 0:
		n = copy(p, r.had)
		r.had = r.had[n:]
	case r.x.cut != nil:
		return 0, r.x.cut
	case r.x.conn == nil:
		return 0, io.ErrClosedPipe
	default:
		if n, err = r.x.conn.Read(p); err != nil && err != io.EOF {
			err = r.x.timely(err)
		}
	}
	if r.left > 0 {
		r.left -= n
	}
	return n, err
}

// body is that of an answer that is read from its connection.
type body struct {
	x        *Exchange
	from     io.ReadCloser
	rest     *rest
	buffered *bufio.Reader
	close    bool
	whole    bool
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	b.whole = b.whole || err == io.EOF
	return n, err
}

// Close implements io.Closer. A connection that an answer was read from to its end is kept.
func (b *body) Close() error {
	b.x.release(b.whole && !b.close && b.buffered.Buffered() == 0 && len(b.rest.had) == 0)
	return nil
}

// unzipped is a body without its compression.
type unzipped struct {
	io.ReadCloser
	from *gzip.Reader
	err  error
}

// Read implements io.Reader.
func (u *unzipped) Read(p []byte) (int, error) {
	if u.from == nil && u.err == nil {
		u.from, u.err = gzip.NewReader(u.ReadCloser)
	}
	if u.err != nil {
		return 0, u.err
	}
	return u.from.Read(p)
}
