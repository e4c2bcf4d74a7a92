// Package loglimit keeps strangers from filling the log: anyone who can make a server
// complain can do so as often as he can send a packet.
package loglimit

import (
	"log/slog"
	"sync"
	"time"
)

// Limiter writes one line per message and interval, with the number of lines that were
// left out since. Safe for concurrent use.
type Limiter struct {
	every time.Duration
	mu    sync.Mutex
	last  map[string]*limited // by message; messages are constants
}

type limited struct {
	at      time.Time
	skipped int
}

// New returns a Limiter of one line of a kind per interval.
func New(every time.Duration) *Limiter {
	return &Limiter{every: every, last: map[string]*limited{}}
}

// Warn logs msg, a constant, at level WARN, or counts it.
func (l *Limiter) Warn(logger *slog.Logger, msg string, args ...any) {
	now := time.Now()
	l.mu.Lock()
	e := l.last[msg]
	if e == nil {
		e = &limited{}
		l.last[msg] = e
	}
	if now.Sub(e.at) < l.every {
		e.skipped++
		l.mu.Unlock()
		return
	}
	skipped := e.skipped
	e.at, e.skipped = now, 0
	l.mu.Unlock()
	logger.Warn(msg, append(args, "alike_since_last", skipped)...)
}
