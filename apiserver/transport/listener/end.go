package listener

import (
	"context"
	"crypto/tls"
	"time"
)

const (
	// endEvery is how often End looks.
	endEvery = 5 * time.Millisecond
	// quietFor is how long a connection has no request, and nothing is written to it, before
	// it counts as one whose answers are all out: net/http calls a connection idle when it has
	// framed the last answer, and flushes it then.
	quietFor = 50 * time.Millisecond
)

// End ends the connections of a server whose Shutdown was called, each when its answers are
// out, and returns when there are none any more, or with the error of ctx, which is to end
// when Shutdown has returned.
//
// On HTTP/2 net/http leaves a connection open for a second after it has said that it ends
// (GOAWAY) and the last answer is out: it waits for the client, who may still be sending, and
// would otherwise lose with a reset what it has not read. And Shutdown looks twice a
// second at last. Here the direction to the client is closed instead. A client reads all that
// was sent, sees the end, and closes its side, a round trip later; for one that does not,
// net/http's second remains.
func (l *Listener) End(ctx context.Context) error {
	tick := time.NewTicker(endEvery)
	defer tick.Stop()
	for {
		rest, quiet := l.endable(time.Now())
		for _, c := range quiet {
			go c.closeWrite() // ends within the 5 s that crypto/tls gives it, or with the connection
		}
		if rest == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// endable returns how many connections there are, and those whose direction to the client
// is to be closed now: each once.
func (l *Listener) endable(now time.Time) (rest int, quiet []*connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range []*shares{l.guests, l.users} {
		rest += s.count
		for _, h := range s.holders {
			for e := h.conns.Front(); e != nil; e = e.Next() {
				c := e.Value.(*connection)
				if c.outer != nil && !c.halfClosed && now.Sub(c.idleSince) >= quietFor && c.writes.Load() == 0 {
					c.halfClosed = true
					quiet = append(quiet, c)
				}
			}
		}
	}
	return rest, quiet
}

// Abandon closes all connections as they are. Shutdown and Close of a server say goodbye to one connection after the
// other, and wait for its client up to 5 s, whatever their context says; behind this they do not.
func (l *Listener) Abandon() { l.end(l.all()) }

// all are the connections that are counted.
func (l *Listener) all() (all []*connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range []*shares{l.guests, l.users} {
		for _, h := range s.holders {
			for e := h.conns.Front(); e != nil; e = e.Next() {
				all = append(all, e.Value.(*connection))
			}
		}
	}
	return all
}

// noteIdle notes since when a connection has no request; outer is what the server has of it, nil
// if it has one. It needs in.mu.
func (c *connection) noteIdle(outer *tls.Conn) { c.outer, c.idleSince = outer, time.Now() }

// closeWrite closes the direction to the client, for TLS and for TCP.
func (c *connection) closeWrite() {
	c.in.mu.Lock()
	outer := c.outer
	c.in.mu.Unlock()
	if outer == nil || outer.CloseWrite() != nil {
		return
	}
	if raw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		_ = raw.CloseWrite()
	}
}
