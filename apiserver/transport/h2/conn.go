package h2

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// The numbers of net/http's server, but for the last ones.
const (
	prefaceTimeout  = 10 * time.Second
	settingsTimeout = 2 * time.Second
	// goAwayTimeout is how long a client has to read that the connection ends.
	goAwayTimeout = time.Second
	// afterGoAway is how much of what a refused client still sends is read: what was under way, which is a window and a frame.
	afterGoAway = 4 << 20
	headerTable = 4096
	// maxReadFrame is less than net/http's 1 MiB: each connection keeps a buffer as large as the largest frame that has
	// begun, and nine bytes begin one.
	maxReadFrame  = 64 << 10
	initialWindow = 65535 // of the protocol
	// receiveWindow of a stream, and of a connection.
	receiveWindow = 1 << 20
	// maxControl frames may wait for a client that makes them and does not read.
	maxControl = 10000
	// earlyResets times the streams is how many requests may wait behind handlers of streams that
	// the client has reset.
	earlyResets = 4

	readBuffer = 4 << 10
	// maxUnanswered is how many frames are read before what they want is sent.
	maxUnanswered = 64
	// maxFirstBody is what a declared body is given room for at once.
	maxFirstBody = 16 << 10
	// returnWindow is how much of a window is kept back before it is given again.
	returnWindow = receiveWindow / 4
	// stalledWrite is how long one write to the connection may take when a stream's time is over.
	stalledWrite = 5 * time.Second
)

// conn is one connection. Its own goroutine reads; what handlers do with it is under mu.
type conn struct {
	s       *server
	tls     *tls.Conn
	turns   turnConn // nil: it needs none
	state   *tls.ConnectionState
	base    context.Context
	handler http.Handler
	remote  string
	max     uint32 // streams

	// The reading goroutine's.
	r       *bufio.Reader
	framer  *http2.Framer
	settled bool // the client's first settings have come
	// startsAway: it begins with a GOAWAY.
	startsAway bool

	mu       sync.Mutex
	streams  map[uint32]*stream
	lastID   uint32     // of the streams that the client has opened
	handlers uint32     // at work
	late     []*stream  // without a handler, because too many of reset streams are at work
	closed   error      // why the connection has ended
	away     bool       // GOAWAY was sent: no more streams
	resets   [16]uint32 // the last streams that this end has reset; zero: none
	nextOne  int        // of resets

	unacked       int // settings
	received      int64
	kept          int64 // of the window that can be given again
	sendWindow    int64
	streamWindow  int64 // of a stream that begins: SETTINGS_INITIAL_WINDOW_SIZE
	mostGranted   int64 // no stream has more: see setStreamWindow
	moreForAll    bool  // streamWindow has grown, and who waits for that was not woken yet
	maxFrame      int
	encoder       *hpack.Encoder
	block         bytes.Buffer // of headers
	out           []byte       // frames that wait
	behind        []byte       // and those that go into a write of their own, behind these
	control       int          // frames among them that clients can cause without reading
	writing       bool
	writes        uint64               // that have ended
	writeBy       time.Time            // when the write under way must have ended; zero: there is none, or no such time
	forRoom       queue                // streams that wait for room in out
	forWindow     queue                // streams that wait for sendWindow
	forOwn        map[*stream]struct{} // streams that wait for a window of their own
	wakes         int                  // of streams that have waited for one of these
	looks         int                  // at streams, for settings
	timer         *time.Timer
	timerAt       time.Time // zero: it stands still
	idleSince     time.Time // zero: there are streams
	activeNoted   bool      // the state that ConnState was told last
	closeAt       time.Time // after a GOAWAY
	stalledChecks bool
	holds         bool // a stream keeps the turn between its writes
}

var (
	errClientGone = errors.New("client disconnected")
	errGoneAway   = errors.New("connection error")
	errReset      = errors.New("http2: stream closed")
)

func newConn(s *server, t *tls.Conn, state *tls.ConnectionState, base context.Context, handler http.Handler) *conn {
	c := &conn{
		s: s, tls: t, state: state, base: base, handler: handler, remote: t.RemoteAddr().String(), max: s.maxStreams(),
		r: bufio.NewReaderSize(t, readBuffer), streams: map[uint32]*stream{},
		received: receiveWindow, sendWindow: initialWindow, streamWindow: initialWindow, maxFrame: 16 << 10,
	}
	c.turns, _ = t.NetConn().(turnConn)
	c.timer = time.AfterFunc(time.Hour, c.tick)
	c.timer.Stop()
	c.framer = http2.NewFramer(nil, c.r)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(headerTable, nil)
	c.framer.MaxHeaderListSize = s.maxHeaderList()
	c.framer.SetMaxReadFrameSize(maxReadFrame)
	c.framer.SetReuseFrames()
	c.encoder = hpack.NewEncoder(&c.block)
	c.encoder.SetMaxDynamicTableSizeLimit(headerTable)
	return c
}

