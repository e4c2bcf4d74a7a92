package commands

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/cli"
)

func logLevel(name string) (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(name)); err != nil {
		return 0, fmt.Errorf("log-level: %q: must be debug, info, warn or error", name)
	}
	return l, nil
}

// newLogger writes text for people at a terminal and JSON for machines. What it
// writes to is watched.
func newLogger(s *settings, w io.Writer) (*slog.Logger, *watchedLog) {
	level, err := logLevel(s.LogLevel)
	if err != nil {
		level = slog.LevelInfo
	}
	o := &slog.HandlerOptions{Level: level}
	text := s.LogFormat == "text"
	if f, ok := w.(*os.File); ok && s.LogFormat == "auto" {
		info, err := f.Stat()
		text = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	watched := &watchedLog{Writer: w, now: time.Now}
	if f, ok := w.(*os.File); ok && cli.IsJournal(f) {
		watched.Writer = priorities{w}
	}
	if text {
		return slog.New(slog.NewTextHandler(watched, o)), watched
	}
	o.ReplaceAttr = readable
	return slog.New(slog.NewJSONHandler(watched, o)), watched
}

// readable writes values into JSON as the text has them: durations with their unit
// instead of nanoseconds, addresses and members of Raft in words instead of their fields.
func readable(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindDuration:
		return slog.String(a.Key, a.Value.Duration().String())
	case slog.KindAny:
		switch v := a.Value.Any().(type) {
		case error, json.Marshaler, *slog.Source: // the handler knows what to do
		case raft.Server, []raft.Server, raft.Configuration:
			return slog.String(a.Key, fmt.Sprintf("%+v", v))
		case fmt.Stringer:
			return slog.String(a.Key, v.String())
		}
	}
	return a
}
