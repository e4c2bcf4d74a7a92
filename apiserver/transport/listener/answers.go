package listener

import (
	"net/http"
	"runtime/pprof"
)

// guestAnswers is how many answers to guests may wait on HTTP/2, for all guests together, beside
// one for each connection. Each holds a goroutine, a stream and the request's headers: 17 kB, or
// as much more as the headers have.
const guestAnswers = 4096

// bounded serves requests, and takes back answers to guests of which there are too many. Whether
// a client takes an answer on HTTP/2 is up to the window that it grants: with windows of zero each
// stream of each connection keeps an answer until answerTimeout, and package h2 does not show
// which do. So all count that a guest's connection was given since it was without a stream. A stream
// whose answer is taken back is reset, which needs no window. The first answer of a connection
// always stays: a client of one request, as a health check is, is not hindered by those of many.
//
// That would be too strict for users, who have much to ask on few connections. Their goroutines are
// labelled, as those of guests are, for untaken.
func (l *Listener) bounded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(connectionKey{}).(*connection)
		if !ok || r.ProtoMajor != 2 {
			h.ServeHTTP(w, r) // HTTP/1.1 has one at a time
			return
		}
		l.handlers.Add(1)
		defer l.handlers.Add(-1)
		h.ServeHTTP(w, r)
		if !c.user.Load() && !l.answered(c) {
			panic(http.ErrAbortHandler)
		}
		pprof.SetGoroutineLabels(c.untaken)
	})
}

// answered counts an answer to a guest and reports whether it may be sent.
func (l *Listener) answered(c *connection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.holder == nil, c.user.Load():
		return true // it ends, or is a user's by now
	case c.answers > 0 && l.answers >= l.guestAnswers:
		return false
	}
	c.answers++
	l.answers++
	return true
}

// taken counts a connection's answers no more: it has no stream, is closed, or a user's. It needs
// l.mu.
func (l *Listener) taken(c *connection) {
	l.answers -= c.answers
	c.answers = 0
}