// serve reads the connection until it ends.
func (c *conn) serve() {
	// net/http has set the server's WriteTimeout on the connection; here it is each stream's.
	_ = c.tls.SetWriteDeadline(time.Time{})
	why := c.read()
	c.mu.Lock()
	c.fail(why)
	c.timer.Stop()
	c.mu.Unlock()
}

// read returns why the connection has ended.
func (c *conn) read() error {
	c.mu.Lock()
	c.room(1)
	c.out = appendSettings(c.out, [][2]uint32{
		{uint32(http2.SettingMaxFrameSize), maxReadFrame},
		{uint32(http2.SettingMaxConcurrentStreams), c.max},
		{uint32(http2.SettingMaxHeaderListSize), c.s.maxHeaderList()},
		{uint32(http2.SettingHeaderTableSize), headerTable},
		{uint32(http2.SettingInitialWindowSize), receiveWindow},
	})
	c.unacked++
	c.out = appendWindowUpdate(c.out, 0, receiveWindow-initialWindow)
	if !allowedSuite(c.state) {
		c.out = appendGoAway(c.out, 0, http2.ErrCodeInadequateSecurity)
		c.flush()
		c.mu.Unlock()
		return errGoneAway
	}
	c.flushAside()
	c.mu.Unlock()

	if err := c.preface(); err != nil {
		return errClientGone
	}
	c.mu.Lock()
	c.connState(true)
	c.connState(false)
	c.beIdle()
	if c.startsAway {
		c.goAway()
		c.flushAside()
	}
	c.mu.Unlock()
	for read := 0; ; {
		f, err := c.framer.ReadFrame()
		if err == nil {
			err = c.frame(f)
		}
		var stream http2.StreamError
		switch {
		case err == nil:
		case errors.As(err, &stream):
			c.mu.Lock()
			c.reset(stream.StreamID, stream.Code)
			c.mu.Unlock()
		default:
			var code http2.ConnectionError
			switch {
			case errors.Is(err, http2.ErrFrameTooLarge):
				code = http2.ConnectionError(http2.ErrCodeFrameSize)
			case !errors.As(err, &code):
				return errClientGone
			}
			return c.refuse(http2.ErrCode(code))
		}
		// The next frame, if it is there, may want an answer too.
		if read++; read < maxUnanswered && c.hasFrame() {
			continue
		}
		read = 0
		c.mu.Lock()
		tooMany := c.control > maxControl
		c.wakeForAll()
		c.flushAside()
		c.mu.Unlock()
		if tooMany {
			return errGoneAway
		}
	}
}

// hasFrame reports whether a whole frame has been received that was not read yet. A part of one may be all
// that ever comes.
func (c *conn) hasFrame() bool {
	n := c.r.Buffered()
	if n < frameHeader {
		return false
	}
	h, _ := c.r.Peek(frameHeader) // it is in the buffer
	return n >= frameHeader+(int(h[0])<<16|int(h[1])<<8|int(h[2]))
}

// preface reads what a connection begins with.
func (c *conn) preface() error {
	_ = c.tls.SetReadDeadline(time.Now().Add(prefaceTimeout))
	got := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c.r, got); err != nil {
		return err
	}
	if string(got) != http2.ClientPreface {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return c.tls.SetReadDeadline(time.Now().Add(settingsTimeout))
}

// refuse ends the connection for what the client has sent. If the connection were closed at once, what
// lies in its buffers unread would have the kernel reset it, and the client would not see why.
func (c *conn) refuse(code http2.ErrCode) error {
	c.s.logf("http2: server connection error from %s: %v", c.remote, http2.ConnectionError(code))
	c.mu.Lock()
	for _, st := range c.streams {
		c.close(st, errGoneAway)
	}
	c.away = true
	c.out = appendGoAway(c.out, c.lastID, code)
	c.flushAside()
	c.mu.Unlock()
	_ = c.tls.SetReadDeadline(time.Now().Add(goAwayTimeout))
	_, _ = io.CopyN(io.Discard, c.r, afterGoAway)
	return errGoneAway
}

// fail ends all streams, and the connection. mu is held.
func (c *conn) fail(why error) {
	if c.closed == nil {
		c.closed = why
		for _, st := range c.streams {
			c.close(st, why)
		}
		c.late = nil
		// Beside a write it does not wait, and ends that.
		go c.tls.Close()
	}
}

