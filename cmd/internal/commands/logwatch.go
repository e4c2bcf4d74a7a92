package commands

import (
	"io"
	"sync/atomic"
	"time"
)

// blockedLogAfter is how long one line of the log may take before the process counts
// as blocked by it.
const blockedLogAfter = 2 * time.Minute

// watchedLog is where the log goes. Handlers write one line at a time; a line that
// does not return, because nobody reads a pipe or a disk hangs, holds up the goroutines that log.
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
