package peer

import (
	"log/slog"
	"sync"
	"time"
)

// limiter keeps strangers from filling the log: one line per message and
// interval, with the number of lines left out since.
type limiter struct {
	every time.Duration
	mu    sync.Mutex
	last  map[string]*limited // by message; messages are constants
}

type limited struct {
	at      time.Time
	skipped int
}

func newLimiter(every time.Duration) *limiter {
	return &limiter{every: every, last: map[string]*limited{}}
}

func (l *limiter) warn(logger *slog.Logger, msg string, args ...any) {
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
