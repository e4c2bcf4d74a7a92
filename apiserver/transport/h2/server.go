package h2

import (
	"context"
	"crypto/tls"
	"log"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// The bounds of net/http's server.
const (
	defaultMaxStreams = 250
	// perHeaderBytes and typicalHeaders make of the bytes of HTTP/1.1's headers those of HTTP/2's list.
	perHeaderBytes = 32
	typicalHeaders = 10
	// maxIdleWorkers is how many goroutines wait for a request, for all connections.
	maxIdleWorkers = 64
	// unusedFor is how long a worker waits for a request at least, and hardly longer than twice that.
	unusedFor = time.Second
)

// Configure has s serve HTTP/2 by this package. It takes MaxConcurrentStreams, MaxHeaderBytes,
// WriteTimeout, IdleTimeout, ConnState and ErrorLog from s as they are when a connection begins.
// s must have its TLSConfig.
func Configure(s *http.Server) {
	(&server{http: s, conns: map[*conn]struct{}{}}).configure()
}

func (h *server) configure() {
	s := h.http
	s.RegisterOnShutdown(h.shutDown)
	if s.TLSNextProto == nil {
		s.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
	}
	s.TLSNextProto[http2.NextProtoTLS] = func(_ *http.Server, c *tls.Conn, handler http.Handler) { h.serve(c, handler) }
	if !slices.Contains(s.TLSConfig.NextProtos, http2.NextProtoTLS) {
		s.TLSConfig.NextProtos = append([]string{http2.NextProtoTLS}, s.TLSConfig.NextProtos...)
	}
}

// server has what all connections share.
type server struct {
	http *http.Server

	mu    sync.Mutex
	down  bool // no connection is to take more streams
	conns map[*conn]struct{}
	idle  []chan *stream // workers without a request; none without connections
	least int            // workers that were idle all the time since endUnused has looked
	timer *time.Timer    // runs endUnused; nil: there is no idle worker
}

func (s *server) maxStreams() uint32 {
	if c := s.http.HTTP2; c != nil && c.MaxConcurrentStreams > 0 {
		return uint32(c.MaxConcurrentStreams)
	}
	return defaultMaxStreams
}

func (s *server) maxHeaderList() uint32 {
	n := s.http.MaxHeaderBytes
	if n <= 0 {
		n = http.DefaultMaxHeaderBytes
	}
	return uint32(n + typicalHeaders*perHeaderBytes)
}

func (s *server) logf(format string, args ...any) {
	if l := s.http.ErrorLog; l != nil {
		l.Printf(format, args...)
		return
	}
	log.Printf(format, args...)
}

// serve serves a connection until it ends.
func (s *server) serve(t *tls.Conn, handler http.Handler) {
	defer t.Close()
	state := t.ConnectionState()
	base := context.Background()
	// The handler that net/http hands over says, besides, what ConnContext has made.
	if b, ok := handler.(interface{ BaseContext() context.Context }); ok {
		base = b.BaseContext()
	}
	base, cancel := context.WithCancel(base)
	defer cancel()
	base = context.WithValue(base, http.LocalAddrContextKey, t.LocalAddr())
	base = context.WithValue(base, http.ServerContextKey, s.http)
	c := newConn(s, t, &state, base, handler)
	s.mu.Lock()
	s.conns[c] = struct{}{}
	c.startsAway = s.down // its handshake may have taken until after Shutdown
	s.mu.Unlock()
	defer s.forget(c)
	c.serve()
}

// forget ends the idle workers with the last connection.
func (s *server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if len(s.conns) > 0 {
		return
	}
	for _, w := range s.idle {
		w <- nil
	}
	s.idle = nil
	s.stopTimer()
}

func (s *server) stopTimer() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// endUnused ends the workers that were not needed since it has looked last.
func (s *server) endUnused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	unused := min(s.least, len(s.idle))
	for _, w := range s.idle[:unused] {
		w <- nil
	}
	s.idle = slices.Delete(s.idle, 0, unused)
	s.least = len(s.idle)
	if s.least == 0 {
		s.stopTimer()
	} else if s.timer != nil {
		s.timer.Reset(unusedFor)
	}
}

// shutDown asks the clients of all connections to open no more streams.
func (s *server) shutDown() {
	s.mu.Lock()
	s.down = true
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.mu.Lock()
		c.goAway()
		c.flushAside()
		c.mu.Unlock()
	}
}

// run has a worker handle the stream's request: an idle one, or a new one. It does not wait.
func (s *server) run(st *stream) {
	s.mu.Lock()
	n := len(s.idle)
	if n == 0 {
		s.mu.Unlock()
		go s.work(st)
		return
	}
	w := s.idle[n-1]
	s.idle = s.idle[:n-1]
	s.least = min(s.least, n-1)
	s.mu.Unlock()
	w <- st
}

// work handles requests one after the other. A worker that waits has the stack that the requests before
// have needed, and no profiler's label of theirs.
func (s *server) work(st *stream) {
	next := make(chan *stream, 1)
	for st != nil {
		st.handle()
		st = nil
		s.mu.Lock()
		if len(s.conns) == 0 || len(s.idle) >= maxIdleWorkers {
			s.mu.Unlock()
			return
		}
		s.idle = append(s.idle, next)
		if s.timer == nil {
			s.least, s.timer = 0, time.AfterFunc(unusedFor, s.endUnused)
		}
		s.mu.Unlock()
		st = <-next
	}
}
