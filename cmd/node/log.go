package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"
)

func logLevel(s string) (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(s)); err != nil {
		return 0, fmt.Errorf("log-level: %q: must be debug, info, warn or error", s)
	}
	return l, nil
}

// newLogger writes text for people at a terminal and JSON for machines. What it
// writes to is watched.
func newLogger(c *Config, w io.Writer) (*slog.Logger, *watchedLog) {
	level, err := logLevel(c.LogLevel)
	if err != nil {
		level = slog.LevelInfo
	}
	o := &slog.HandlerOptions{Level: level}
	text := c.LogFormat == "text"
	if f, ok := w.(*os.File); ok && c.LogFormat == "auto" {
		info, err := f.Stat()
		text = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	watched := &watchedLog{Writer: w, now: time.Now}
	if text {
		return slog.New(slog.NewTextHandler(watched, o)), watched
	}
	return slog.New(slog.NewJSONHandler(watched, o)), watched
}
