package h2

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// writeBuffer is how much of an answer waits for its handler to end, or to flush.
const writeBuffer = 4 << 10

// response is the handler's half of a stream. Its fields are the handler's.
type response struct {
	header    http.Header
	status    int     // zero: not said yet
	fields    []field // of the header when the status was said
	room      [16]field
	sent      bool // the headers
	ended     bool // the handler
	buf       *[writeBuffer]byte
	n         int   // bytes in buf
	written   int64 // bytes of the body
	length    int64 // that the handler has declared; -1: not
	hasLength bool  // the header has a Content-Length
	goesAway  bool  // a GOAWAY is to follow the answer, or its beginning
}

type field struct{ name, value string }

var writeBuffers = sync.Pool{New: func() any { return new([writeBuffer]byte) }}

func (st *stream) giveBuffer() {
	if st.buf != nil {
		writeBuffers.Put(st.buf)
		st.buf, st.n = nil, 0
	}
}

// Header implements http.ResponseWriter.
func (st *stream) Header() http.Header { return st.header }

// WriteHeader implements http.ResponseWriter.
func (st *stream) WriteHeader(code int) {
	switch {
	case st.status != 0 || st.ended:
		return
	case code < 100 || code > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", code))
	case code < 200:
		st.inform(code)
		return
	}
	st.status, st.length = code, -1
	st.fields = st.room[:0]
	for name, values := range st.header {
		switch name {
		case "Connection":
			if len(values) > 0 && values[0] == "close" {
				st.goesAway = true
			}
			continue
		case "Transfer-Encoding", "Trailer":
			continue
		case "Content-Length":
			if n, err := strconv.ParseUint(first(values), 10, 63); err == nil {
				st.length = int64(n)
			} else {
				continue
			}
			st.hasLength = true
		}
		name = lower(name)
		for _, v := range values {
			st.fields = append(st.fields, field{name, v})
		}
	}
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// inform sends an answer before the answer.
func (st *stream) inform(code int) {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	st.awaitRoom()
	defer c.wakeNext()
	if st.closed {
		return
	}
	c.beginBlock(code)
	for name, values := range st.header {
		if name == "Content-Length" || name == "Transfer-Encoding" {
			continue
		}
		for _, v := range values {
			c.addToBlock(field{lower(name), v})
		}
	}
	c.out = appendHeaders(c.out, c.block.Bytes(), c.maxFrame, st.id, false)
	c.flush()
}

// sendContinue says that the body may come. The connection's mu is held.
func (st *stream) sendContinue() {
	if st.closed || st.sent {
		return
	}
	st.c.beginBlock(http.StatusContinue)
	st.c.out = appendHeaders(st.c.out, st.c.block.Bytes(), st.c.maxFrame, st.id, false)
	st.c.control++
	st.c.flushAside()
}

var errTooLong = errors.New("http2: handler wrote more than declared Content-Length")

// Write implements http.ResponseWriter.
func (st *stream) Write(p []byte) (int, error) {
	if st.ended {
		return 0, http.ErrHandlerTimeout
	}
	if st.status == 0 {
		st.WriteHeader(http.StatusOK)
	}
	if !bodyAllowed(st.status) {
		return 0, http.ErrBodyNotAllowed
	}
	st.written += int64(len(p))
	if st.length >= 0 && st.written > st.length {
		return 0, errTooLong
	}
	if st.n+len(p) <= writeBuffer {
		if st.buf == nil {
			st.buf = writeBuffers.Get().(*[writeBuffer]byte)
		}
		st.n += copy(st.buf[st.n:], p)
		return len(p), nil
	}
	if err := st.send(p, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteString implements io.StringWriter.
func (st *stream) WriteString(s string) (int, error) { return st.Write([]byte(s)) }

// Flush implements http.Flusher.
func (st *stream) Flush() { _ = st.FlushError() }

// FlushError is Flush for http.ResponseController.
func (st *stream) FlushError() error {
	if st.ended {
		return http.ErrHandlerTimeout
	}
	if st.status == 0 {
		st.WriteHeader(http.StatusOK)
	}
	return st.send(nil, false)
}

// finish sends the rest of the answer, when its handler has ended.
func (st *stream) finish() {
	if st.status == 0 {
		st.WriteHeader(http.StatusOK)
	}
	_ = st.send(nil, true)
	st.ended = true
}

// send sends the headers, what is in the buffer, and p. With end, the answer ends there.
func (st *stream) send(p []byte, end bool) error {
	defer st.giveBuffer()
	var buffered []byte
	if st.buf != nil {
		buffered = st.buf[:st.n]
	}
	c := st.c
	head := st.head
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.wakeNext()
	if !st.sent {
		st.awaitRoom()
	}
	if st.closed {
		st.sayGoAway()
		c.flushAside()
		return st.closeErr
	}
	if !st.sent {
		body := buffered
		if len(body) == 0 {
			body = p
		}
		last := head || end && len(buffered)+len(p) == 0
		st.sendHeaders(body, end, last)
		if last {
			st.finished()
			st.sayGoAway()
			c.flush()
			return nil
		}
	}
	if head {
		return nil
	}
	err := st.data(buffered, end && len(p) == 0)
	if err == nil && len(p) > 0 {
		err = st.data(p, end)
	}
	c.releaseTurn()
	st.sayGoAway()
	c.flush()
	return err
}

// sayGoAway sends the GOAWAY that the answer asks for. It comes behind what there is of the answer: some clients
// give up a stream without an answer when they read a GOAWAY. The connection's mu is held.
func (st *stream) sayGoAway() {
	if st.goesAway {
		st.goesAway = false
		st.c.behind = st.c.appendGoAway(st.c.behind)
	}
}

// sendHeaders appends the headers of an answer. body is its beginning, and with end the whole. The connection's
// mu is held.
func (st *stream) sendHeaders(body []byte, end, last bool) {
	c := st.c
	st.sent = true
	c.beginBlock(st.status)
	var hasType, hasEncoding, hasDate bool
	for _, f := range st.fields {
		switch f.name {
		case "content-type":
			hasType = true
		case "content-encoding":
			hasEncoding = f.value != ""
		case "date":
			hasDate = true
		}
		c.addToBlock(f)
	}
	if bodyAllowed(st.status) {
		if !hasType && !hasEncoding && len(body) > 0 {
			c.addToBlock(field{"content-type", http.DetectContentType(body)})
		}
		if !st.hasLength && end && (len(body) > 0 || !st.head) {
			c.addToBlock(field{"content-length", strconv.Itoa(len(body))})
		}
	}
	if !hasDate {
		c.addToBlock(field{"date", date()})
	}
	c.room(c.block.Len() + frameHeader + len(body))
	c.out = appendHeaders(c.out, c.block.Bytes(), c.maxFrame, st.id, last)
}

// data appends p as frames, as the windows and the connection have room. With end, the stream ends behind it.
// The connection's mu is held, and is released while it waits.
func (st *stream) data(p []byte, end bool) error {
	c := st.c
	for len(p) > 0 || end {
		n := max(0, int(min(int64(len(p)), int64(c.maxFrame), maxData, c.sendWindow, st.window())))
		switch {
		case st.closed:
			return st.closeErr
		case st.refused && (len(p) > 0 && n == 0 || c.outFull()):
			c.reset(st.id, http2.ErrCodeEnhanceYourCalm)
			continue
		case len(p) > 0 && n == 0:
			c.releaseTurn()
			c.flush() // the client gives no window for what it does not have; this releases mu
			switch {
			case st.closed:
			case st.window() <= 0:
				st.awaitWindow()
			case c.sendWindow <= 0:
				c.forWindow.wait(st)
			}
			continue
		case c.outFull():
			c.releaseTurn()
			c.forRoom.wait(st)
			continue
		case len(c.out) >= maxOut:
			c.holdTurn()
			c.flush()
			continue
		}
		flags := http2.Flags(0)
		if end && n == len(p) {
			flags = http2.FlagDataEndStream
		}
		c.room(frameHeader + n)
		c.out = append(appendHeader(c.out, n, http2.FrameData, flags, st.id), p[:n]...)
		c.sendWindow -= int64(n)
		st.granted -= int64(n)
		if p = p[n:]; len(p) == 0 && end {
			st.finished()
			return nil
		}
	}
	return nil
}

// finished ends the stream, when its last frame is on its way. The connection's mu is held.
func (st *stream) finished() {
	if !st.remoteDone {
		// The client need not send the rest of its body: nobody reads it (RFC 9113, 8.1). Some clients
		// lose the answer if they read this with it.
		st.c.behind = appendReset(st.c.behind, st.id, http2.ErrCodeNo)
		st.c.noteReset(st.id)
		st.c.control++
	}
	st.c.close(st, errReset)
}

// SetReadDeadline is http.ResponseController's.
func (st *stream) SetReadDeadline(t time.Time) error {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	switch {
	case st.closed:
	case !t.IsZero() && t.Before(time.Now()):
		st.breakBody(os.ErrDeadlineExceeded)
	default:
		if st.readBy = t; !t.IsZero() {
			st.c.wakeAt(t)
		}
	}
	return nil
}

// SetWriteDeadline is http.ResponseController's: a stream whose time is over is reset.
func (st *stream) SetWriteDeadline(t time.Time) error {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	past := !t.IsZero() && t.Before(time.Now())
	switch {
	case st.closed && past:
		st.c.checkStalled() // the handler may be the one that writes for the connection
	case st.closed:
	case past:
		st.c.timeOut(st)
		st.c.flushAside()
	default:
		if st.writeBy = t; !t.IsZero() {
			st.c.wakeAt(t)
		}
	}
	return nil
}

// EnableFullDuplex is http.ResponseController's: it always is.
func (st *stream) EnableFullDuplex() error { return nil }

// CloseNotify implements http.CloseNotifier.
func (st *stream) CloseNotify() <-chan bool {
	gone := make(chan bool, 1)
	context.AfterFunc(st.ctx, func() { gone <- true })
	return gone
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// beginBlock begins the headers of an answer. The connection's mu is held.
func (c *conn) beginBlock(status int) {
	c.block.Reset()
	_ = c.encoder.WriteField(hpack.HeaderField{Name: ":status", Value: statusText(status)})
}

func statusText(status int) string {
	if status == http.StatusOK {
		return "200"
	}
	return strconv.Itoa(status)
}

// addToBlock adds a header. What differs with every answer is not put into the table of the connection:
// it would only push out what does not.
func (c *conn) addToBlock(f field) {
	if !validValue(f) {
		return
	}
	if !unique[f.name] {
		_ = c.encoder.WriteField(hpack.HeaderField{Name: f.name, Value: f.value})
		return
	}
	var room [128]byte
	b := append(room[:0], 0) // a literal without indexing, its name too
	b = appendLiteral(b, f.name)
	b = appendLiteral(b, f.value)
	c.block.Write(b)
}

// appendLiteral appends a string of hpack, not compressed.
func appendLiteral(b []byte, s string) []byte {
	const most = 127
	if n := len(s); n < most {
		b = append(b, byte(n))
	} else {
		b = append(b, most)
		for n -= most; ; n >>= 7 {
			if n < 128 {
				b = append(b, byte(n))
				break
			}
			b = append(b, byte(n)|128)
		}
	}
	return append(b, s...)
}

// unique are headers whose values differ with nearly every answer.
var unique = map[string]bool{
	"audit-id": true, "content-length": true, "x-quorate-index": true, "x-quorate-staleness": true, "etag": true, "last-modified": true,
}

// answerNames are the headers that many answers have.
var answerNames = map[string]string{}

func init() {
	for _, name := range []string{
		"Audit-Id", "Cache-Control", "Content-Encoding", "Content-Length", "Content-Type", "Date", "Etag", "Last-Modified", "Location",
		"Retry-After", "Vary", "Warning", "X-Quorate-Node", "X-Quorate-Role", "X-Quorate-Index", "X-Quorate-Staleness",
		"X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid",
	} {
		answerNames[name] = strings.ToLower(name)
	}
}

func lower(name string) string {
	if l, ok := answerNames[name]; ok {
		return l
	}
	return strings.ToLower(name)
}

func validValue(f field) bool {
	return httpguts.ValidHeaderFieldName(f.name) && httpguts.ValidHeaderFieldValue(f.value)
}

// dated is a second, and the text of it.
type dated struct {
	second int64
	text   string
}

var lastDate atomic.Pointer[dated]

// date is the Date of an answer.
func date() string {
	now := time.Now()
	if d := lastDate.Load(); d != nil && d.second == now.Unix() {
		return d.text
	}
	d := &dated{now.Unix(), now.UTC().Format(http.TimeFormat)}
	lastDate.Store(d)
	return d.text
}