// frame does what a frame says. Errors are http2's.
func (c *conn) frame(f http2.Frame) error {
	if !c.settled {
		if _, ok := f.(*http2.SettingsFrame); !ok {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		c.settled = true
		if err := c.tls.SetReadDeadline(time.Time{}); err != nil {
			return err
		}
	}
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		return c.headers(f)
	case *http2.DataFrame:
		return c.data(f)
	case *http2.WindowUpdateFrame:
		return c.windowUpdate(f)
	case *http2.SettingsFrame:
		return c.settings(f)
	case *http2.PingFrame:
		return c.ping(f)
	case *http2.RSTStreamFrame:
		return c.rst(f)
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID && !c.ignored(f.StreamID) {
			return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
		}
	case *http2.GoAwayFrame:
		c.mu.Lock()
		c.goAway()
		c.mu.Unlock()
	case *http2.PushPromiseFrame:
		if !c.ignored(f.StreamID) {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
	}
	return nil
}

// known returns a stream. idle says that the client has not opened it yet: no frame but HEADERS and
// PRIORITY may name it. mu is held.
func (c *conn) known(id uint32) (st *stream, idle bool) {
	return c.streams[id], !c.ignores(id) && (id > c.lastID || id%2 == 0)
}

// ignores reports whether a stream is one that the client has opened before it knew of our GOAWAY. What it has
// sent on it since is no mistake, and no reason to end the streams that are still served. mu is held.
func (c *conn) ignores(id uint32) bool { return c.away && id > c.lastID }

// ignored is ignores without mu.
func (c *conn) ignored(id uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ignores(id)
}

// noteReset notes that this end resets a stream. What the client has sent on it before it knew of that is no mistake
// (RFC 9113, 5.1), and another reset would be no news to it. mu is held.
func (c *conn) noteReset(id uint32) {
	c.resets[c.nextOne] = id
	c.nextOne = (c.nextOne + 1) % len(c.resets)
}

// wasReset reports whether this end has reset a stream lately. mu is held.
func (c *conn) wasReset(id uint32) bool { return id != 0 && slices.Contains(c.resets[:], id) }

func (c *conn) headers(f *http2.MetaHeadersFrame) error {
	id := f.StreamID
	c.mu.Lock()
	if c.ignores(id) || c.wasReset(id) || id%2 != 1 {
		defer c.mu.Unlock()
		if c.ignores(id) || c.wasReset(id) {
			return nil
		}
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if st := c.streams[id]; st != nil {
		defer c.mu.Unlock()
		switch {
		case st.remoteDone:
			return http2.StreamError{StreamID: id, Code: http2.ErrCodeStreamClosed}
		case !f.StreamEnded():
			return http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol}
		case len(f.PseudoFields()) > 0:
			return http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol}
		}
		st.endBody() // with trailers, which nobody reads
		return nil
	}
	err := c.mayOpen(f)
	away := c.away
	c.mu.Unlock()
	if err != nil || away {
		return err // after a GOAWAY the client knows that these streams are not served
	}
	st := &stream{c: c, id: id, remoteDone: f.StreamEnded(), received: receiveWindow, declared: -1}
	st.changed.L = &c.mu
	if err := st.readRequest(f); err != nil {
		return err
	}
	return c.open(st)
}

// mayOpen notes a new stream's id, and says why it is refused. mu is held.
func (c *conn) mayOpen(f *http2.MetaHeadersFrame) error {
	id := f.StreamID
	if id <= c.lastID {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if c.away {
		return nil
	}
	c.lastID = id
	switch full := uint32(len(c.streams)) >= c.max; {
	case full && c.unacked > 0:
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeRefusedStream}
	case full, f.HasPriority() && f.Priority.StreamDep == id:
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol}
	}
	return nil
}

