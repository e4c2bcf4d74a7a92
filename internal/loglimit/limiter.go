// Package loglimit keeps strangers from filling the log: anyone who can make a server
// complain can do so as often as he can send a packet.
package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Limiter writes one line per message and interval, with the number of lines that were
// left out since. Safe for concurrent use.
type Limiter struct {
	every, most time.Duration
	mu          sync.Mutex
	last        map[string]*limited // by message, or by what it is about; of both there are a fixed number
}

type limited struct {
	at      time.Time
	came    time.Time     // also if it was left out
	every   time.Duration // to the next line
	skipped int
	said    bool // since Over
}

// New returns a Limiter of one line of a kind per interval.
func New(every time.Duration) *Limiter { return Growing(every, every) }

// Growing returns a Limiter whose interval doubles with each line of a kind, from first to most. It is first again when none has come for most.
func Growing(first, most time.Duration) *Limiter {
	return &Limiter{every: first, most: most, last: map[string]*limited{}}
}

// Warn logs msg, a constant, at level WARN, or counts it.
func (l *Limiter) Warn(logger *slog.Logger, msg string, args ...any) {
	l.log(logger, slog.LevelWarn, msg, msg, args)
}

// WarnAbout is Warn, by what the message is about: one of a fixed number of things.
func (l *Limiter) WarnAbout(logger *slog.Logger, about, msg string, args ...any) {
	l.log(logger, slog.LevelWarn, about, msg, args)
}

// Error logs msg at level ERROR, or counts it, by what it is about: one of a fixed number of things.
func (l *Limiter) Error(logger *slog.Logger, about, msg string, args ...any) {
	l.log(logger, slog.LevelError, about, msg, args)
}

func (l *Limiter) log(logger *slog.Logger, level slog.Level, about, msg string, args []any) {
	now := time.Now()
	l.mu.Lock()
	e := l.last[about]
	if e == nil {
		e = &limited{}
		l.last[about] = e
	}
	if now.Sub(e.came) >= l.most {
		e.every = 0
	}
	e.came = now
	if now.Sub(e.at) < e.every {
		e.skipped++
		l.mu.Unlock()
		return
	}
	skipped := e.skipped
	e.at, e.skipped, e.said = now, 0, true
	e.every = min(max(2*e.every, l.every), l.most)
	l.mu.Unlock()
	logger.Log(context.Background(), level, msg, append(args, "alike_since_last", skipped)...)
}

// Over logs msg at level INFO if there was a line about the same thing since the last call: it is over.
func (l *Limiter) Over(logger *slog.Logger, about, msg string, args ...any) {
	l.mu.Lock()
	e := l.last[about]
	if e == nil || !e.said {
		l.mu.Unlock()
		return
	}
	skipped := e.skipped
	e.skipped, e.said = 0, false
	l.mu.Unlock()
	logger.Info(msg, append(args, "alike_since_last", skipped)...)
}
