package raftstore

import (
	"context"
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
	s.l.Log(context.Background(), to, msg, append([]any{"component", name}, args...)...)
}