// open begins a stream, and has its request handled.
func (c *conn) open(st *stream) error {
	c.mu.Lock()
	if c.closed != nil {
		c.mu.Unlock()
		return c.closed
	}
	c.streams[st.id] = st
	if t := c.s.http.WriteTimeout; t > 0 {
		st.writeBy = time.Now().Add(t)
		c.wakeAt(st.writeBy)
	}
	c.connState(true)
	c.idleSince = time.Time{}
	if c.handlers < c.max {
		c.handlers++
		st.started = true
		c.mu.Unlock()
		c.s.run(st)
		return nil
	}
	defer c.mu.Unlock()
	if len(c.late) > earlyResets*int(c.max) {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	c.late = append(c.late, st)
	return nil
}

// handled is called when a handler has ended, with mu held.
func (c *conn) handled() {
	c.handlers--
	for len(c.late) > 0 && c.handlers < c.max {
		st := c.late[0]
		c.late[0] = nil
		c.late = c.late[1:]
		if !st.closed {
			c.handlers++
			st.started = true
			c.s.run(st)
		}
	}
}

func (c *conn) data(f *http2.DataFrame) error {
	id, n := f.StreamID, int64(f.Length)
	c.mu.Lock()
	defer c.mu.Unlock()
	st, idle := c.known(id)
	if idle {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if n > c.received {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	c.received -= n
	switch {
	case c.ignores(id), c.wasReset(id):
		c.giveBack(n)
		return nil
	case st == nil || st.remoteDone:
		c.giveBack(n)
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeStreamClosed}
	case n > st.received:
		c.giveBack(n)
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeFlowControl}
	}
	data := f.Data()
	if st.declared >= 0 && st.came+int64(len(data)) > st.declared {
		c.giveBack(n)
		st.breakBody(errors.New("sender tried to send more than declared Content-Length"))
		c.reset(id, http2.ErrCodeProtocol) // while mu is held: the handler must not answer before
		return nil
	}
	st.received -= n
	st.came += int64(len(data))
	padding := n - int64(len(data))
	if st.bodyErr != nil { // nobody reads it any more
		c.giveBack(n)
	} else {
		if st.body == nil && st.declared > 0 {
			st.body = make([]byte, 0, min(st.declared, maxFirstBody))
		}
		st.addToBody(data)
		c.giveBack(padding)
		st.giveBack(padding)
	}
	if f.StreamEnded() {
		st.endBody()
	}
	st.changed.Broadcast()
	return nil
}

// giveBack gives n bytes of the connection's window to the client again, sooner or later. mu is held.
func (c *conn) giveBack(n int64) {
	c.kept += n
	if c.kept >= returnWindow {
		c.out = appendWindowUpdate(c.out, 0, uint32(c.kept))
		c.control++
		c.received += c.kept
		c.kept = 0
	}
}

func (c *conn) windowUpdate(f *http2.WindowUpdateFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.StreamID == 0 {
		if c.sendWindow += int64(f.Increment); c.sendWindow > math.MaxInt32 {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		c.wakeNext()
		return nil
	}
	st, idle := c.known(f.StreamID)
	if idle {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if st == nil {
		return nil
	}
	st.granted += int64(f.Increment)
	if st.window() > math.MaxInt32 {
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeFlowControl}
	}
	c.mostGranted = max(c.mostGranted, st.granted)
	st.wakeForWindow()
	return nil
}

func (c *conn) settings(f *http2.SettingsFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.IsAck() {
		if c.unacked--; c.unacked < 0 {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		return nil
	}
	if f.NumSettings() > 100 || f.HasDuplicates() {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if err := f.ForeachSetting(c.setting); err != nil {
		return err
	}
	c.out = appendSettingsAck(c.out)
	c.control++
	return nil
}

// setting takes one of them. mu is held.
func (c *conn) setting(s http2.Setting) error {
	if err := s.Valid(); err != nil {
		return err
	}
	switch s.ID {
	case http2.SettingHeaderTableSize:
		c.encoder.SetMaxDynamicTableSize(s.Val)
	case http2.SettingMaxFrameSize:
		c.maxFrame = min(int(s.Val), maxDataFrame)
	case http2.SettingInitialWindowSize:
		return c.setStreamWindow(int64(s.Val))
	}
	return nil
}

// setStreamWindow changes the windows of all streams (RFC 9113, 6.9.2). It does not touch the streams: a client can
// send any number of these settings, in 15 bytes each. A walk over the streams is needed only when the one that was
// granted most has sent or ended since the last walk, and what it had would be too much now. mu is held.
func (c *conn) setStreamWindow(n int64) error {
	c.moreForAll = c.moreForAll || n > c.streamWindow
	c.streamWindow = n
	if n+c.mostGranted <= math.MaxInt32 {
		return nil
	}
	c.looks += len(c.streams)
	c.mostGranted = 0
	for _, st := range c.streams {
		c.mostGranted = max(c.mostGranted, st.granted)
	}
	if n+c.mostGranted > math.MaxInt32 {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	return nil
}

// wakeForAll wakes the streams that have a window since all windows have grown. It is called once for all frames that
// were read together, so that a window that grows and shrinks again wakes nobody. mu is held.
func (c *conn) wakeForAll() {
	if !c.moreForAll {
		return
	}
	c.moreForAll = false
	c.looks += len(c.forOwn)
	for st := range c.forOwn {
		st.wakeForWindow()
	}
}

func (c *conn) ping(f *http2.PingFrame) error {
	if f.IsAck() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = appendPingAck(c.out, f.Data)
	c.control++
	return nil
}

func (c *conn) rst(f *http2.RSTStreamFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	st, idle := c.known(f.StreamID)
	if idle {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if st != nil {
		c.close(st, errReset)
	}
	return nil
}

// reset ends a stream, and tells the client. mu is held.
func (c *conn) reset(id uint32, code http2.ErrCode) {
	c.out = appendReset(c.out, id, code)
	c.noteReset(id)
	c.control++
	if st := c.streams[id]; st != nil {
		c.close(st, errReset)
	}
}

// close ends a stream: nothing more is sent on it, and its handler is told. mu is held.
func (c *conn) close(st *stream, why error) {
	delete(c.streams, st.id)
	st.closed, st.closeErr = true, why
	c.giveBack(int64(len(st.body) - st.bodyRead))
	st.body, st.bodyRead = nil, 0
	if st.bodyErr == nil {
		st.bodyErr = why
	}
	st.changed.Broadcast()
	st.cancel()
	if !st.started {
		// It may stay among the late ones until handlers have ended; its headers need not.
		st.request, st.header, st.handler = nil, nil, nil
	}
	if len(c.streams) == 0 && c.closed == nil {
		c.connState(false)
		c.beIdle()
	}
}

// connState tells the server whether the connection has streams. mu is held.
func (c *conn) connState(active bool) {
	if active == c.activeNoted {
		return
	}
	c.activeNoted = active
	if tell := c.s.http.ConnState; tell != nil {
		state := http.StateIdle
		if active {
			state = http.StateActive
		}
		tell(c.tls, state)
	}
}

// beIdle notes that there is no stream. mu is held.
func (c *conn) beIdle() {
	c.idleSince = time.Now()
	if c.away {
		c.closeAt = c.idleSince.Add(goAwayTimeout)
		c.wakeAt(c.closeAt)
	} else if t := c.idleTimeout(); t > 0 {
		c.wakeAt(c.idleSince.Add(t))
	}
}

func (c *conn) idleTimeout() time.Duration {
	if c.s.http.IdleTimeout != 0 {
		return c.s.http.IdleTimeout
	}
	return c.s.http.ReadTimeout
}

// goAway asks the client to open no more streams; the connection ends behind those that there are.
// mu is held.
func (c *conn) goAway() {
	c.out = c.appendGoAway(c.out)
}

// appendGoAway appends the GOAWAY to out or behind, unless it was before. mu is held.
func (c *conn) appendGoAway(b []byte) []byte {
	if c.away || c.closed != nil {
		return b
	}
	c.away = true
	b = appendGoAway(b, c.lastID, http2.ErrCodeNo)
	if len(c.streams) == 0 {
		c.beIdle()
	}
	return b
}

// wakeAt has tick called at a time. mu is held.
func (c *conn) wakeAt(at time.Time) {
	if c.timerAt.IsZero() || at.Before(c.timerAt) {
		c.timerAt = at
		c.timer.Reset(time.Until(at))
	}
}

// tick does what is due. There is one timer for all streams, which is not moved when one ends.
func (c *conn) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return
	}
	now := time.Now()
	c.timerAt = time.Time{}
	if !c.closeAt.IsZero() && len(c.streams) == 0 && !now.Before(c.closeAt) {
		c.fail(errGoneAway)
		return
	}
	if !c.writeBy.IsZero() {
		if !now.Before(c.writeBy) {
			c.fail(errClientGone)
			return
		}
		c.wakeAt(c.writeBy)
	}
	for _, st := range c.streams {
		if !st.readBy.IsZero() && !now.Before(st.readBy) {
			st.readBy = time.Time{}
			st.breakBody(os.ErrDeadlineExceeded)
		}
		if !st.writeBy.IsZero() && !now.Before(st.writeBy) {
			c.timeOut(st)
			continue
		}
		for _, at := range [...]time.Time{st.readBy, st.writeBy} {
			if !at.IsZero() {
				c.wakeAt(at)
			}
		}
	}
	if !c.idleSince.IsZero() && len(c.streams) == 0 && !c.away {
		if t := c.idleTimeout(); t > 0 {
			if now.Sub(c.idleSince) >= t {
				c.goAway()
			} else {
				c.wakeAt(c.idleSince.Add(t))
			}
		}
	}
	c.flushAside()
}
