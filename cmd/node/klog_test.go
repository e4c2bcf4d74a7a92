package main

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
)

// TestLibraryLogs: what libraries log is in our log, with bounds on lines and on their length.
func TestLibraryLogs(t *testing.T) {
	var b bytes.Buffer
	now := time.Unix(0, 0)
	h := &libraryHandler{out: slog.New(slog.NewTextHandler(&b, nil)), now: func() time.Time { return now }}
	log := slog.New(h)
	lines := func() int { return strings.Count(b.String(), "\n") }
	log.Debug("verbose")
	for range 100 {
		log.Info("rejected by webhook " + strings.Repeat("x", 10_000))
	}
	if lines() != libraryLines || strings.Contains(b.String(), "verbose") || b.Len() > libraryLines*(libraryLine+300) {
		t.Errorf("%d lines, %d bytes: %.300s", lines(), b.Len(), b.String())
	}
	b.Reset()
	now = now.Add(time.Second)
	log.Error("failed", "webhook", "w")
	if got := b.String(); lines() != 1 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, "dropped=95") || !strings.Contains(got, "webhook=w") || !strings.Contains(got, "text=failed") {
		t.Errorf("%q", got)
	}
	b.Reset()
	now = now.Add(time.Second)
	log.Error("Error on socket receive", "err", &net.OpError{Op: "read", Err: net.ErrClosed})
	if got := b.String(); got != "" {
		t.Errorf("the end of a connection of its own: %q", got)
	}
}
