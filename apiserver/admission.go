package apiserver

import (
	"net/http"
	"sync/atomic"
)

// admission bounds the requests of one sort that are in flight, by number and by
// the bytes that their bodies may hold. A request is refused rather than queued:
// a queue in front of a busy server only makes every client time out.
type admission struct {
	mutating bool
	requests int64 // negative: not bounded
	bytes    int64 // zero: not bounded
	observer Observer

	inFlight atomic.Int64
	held     atomic.Int64
}

func (a *admission) init(mutating bool, requests int, bytes int64, o Observer) {
	a.mutating, a.requests, a.bytes, a.observer = mutating, int64(requests), bytes, o
}

// enter admits a request and returns how many bytes it is charged with for now. urgent
// requests have twice the room: those are what a cluster under pressure recovers
// by.
func (a *admission) enter(r *http.Request, urgent bool) (held int64, ok bool) {
	room := int64(1)
	if urgent {
		room = 2
	}
	if a.bytes > 0 {
		if held = r.ContentLength; held < 0 || held > chargedAtOnce {
			held = chargedAtOnce
		}
	}
	n, b := a.inFlight.Add(1), a.held.Add(held)
	switch {
	case a.requests >= 0 && n > a.requests*room:
		a.observer.RequestRefused(a.mutating, "requests")
	case a.bytes > 0 && b > a.bytes*room && held > 0:
		a.observer.RequestRefused(a.mutating, "bytes")
	default:
		a.observer.InFlight(a.mutating, int(n), b)
		return held, true
	}
	a.leave(held)
	return 0, false
}

// grow charges a request that was admitted with more.
func (a *admission) grow(more int64, urgent bool) bool {
	room := a.bytes
	if urgent {
		room *= 2
	}
	b := a.held.Add(more)
	if a.bytes > 0 && b > room {
		a.held.Add(-more)
		a.observer.RequestRefused(a.mutating, "bytes")
		return false
	}
	a.observer.InFlight(a.mutating, int(a.inFlight.Load()), b)
	return true
}

// shrink takes back what grow has charged, before the request leaves.
func (a *admission) shrink(bytes int64) {
	b := a.held.Add(-bytes)
	a.observer.InFlight(a.mutating, int(a.inFlight.Load()), b)
}

func (a *admission) leave(held int64) {
	n, b := a.inFlight.Add(-1), a.held.Add(-held)
	a.observer.InFlight(a.mutating, int(n), b)
}
