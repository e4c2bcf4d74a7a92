package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/apiserver/health"
)

// blockedLogAfter is how long one line of the log may take before the process counts
// as blocked by it.
const blockedLogAfter = 2 * time.Minute

// watchedLog is where the log goes. Handlers write one line at a time; a line that
// does not return, because nobody reads a pipe or a disk hangs, holds up whoever logs.
// Safe for concurrent use.
type watchedLog struct {
	io.Writer
	now   func() time.Time
	begun atomic.Int64 // of the write that is under way, in nanoseconds since 1970; 0: none
}

// Write implements io.Writer.
func (w *watchedLog) Write(line []byte) (int, error) {
	w.begun.Store(w.now().UnixNano())
	defer w.begun.Store(0)
	return w.Writer.Write(line)
}

// blocked is for how long nothing could be logged; 0: not long enough to matter.
func (w *watchedLog) blocked() time.Duration {
	begun := w.begun.Load()
	if begun == 0 {
		return 0
	}
	if d := w.now().Sub(time.Unix(0, begun)); d > blockedLogAfter {
		return d
	}
	return 0
}

// check is the health check of upstream's name.
func (w *watchedLog) check() health.Check {
	return health.Check{Name: "log", Check: func(context.Context) error {
		if d := w.blocked(); d > 0 {
			return fmt.Errorf("logging is blocked for %s", d.Round(time.Second))
		}
		return nil
	}}
}

// unlessBlocked logs what log does, and nothing while that would block: who says that
// logging is blocked must not log it.
func (w *watchedLog) unlessBlocked(log *slog.Logger) *slog.Logger {
	return slog.New(passing{log.Handler(), w})
}

type passing struct {
	slog.Handler
	log *watchedLog
}

// Enabled implements slog.Handler.
func (p passing) Enabled(ctx context.Context, l slog.Level) bool {
	return p.log.blocked() == 0 && p.Handler.Enabled(ctx, l)
}
