package apiserver

import (
	"net/http"
	"sync/atomic"
)

// inflightLimiter bounds the requests of one sort that are in flight, by number and by
// the bytes that their bodies may hold. A request is refused rather than queued:
// a queue in front of a busy server only makes every client time out.
type inflightLimiter struct {
	mutating bool
	requests int64 // negative: not bounded
	bytes    int64 // zero: not bounded
	observer Observer

	inFlight atomic.Int64
	held     atomic.Int64
}

func (l *inflightLimiter) init(mutating bool, requests int, bytes int64, o Observer) {
	l.mutating, l.requests, l.bytes, l.observer = mutating, int64(requests), bytes, o
}

// enter admits a request and returns how many bytes it is charged with for now. urgent
// requests have twice the room: those are what a cluster under pressure recovers
// by.
func (l *inflightLimiter) enter(r *http.Request, urgent bool) (held int64, ok bool) {
	room := int64(1)
	if urgent {
		room = 2
	}
	if l.bytes > 0 {
		if held = r.ContentLength; held < 0 || held > chargedAtOnce {
			held = chargedAtOnce
		}
	}
	n, b := l.inFlight.Add(1), l.held.Add(held)
	switch {
	case l.requests >= 0 && n > l.requests*room:
		l.observer.RequestRefused(l.mutating, "requests")
	case l.bytes > 0 && b > l.bytes*room && held > 0:
		l.observer.RequestRefused(l.mutating, "bytes")
	default:
		l.observer.InFlight(l.mutating, int(n), b)
		return held, true
	}
	l.leave(held)
	return 0, false
}

// grow charges a request that was admitted with more.
func (l *inflightLimiter) grow(more int64, urgent bool) bool {
	room := l.bytes
	if urgent {
		room *= 2
	}
	b := l.held.Add(more)
	if l.bytes > 0 && b > room {
		l.held.Add(-more)
		l.observer.RequestRefused(l.mutating, "bytes")
		return false
	}
	l.observer.InFlight(l.mutating, int(l.inFlight.Load()), b)
	return true
}

// shrink takes back what grow has charged, before the request leaves.
func (l *inflightLimiter) shrink(bytes int64) {
	b := l.held.Add(-bytes)
	l.observer.InFlight(l.mutating, int(l.inFlight.Load()), b)
}

func (l *inflightLimiter) leave(held int64) {
	n, b := l.inFlight.Add(-1), l.held.Add(-held)
	l.observer.InFlight(l.mutating, int(n), b)
}
