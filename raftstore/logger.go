package raftstore

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// newRaftLogger gives raft's messages to slog, at the same levels.
func newRaftLogger(l *slog.Logger) hclog.Logger {
	sink := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Info, Output: io.Discard})
	sink.RegisterSink(slogSink{l})
	return sink
}

type slogSink struct{ l *slog.Logger }

// Accept implements hclog.SinkAdapter.
func (s slogSink) Accept(name string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	switch level {
	case hclog.Info:
		to = slog.LevelInfo
	case hclog.Warn:
		to = slog.LevelWarn
	case hclog.Error:
		to = slog.LevelError
	}
	out := append(make([]any, 0, len(args)+2), "component", name)
	for i, a := range args {
		if i%2 == 0 && a == "error" {
			a = "err" // as in our own lines
		}
		switch a := a.(type) {
		case hclog.Format: // a format and its arguments, to be printed only if needed
			out = append(out, formatted(a))
		case fmt.Stringer:
			out = append(out, a.String())
		default:
			out = append(out, a)
		}
	}
	s.l.Log(context.Background(), to, msg, out...)
}

func formatted(f hclog.Format) string {
	if len(f) == 0 {
		return ""
	}
	format, ok := f[0].(string)
	if !ok {
		return fmt.Sprint(f...)
	}
	return fmt.Sprintf(format, f[1:]...)
}
