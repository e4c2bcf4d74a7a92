package commands

import (
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"
)

// TestBlockedLog stops reading what a process logs: after two minutes it counts as blocked.
func TestBlockedLog(t *testing.T) {
	r, pipe := io.Pipe()
	var ahead atomic.Int64
	w := &watchedLog{Writer: pipe, now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }}
	log := slog.New(slog.NewTextHandler(w, nil))
	if d := w.blocked(); d != 0 {
		t.Fatalf("nothing was logged: blocked for %s", d)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		log.Info("nobody reads this")
	}()
	for w.begun.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	if d := w.blocked(); d != 0 {
		t.Fatalf("for a moment: blocked for %s", d)
	}
	ahead.Store(int64(blockedLogAfter + time.Second))
	if d := w.blocked(); d < blockedLogAfter {
		t.Fatalf("for long: blocked for %s", d)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	<-done
	if d := w.blocked(); d != 0 {
		t.Fatalf("read again: blocked for %s", d)
	}
	_ = pipe.Close()
}
